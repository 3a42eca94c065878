// CachePolicy and CacheTenant as values, their defaults and bounds. Source: contract/policy.md.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "icache/base/string_map.h"
#include "icache/index/retention.h"

namespace icache {

// One tenant's policy. A tenant without one has exactly these defaults.
struct CachePolicy {
  EvictionAlgorithm eviction = EvictionAlgorithm::kLru;
  std::optional<absl::Duration> eviction_ttl = std::nullopt;  // > 0; nullopt = the server's default
  int64_t minimum_prefix_tokens = 0;                          // request-side gate, >= 0
  int64_t minimum_matched_tokens = 64;                        // per-replica floor, >= 0; 0 = off
  double routing_floor_score = 0.1;                           // whole-response floor, finite, >= 0; 0 = off
  bool affinity_routing = true;
  int64_t lookup_timeout_ms = 0;  // <= 0 = no deadline
  bool enable_chain_matching = true;
  bool require_chain = false;  // not together with enable_chain_matching = false
  bool enable_tenant_hot = true;
};

// What one set of policy files says: at most one policy per namespace and one quota per tenant. Immutable once built.
class PolicySet {
 public:
  PolicySet() = default;

  // `source` says where the policy stands. False when the tenant has one already; nothing has changed then.
  bool AddPolicy(std::string_view tenant_id, const CachePolicy& policy, std::string_view source = {});
  // `max_prefixes` nullopt: the tenant is named without a quota. False when the tenant is named already.
  bool AddTenant(std::string_view tenant_id, std::optional<int64_t> max_prefixes);

  // The tenant's policy or the defaults; valid as long as the set.
  const CachePolicy& PolicyFor(std::string_view tenant_id) const;
  // Where the tenant's policy stands; "" for the defaults. Valid as long as the set.
  std::string_view SourceOf(std::string_view tenant_id) const;
  std::optional<int64_t> QuotaFor(std::string_view tenant_id) const;
  // Calls `visit` for each tenant that has a quota, in no order.
  void ForEachQuota(absl::FunctionRef<void(std::string_view tenant_id)> visit) const;

  size_t policy_count() const { return policies_.size(); }
  size_t tenant_count() const { return quotas_.size(); }

  // The tenants that the set names, by policy or by quota, in bytewise order. O(n log n).
  std::vector<std::string> Tenants() const;

 private:
  StringMap<CachePolicy> policies_;
  StringMap<std::string> sources_;  // of policies_
  StringMap<std::optional<int64_t>> quotas_;
};

}  // namespace icache
