// PolicyStore: the set of policies in force, swapped whole.
//
// A reader takes the current set once per request and keeps it for that request, so one answer never mixes two sets.
// The store is thread-safe; each reader is for one thread at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/base/mutex.h"
#include "icache/index/retention.h"
#include "icache/policy/cache_policy.h"

namespace icache {

class PolicyStore final : public RetentionSource {
 public:
  // `default_ttl` > 0 holds for policies that name none.
  explicit PolicyStore(absl::Duration default_ttl);

  // Never null; starts as the empty set.
  std::shared_ptr<const PolicySet> Current() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Replaces the set in force. Requires set != nullptr.
  void Publish(std::shared_ptr<const PolicySet> set) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::Duration default_ttl() const { return default_ttl_; }
  absl::Duration TtlOf(const CachePolicy& policy) const { return policy.eviction_ttl.value_or(default_ttl_); }

  // Who reads often, and wants to meet no other thread at it unless the set has changed.
  class Reader {
   public:
    // Like store.Current(); valid until the next call.
    const PolicySet& Current(const PolicyStore& store);

   private:
    std::shared_ptr<const PolicySet> set_;
    uint64_t stamp_ = 0;
  };

  // RetentionSource, over the set in force.
  RetentionRules For(std::string_view tenant_id) const override;
  uint64_t Version() const override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  const absl::Duration default_ttl_;
  mutable Mutex mutex_;
  std::shared_ptr<const PolicySet> current_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<uint64_t> stamp_;  // of current_; no two sets of the process have the same
};

}  // namespace icache
