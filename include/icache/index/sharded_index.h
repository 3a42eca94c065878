// ShardedIndex: the PrefixIndex that the daemon uses. Layout and invariants are told in src/index/sharded_index.cc.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "icache/index/change_observer.h"
#include "icache/index/prefix_index.h"

namespace icache {

struct IndexOptions {
  int64_t max_entries = 1'000'000;  // cap on entries; 0 = none. Fixed at start.
  int64_t max_memory_bytes = 0;     // cap on the accounted bytes; 0 = none. Fixed at start.
  int32_t hot_threshold = 10;       // access count from which a prefix is hot, >= 1. Fixed at start.
  // Replicas kept for their stats or fence alone, over all tenants, >= 1; with max_memory_bytes, as many at most as fit
  // in an eighth of it.
  int64_t max_idle_replicas = 100'000;
  int32_t shard_count = 16;  // locks; a power of two in [1, 1024]. Fixed at start.
};

// `retention` and `change_observer`, which may be null, are not owned and must outlive the index. Errors:
// InvalidArgument naming the option out of range.
absl::StatusOr<std::unique_ptr<PrefixIndex>> CreateShardedIndex(const IndexOptions& options,
                                                                const RetentionSource* retention,
                                                                ChangeObserver* change_observer = nullptr);

}  // namespace icache
