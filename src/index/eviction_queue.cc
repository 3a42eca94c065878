#include "index/eviction_queue.h"

#include <iterator>
#include <limits>
#include <utility>

namespace icache {

void EvictionQueue::Record(Presence* presence, size_t shard, const EvictionKey& key, Place* place) {
  MutexLock lock(&mutex_);
  if (place->queued) {
    if (place->key == key) return;
    auto node = items_.extract(Item{place->key, presence, shard});
    node.value().key = key;
    items_.insert(std::move(node));
  } else {
    items_.insert(Item{key, presence, shard});
  }
  *place = {.key = key, .queued = true};
}

void EvictionQueue::Remove(Presence* presence, size_t shard, Place* place) {
  if (!place->queued) return;
  MutexLock lock(&mutex_);
  items_.erase(Item{place->key, presence, shard});
  place->queued = false;
}

EvictionQueue::Head EvictionQueue::First() const {
  MutexLock lock(&mutex_);
  if (items_.empty()) return {};
  const Item& first = *items_.begin();
  const auto next = std::next(items_.begin());
  return {.presence = first.presence,
          .key = first.key,
          .shard = first.shard,
          .next_seen_us = next == items_.end() ? std::numeric_limits<int64_t>::max() : next->key.seen_us};
}

}  // namespace icache
