// EngineCache: the prefix cache of one simulated engine.
//
// It holds whole blocks up to a capacity and gives up the least recently used first. A request's blocks are pinned
// while it is inserted, and become unpinned tail first, as real engines free them; so within one request the last block
// goes before the first. Two things follow, and the rest relies on them:
//   I1  size() <= capacity().
//   I2  a held block's parent is held too, and was used no earlier: what is held of any chain is a prefix of it.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"

namespace icache {

class EngineCache {
 public:
  // Requires: 1 <= capacity_blocks < 2^32 - 1.
  explicit EngineCache(size_t capacity_blocks);

  // The leading blocks of `chain` that are held. O(answer).
  size_t HeldBlocks(absl::Span<const uint64_t> chain) const;

  struct Insertion {
    size_t held_before = 0;  // leading blocks that were held already
    size_t held_after = 0;   // leading blocks held now: the chain's length, or the capacity when that is less
  };
  // Makes `chain` the most recently used and appends to `evicted` what had to go for it, in order. Blocks beyond the
  // capacity are not stored. A chain's hashes must be parent-chained: equal hashes mean equal prefixes.
  Insertion Insert(absl::Span<const uint64_t> chain, std::vector<uint64_t>* evicted);

  // Calls `visit` with the hash of each held block, in no order.
  template <typename Visit>
  void ForEachBlock(Visit visit) const {
    for (const auto& [hash, slot] : slots_by_hash_) visit(hash);
  }

  size_t size() const { return slots_by_hash_.size(); }
  size_t capacity() const { return capacity_; }

 private:
  using Slot = uint32_t;
  // A block in the ring of all held blocks, which runs from the least to the most recently used.
  struct Block {
    uint64_t hash;
    Slot older;
    Slot newer;
  };

  static constexpr Slot kRing = 0;  // blocks_[0] is no block: it joins the two ends of the ring

  void Unlink(Slot slot);
  void LinkNewest(Slot slot);
  void EvictOldest(std::vector<uint64_t>* evicted);

  const size_t capacity_;
  std::vector<Block> blocks_;
  std::vector<Slot> free_slots_;
  absl::flat_hash_map<uint64_t, Slot> slots_by_hash_;
  std::vector<Slot> pinned_;  // of Insert(); kept for its memory
};

}  // namespace icache
