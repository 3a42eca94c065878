// The bounds that a tenant's policy puts on a lookup. Source: contract/lookup.md steps 4 and 8. Pure functions,
// thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "icache/policy/cache_policy.h"
#include "icache/ranking/ranking.h"

namespace icache {

// What minimumPrefixTokens makes of a request.
enum class PrefixGate {
  kOpen,       // long enough
  kDowngrade,  // too short: the lookup runs, but what it finds does not count
  kShut,       // too short, and without affinity there is nothing to run the lookup for: NO_HINT at once
};

// `tokens` is what the request announces.
PrefixGate PassPrefixGate(int32_t tokens, const CachePolicy& policy);

// Drops the rows of a PREFIX_MATCH below minimumMatchedTokens, then all rows when the best is below routingFloorScore.
// `rows` is in ranked order, stays so, and is empty when nothing clears the floors. No score changes.
void ApplyFloors(const CachePolicy& policy, std::vector<ScoredReplica>* rows);

}  // namespace icache
