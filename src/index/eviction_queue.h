// EvictionQueue: presences by the key of their first victim, lazily corrected.
//
// Eviction order is global, but entries are ordered per presence (AgeTree). This queue keeps, for each presence, a
// *recorded* key that is never above the true one: whoever lowers a true key (a new entry, an older time) lowers the
// recorded key at once, while leases, refreshes and removals, which raise it, leave it behind. The evictor takes the
// smallest recorded key; when the presence's true key turns out larger, it records that and looks again.
//
// Thread-safe; its lock is a leaf.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <set>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "index/eviction_key.h"

namespace icache {

struct Presence;

class EvictionQueue {
 public:
  // A presence's place in one queue. Owned by the presence; changed only under its shard's lock.
  struct Place {
    EvictionKey key;
    bool queued = false;
  };

  struct Head {
    Presence* presence = nullptr;  // null: the queue is empty
    EvictionKey key;               // recorded
    size_t shard = 0;
    int64_t next_seen_us = std::numeric_limits<int64_t>::min();  // of the recorded key after it
  };

  // Records `key`, whatever was recorded before. `shard` is the number of the presence's shard. The caller holds that
  // shard's lock.
  void Record(Presence* presence, size_t shard, const EvictionKey& key, Place* place) ABSL_LOCKS_EXCLUDED(mutex_);
  // Forgets the presence, if it is there. The caller holds its shard's lock.
  void Remove(Presence* presence, size_t shard, Place* place) ABSL_LOCKS_EXCLUDED(mutex_);

  // The smallest recorded key. The presence is certain to live on only while its shard's lock is held.
  Head First() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Item {
    EvictionKey key;
    Presence* presence;
    size_t shard;

    friend bool operator<(const Item& a, const Item& b) {
      if (a.key != b.key) return a.key < b.key;
      return std::less<const Presence*>()(a.presence, b.presence);
    }
  };

  mutable Mutex mutex_;
  std::set<Item> items_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
