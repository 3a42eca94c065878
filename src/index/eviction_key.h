// EvictionKey: where an entry stands in the order of eviction.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>

namespace icache {

// Unix microseconds before all others: "no lease", "no fence".
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// The smallest goes first. Source: contract/index.md "Eviction".
struct EvictionKey {
  uint32_t access = 0;        // access count; 0 for LRU tenants
  int64_t seen_us = kNoTime;  // effective last_seen
  uint32_t shallowness = 0;   // ~depth: the deepest block of a chain goes first

  // After all others.
  static constexpr EvictionKey Never() {
    return {.access = 0xffffffff, .seen_us = std::numeric_limits<int64_t>::max(), .shallowness = 0xffffffff};
  }

  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

}  // namespace icache
