// The bounds of policies and quotas, apart from how they are written. Source: contract/policy.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "icache/policy/cache_policy.h"

namespace icache {

struct BoundsProblem {
  std::string_view field;  // as a manifest spells it, as "spec.evictionTTL"
  std::string message;
};

// What is out of bounds in `policy`; empty when nothing is.
std::vector<BoundsProblem> CheckPolicy(const CachePolicy& policy);

// Likewise for the quota of one tenant; nullopt = none.
std::vector<BoundsProblem> CheckQuota(std::optional<int64_t> max_prefixes);

}  // namespace icache
