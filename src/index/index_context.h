// IndexContext: what the shards of one index share. Every member locks itself or is fixed.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "icache/index/change_observer.h"
#include "icache/index/retention.h"
#include "icache/index/sharded_index.h"
#include "index/directory.h"
#include "index/eviction_key.h"
#include "index/eviction_queue.h"

namespace icache {

// A tenant that holds something, over all its models.
struct Tenant {
  explicit Tenant(std::string_view tenant_id) : name(tenant_id) {}

  const std::string name;
  std::atomic<int64_t> prefixes{0};
  // Whether eviction looks at access counts. Changed by ShardedIndex::RefreshAlgorithms alone once the tenant exists.
  std::atomic<bool> lfu{false};
  EvictionQueue quota_queue;  // presences by their first witness
};

// A model that some tenant holds something of, over all tenants.
struct ModelRecord {
  explicit ModelRecord(std::string_view model_id) : name(model_id) {}

  const std::string name;
  std::atomic<int64_t> prefixes{0};
  std::atomic<int64_t> stats_rows{0};
  std::atomic<int64_t> last_applied_us{kNoTime};
};

// Relaxed: they are counts, and order nothing.
struct IndexCounters {
  std::atomic<int64_t> prefixes{0};
  std::atomic<int64_t> entries{0};
  std::atomic<int64_t> runs{0};
  std::atomic<int64_t> memory_bytes{0};
  std::atomic<int64_t> idle_replicas{0};  // replicas without entries, kept for their stats or fence
  // By algorithm: [0] LRU, [1] LFU.
  std::atomic<int64_t> evicted_for_cap[2] = {};
  std::atomic<int64_t> evicted_for_memory[2] = {};
  std::atomic<int64_t> expired[2] = {};
};

struct IndexContext {
  IndexContext(const IndexOptions& index_options, const RetentionSource* source, ChangeObserver* observer)
      : options(index_options), retention(source), change_observer(observer) {}

  bool tells(CacheEventType type) const { return change_observer != nullptr && change_observer->IsListening(type); }

  const IndexOptions options;
  const RetentionSource* const retention;
  ChangeObserver* const change_observer;  // may be null
  IndexCounters counters;
  Directory<Tenant> tenants;
  Directory<ModelRecord> models;
  EvictionQueue cap_queue;  // presences by their first victim
};

}  // namespace icache
