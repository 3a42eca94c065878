// FakeRetention: retention rules that a test sets by hand. Thread-safe.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "icache/index/retention.h"

namespace icache::testing {

class FakeRetention final : public RetentionSource {
 public:
  void Set(std::string_view tenant_id, const RetentionRules& rules) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    rules_.insert_or_assign(tenant_id, rules);
    ++version_;
  }

  // The default rules for a tenant that was never set.
  RetentionRules For(std::string_view tenant_id) const override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    auto it = rules_.find(tenant_id);
    return it == rules_.end() ? RetentionRules() : it->second;
  }
  void ForEachQuota(absl::FunctionRef<void(std::string_view)> visit) const override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    for (const auto& [tenant_id, rules] : rules_) {
      if (rules.max_prefixes.has_value()) visit(tenant_id);
    }
  }
  uint64_t Version() const override ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return version_;
  }

 private:
  mutable Mutex mutex_;
  StringMap<RetentionRules> rules_ ABSL_GUARDED_BY(mutex_);
  uint64_t version_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace icache::testing
