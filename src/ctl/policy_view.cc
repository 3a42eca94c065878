#include "ctl/policy_view.h"

#include <fmt/format.h>

#include "absl/time/time.h"

namespace icache {
namespace {

namespace ops = ::inferencecache::ops::v1alpha1;

std::string TtlText(const ops::Policy& policy) {
  if (policy.eviction_ttl_us() == 0) return "the daemon's default";
  return absl::FormatDuration(absl::Microseconds(policy.eviction_ttl_us()));
}

std::string SwitchText(bool on) { return on ? "Enabled" : "Disabled"; }
std::string BoolText(bool value) { return value ? "true" : "false"; }

}  // namespace

std::vector<PolicyField> FieldsOf(const ops::Policy& policy) {
  return {
      {"eviction", policy.eviction()},
      {"evictionTTL", TtlText(policy)},
      {"minimumPrefixTokens", fmt::format("{}", policy.minimum_prefix_tokens())},
      {"minimumMatchedTokens", fmt::format("{}", policy.minimum_matched_tokens())},
      {"routingFloorScore", fmt::format("{}", policy.routing_floor_score())},
      {"affinityRouting", SwitchText(policy.affinity_routing())},
      {"lookupTimeoutMs", fmt::format("{}", policy.lookup_timeout_ms())},
      {"strategy.enableChainMatching", BoolText(policy.enable_chain_matching())},
      {"strategy.requireChain", BoolText(policy.require_chain())},
      {"strategy.enableTenantHot", BoolText(policy.enable_tenant_hot())},
      {"quota.maxIndexEntries",
       policy.has_max_index_entries() ? fmt::format("{}", policy.max_index_entries()) : "none"},
  };
}

std::string PolicySummary(const ops::Policy& policy) {
  return fmt::format("TTL {}, minimumMatchedTokens {}, routingFloorScore {}{}", TtlText(policy),
                     policy.minimum_matched_tokens(), policy.routing_floor_score(),
                     policy.affinity_routing() ? ", affinity" : "");
}

ops::Policy PolicyIn(const PolicySet& set, std::string_view tenant_id) {
  const CachePolicy& policy = set.PolicyFor(tenant_id);
  ops::Policy message;
  message.set_source(std::string(set.SourceOf(tenant_id)));
  message.set_eviction(policy.eviction == EvictionAlgorithm::kLfu ? "LFU" : "LRU");
  message.set_eviction_ttl_us(
      absl::ToInt64Microseconds(absl::Ceil(policy.eviction_ttl.value_or(absl::ZeroDuration()), absl::Microseconds(1))));
  message.set_minimum_prefix_tokens(policy.minimum_prefix_tokens);
  message.set_minimum_matched_tokens(policy.minimum_matched_tokens);
  message.set_routing_floor_score(policy.routing_floor_score);
  message.set_affinity_routing(policy.affinity_routing);
  message.set_lookup_timeout_ms(policy.lookup_timeout_ms);
  message.set_enable_chain_matching(policy.enable_chain_matching);
  message.set_require_chain(policy.require_chain);
  message.set_enable_tenant_hot(policy.enable_tenant_hot);
  if (const auto quota = set.QuotaFor(tenant_id); quota.has_value()) message.set_max_index_entries(*quota);
  return message;
}

}  // namespace icache
