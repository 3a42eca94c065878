// ChangeObserver: told of every change of what replicas hold, as the index makes it.
#pragma once

#include <atomic>
#include <cstdint>
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

  // While false no change of that type is told, and telling costs nothing.
  bool IsListening(CacheEventType type) const { return (types_.load(std::memory_order_relaxed) & BitOf(type)) != 0; }
  virtual void OnChange(const IndexChange& change) = 0;

 protected:
  static constexpr uint32_t kAllTypes = ~uint32_t{0};
  static constexpr uint32_t BitOf(CacheEventType type) { return uint32_t{1} << static_cast<int>(type); }
  // A bit for each type that is listened for.
  void SetListening(uint32_t types) { types_.store(types, std::memory_order_relaxed); }

 private:
  std::atomic<uint32_t> types_ = 0;
};

}  // namespace icache
