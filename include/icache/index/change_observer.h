// ChangeObserver: told of every change of what replicas hold, as the index makes it.
#pragma once

#include <atomic>
#include <string_view>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/index/observation.h"

namespace icache {

// One replica in one (tenant, model):
//   kPrefixAdded     holds `hashes`, seen at `at`: reported for the first time or again
//   kPrefixEvicted   has lost `hashes`: reported, expired, or evicted for a cap, the memory or a quota
//   kReplicaUpdated  has reported stats, or said that it is alive
//   kAllCleared      has lost whatever was last seen at `at` or before, which is not told block by block
struct IndexChange {
  CacheEventType type = CacheEventType::kUnspecified;
  std::string_view tenant_id;
  std::string_view model_id;
  std::string_view replica_id;
  std::string_view hash_scheme;  // of `hashes`
  std::string_view adapter_id;   // of `hashes`
  absl::Time at;                 // the time of the observation, or of the eviction
  absl::Span<const BlockHash> hashes;
};

// Thread-safe. OnChange() comes under a lock of the index, in the order in which changes are made to a (tenant, model);
// it must be quick and must not call the index. Views are valid only during the call.
class ChangeObserver {
 public:
  virtual ~ChangeObserver() = default;

  // While false nothing is told, and telling costs nothing.
  bool IsListening() const { return listening_.load(std::memory_order_relaxed); }
  virtual void OnChange(const IndexChange& change) = 0;

 protected:
  void SetListening(bool listening) { listening_.store(listening, std::memory_order_relaxed); }

 private:
  std::atomic<bool> listening_ = false;
};

}  // namespace icache
