#include "load/engine_cache.h"

#include <algorithm>
#include <cassert>

namespace icache {

EngineCache::EngineCache(size_t capacity_blocks)
    : capacity_(capacity_blocks), blocks_{{.hash = 0, .older = kRing, .newer = kRing}} {
  assert(capacity_blocks >= 1 && capacity_blocks < UINT32_MAX);
}

size_t EngineCache::HeldBlocks(absl::Span<const uint64_t> chain) const {
  const auto missing =
      std::find_if(chain.begin(), chain.end(), [this](uint64_t hash) { return !slots_by_hash_.contains(hash); });
  return static_cast<size_t>(missing - chain.begin());
}

EngineCache::Insertion EngineCache::Insert(absl::Span<const uint64_t> chain, std::vector<uint64_t>* evicted) {
  chain = chain.first(std::min(chain.size(), capacity_));
  pinned_.clear();
  for (const uint64_t hash : chain) {
    const auto found = slots_by_hash_.find(hash);
    if (found == slots_by_hash_.end()) break;
    Unlink(found->second);
    pinned_.push_back(found->second);
  }
  const Insertion insertion{.held_before = pinned_.size(), .held_after = chain.size()};

  // What is pinned is out of the ring, so the oldest block is never one of this chain's.
  while (size() + (chain.size() - insertion.held_before) > capacity_) EvictOldest(evicted);
  for (size_t i = insertion.held_before; i < chain.size(); ++i) {
    Slot slot;
    if (free_slots_.empty()) {
      slot = static_cast<Slot>(blocks_.size());
      blocks_.push_back({.hash = chain[i], .older = kRing, .newer = kRing});
    } else {
      slot = free_slots_.back();
      free_slots_.pop_back();
      blocks_[slot].hash = chain[i];
    }
    slots_by_hash_.emplace(chain[i], slot);
    pinned_.push_back(slot);
  }
  std::for_each(pinned_.rbegin(), pinned_.rend(), [this](Slot slot) { LinkNewest(slot); });
  return insertion;
}

void EngineCache::Unlink(Slot slot) {
  const Block& block = blocks_[slot];
  blocks_[block.older].newer = block.newer;
  blocks_[block.newer].older = block.older;
}

void EngineCache::LinkNewest(Slot slot) {
  const Slot newest = blocks_[kRing].older;
  blocks_[slot].older = newest;
  blocks_[slot].newer = kRing;
  blocks_[newest].newer = slot;
  blocks_[kRing].older = slot;
}

void EngineCache::EvictOldest(std::vector<uint64_t>* evicted) {
  const Slot oldest = blocks_[kRing].newer;
  Unlink(oldest);
  slots_by_hash_.erase(blocks_[oldest].hash);
  evicted->push_back(blocks_[oldest].hash);
  free_slots_.push_back(oldest);
}

}  // namespace icache
