// Entry: one (partition, block hash, replica), and the order in which entries are evicted.
#pragma once

#include <atomic>
#include <compare>
#include <cstdint>
#include <limits>

#include "icache/index/observation.h"
#include "index/slab.h"

namespace icache {

struct Entry;
struct Presence;
struct Prefix;

using EntryId = Slab<Entry>::Id;
using PrefixId = uint32_t;
using EntrySlab = Slab<Entry>;
inline constexpr EntryId kNoEntry = EntrySlab::kNone;
inline constexpr PrefixId kNoPrefix = 0xffffffff;

// Unix microseconds before all others: "no lease", "no fence".
inline constexpr int64_t kNoTime = std::numeric_limits<int64_t>::min();

// Where an entry stands in the order of eviction; the smallest goes first. Source: contract/index.md "Eviction".
struct EvictionKey {
  uint32_t access = 0;        // access count; 0 for LRU tenants
  int64_t seen_us = kNoTime;  // effective last_seen
  uint32_t shallowness = 0;   // ~depth: the deepest block of a chain goes first

  friend auto operator<=>(const EvictionKey&, const EvictionKey&) = default;
};

// Fields that only writers touch unless said otherwise; readers hold the shard's lock shared.
struct Entry {
  int64_t seen_us = 0;           // own last_seen, before any lease
  Presence* presence = nullptr;  // of the replica in the scope
  PrefixId prefix = kNoPrefix;
  int32_t token_count = 0;
  uint32_t depth = 0;               // position in the chain that last stored it, 0 for a single hash
  std::atomic<uint32_t> access{0};  // raised by readers too (LFU credit), relaxed: a count, it orders nothing
  Tier tier = Tier::kT1;
  // Whether the entry stands for its prefix in the order of quota eviction (EntryTree::FirstWitness).
  bool witness = false;

  // The rest belongs to EntryTree.
  uint32_t ordered_access = 0;  // access as of the last ordering, never above it
  EntryId parent = kNoEntry;
  EntryId left = kNoEntry;
  EntryId right = kNoEntry;
  // Best of the subtree, this entry included; kNoEntry when there is none.
  EntryId least_used = kNoEntry;         // smallest (ordered_access, ~depth)
  EntryId least_used_oldest = kNoEntry;  // smallest (ordered_access, seen_us, ~depth)
  EntryId deepest = kNoEntry;            // largest depth
  EntryId deepest_witness = kNoEntry;    // largest depth among witnesses
};

}  // namespace icache
