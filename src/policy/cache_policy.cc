#include "icache/policy/cache_policy.h"

#include <set>
#include <string>

namespace icache {

bool PolicySet::AddPolicy(std::string_view tenant_id, const CachePolicy& policy, std::string_view source) {
  if (!policies_.try_emplace(std::string(tenant_id), policy).second) return false;
  sources_.try_emplace(std::string(tenant_id), source);
  return true;
}

bool PolicySet::AddTenant(std::string_view tenant_id, std::optional<int64_t> max_prefixes) {
  return quotas_.try_emplace(std::string(tenant_id), max_prefixes).second;
}

const CachePolicy& PolicySet::PolicyFor(std::string_view tenant_id) const {
  static const CachePolicy defaults;
  auto found = policies_.find(tenant_id);
  return found == policies_.end() ? defaults : found->second;
}

std::string_view PolicySet::SourceOf(std::string_view tenant_id) const {
  auto found = sources_.find(tenant_id);
  return found == sources_.end() ? std::string_view() : found->second;
}

std::vector<std::string> PolicySet::Tenants() const {
  std::set<std::string> names;
  for (const auto& [tenant_id, policy] : policies_) names.insert(tenant_id);
  for (const auto& [tenant_id, quota] : quotas_) names.insert(tenant_id);
  return {names.begin(), names.end()};
}

std::optional<int64_t> PolicySet::QuotaFor(std::string_view tenant_id) const {
  auto found = quotas_.find(tenant_id);
  return found == quotas_.end() ? std::nullopt : found->second;
}

void PolicySet::ForEachQuota(absl::FunctionRef<void(std::string_view tenant_id)> visit) const {
  for (const auto& [tenant_id, quota] : quotas_) {
    if (quota.has_value()) visit(tenant_id);
  }
}

}  // namespace icache
