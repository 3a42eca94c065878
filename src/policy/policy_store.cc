#include "icache/policy/policy_store.h"

#include <utility>

namespace icache {

PolicyStore::PolicyStore(absl::Duration default_ttl) : default_ttl_(default_ttl) {
  sets_.Publish(std::make_shared<const PolicySet>());
}

void PolicyStore::Publish(std::shared_ptr<const PolicySet> set) {
  sets_.Publish(std::move(set));
  ++version_;
}

RetentionRules PolicyStore::For(std::string_view tenant_id) const {
  const std::shared_ptr<const PolicySet> set = Current();
  const CachePolicy& policy = set->PolicyFor(tenant_id);
  return {.ttl = TtlOf(policy), .algorithm = policy.eviction, .max_prefixes = set->QuotaFor(tenant_id)};
}

void PolicyStore::ForEachQuota(absl::FunctionRef<void(std::string_view tenant_id)> visit) const {
  Current()->ForEachQuota(visit);
}

}  // namespace icache
