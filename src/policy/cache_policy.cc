#include "icache/policy/cache_policy.h"

#include <string>

namespace icache {

bool PolicySet::AddPolicy(std::string_view tenant_id, const CachePolicy& policy) {
  return policies_.try_emplace(std::string(tenant_id), policy).second;
}

bool PolicySet::AddTenant(std::string_view tenant_id, std::optional<int64_t> max_prefixes) {
  return quotas_.try_emplace(std::string(tenant_id), max_prefixes).second;
}

const CachePolicy& PolicySet::PolicyFor(std::string_view tenant_id) const {
  static const CachePolicy defaults;
  auto found = policies_.find(tenant_id);
  return found == policies_.end() ? defaults : found->second;
}

std::optional<int64_t> PolicySet::QuotaFor(std::string_view tenant_id) const {
  auto found = quotas_.find(tenant_id);
  return found == quotas_.end() ? std::nullopt : found->second;
}

}  // namespace icache
