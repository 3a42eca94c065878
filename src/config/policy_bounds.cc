#include "config/policy_bounds.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace icache {

std::vector<BoundsProblem> CheckPolicy(const CachePolicy& policy) {
  std::vector<BoundsProblem> problems;
  const auto check_tokens = [&](std::string_view field, int64_t tokens) {
    if (tokens < 0) problems.push_back({field, absl::StrCat("must be >= 0, got ", tokens)});
  };
  if (policy.eviction_ttl.has_value() && *policy.eviction_ttl <= absl::ZeroDuration()) {
    problems.push_back(
        {"spec.evictionTTL", absl::StrCat("must be > 0, got ", absl::FormatDuration(*policy.eviction_ttl))});
  }
  check_tokens("spec.minimumPrefixTokens", policy.minimum_prefix_tokens);
  check_tokens("spec.minimumMatchedTokens", policy.minimum_matched_tokens);
  if (!std::isfinite(policy.routing_floor_score) || policy.routing_floor_score < 0) {
    problems.push_back(
        {"spec.routingFloorScore", absl::StrCat("must be finite and >= 0, got ", policy.routing_floor_score)});
  }
  if (policy.require_chain && !policy.enable_chain_matching) {
    problems.push_back({"spec.strategy.requireChain", "needs enableChainMatching: true"});
  }
  return problems;
}

std::vector<BoundsProblem> CheckQuota(std::optional<int64_t> max_prefixes) {
  if (!max_prefixes.has_value() || *max_prefixes >= 0) return {};
  return {{"spec.quota.maxIndexEntries", absl::StrCat("must be >= 0, got ", *max_prefixes)}};
}

}  // namespace icache
