#include "icache/policy/policy_store.h"

#include <utility>

namespace icache {
namespace {

uint64_t NextStamp() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

}  // namespace

PolicyStore::PolicyStore(absl::Duration default_ttl)
    : default_ttl_(default_ttl), current_(std::make_shared<const PolicySet>()), stamp_(NextStamp()) {}

std::shared_ptr<const PolicySet> PolicyStore::Current() const {
  MutexLock lock(&mutex_);
  return current_;
}

void PolicyStore::Publish(std::shared_ptr<const PolicySet> set) {
  {
    MutexLock lock(&mutex_);
    current_.swap(set);
    ++version_;
    stamp_.store(NextStamp(), std::memory_order_release);
  }
  // The old set, now in `set`, dies outside the lock.
}

const PolicySet& PolicyStore::Reader::Current(const PolicyStore& store) {
  if (store.stamp_.load(std::memory_order_acquire) != stamp_) {
    MutexLock lock(&store.mutex_);
    set_ = store.current_;
    stamp_ = store.stamp_.load(std::memory_order_relaxed);
  }
  return *set_;
}

RetentionRules PolicyStore::For(std::string_view tenant_id) const {
  const std::shared_ptr<const PolicySet> set = Current();
  const CachePolicy& policy = set->PolicyFor(tenant_id);
  return {.ttl = TtlOf(policy), .algorithm = policy.eviction, .max_prefixes = set->QuotaFor(tenant_id)};
}

uint64_t PolicyStore::Version() const {
  MutexLock lock(&mutex_);
  return version_;
}

}  // namespace icache
