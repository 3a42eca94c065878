#include "routing/gates/floors.h"

namespace icache {

PrefixGate PassPrefixGate(int32_t tokens, const CachePolicy& policy) {
  if (tokens >= policy.minimum_prefix_tokens) return PrefixGate::kOpen;
  return policy.affinity_routing ? PrefixGate::kDowngrade : PrefixGate::kShut;
}

void ApplyFloors(const CachePolicy& policy, std::vector<ScoredReplica>* rows) {
  std::erase_if(*rows,
                [&policy](const ScoredReplica& row) { return row.matched_tokens < policy.minimum_matched_tokens; });
  // Compared as floats: a floor of 0.7 must not drop the score 0.7f, which is a little less.
  if (!rows->empty() && rows->front().score < static_cast<float>(policy.routing_floor_score)) rows->clear();
}

}  // namespace icache
