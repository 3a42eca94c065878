// PolicyStore: the set of policies in force, swapped whole.
//
// A reader takes the current set once per request and keeps it for that request, so one answer never mixes two sets.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "icache/base/published.h"
#include "icache/index/retention.h"
#include "icache/policy/cache_policy.h"

namespace icache {

// Thread-safe.
class PolicyStore final : public RetentionSource {
 public:
  // `default_ttl` > 0 holds for policies that name none.
  explicit PolicyStore(absl::Duration default_ttl);

  // Never null; starts as the empty set.
  std::shared_ptr<const PolicySet> Current() const { return sets_.Current(); }
  // The same, for who reads it through a reader.
  const Published<PolicySet>& sets() const { return sets_; }
  // Replaces the set in force. Requires set != nullptr.
  void Publish(std::shared_ptr<const PolicySet> set);

  absl::Duration default_ttl() const { return default_ttl_; }
  absl::Duration TtlOf(const CachePolicy& policy) const { return policy.eviction_ttl.value_or(default_ttl_); }

  // RetentionSource, over the set in force.
  RetentionRules For(std::string_view tenant_id) const override;
  void ForEachQuota(absl::FunctionRef<void(std::string_view tenant_id)> visit) const override;
  uint64_t Version() const override { return version_; }

 private:
  const absl::Duration default_ttl_;
  Published<PolicySet> sets_;
  std::atomic<uint64_t> version_ = 0;  // rises when a new set is in force, not before
};

}  // namespace icache
