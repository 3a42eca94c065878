// AgeTree: the spans of one replica in one scope, by age, from which the next victim is found in O(log n) under a lease
// that moves in O(1).
//
// Why a tree of its own: a lease lifts every span older than itself to the lease's time, all at once. Sorting by
// effective last_seen would re-sort everything at each renewal. Sorted by *own* last_seen, the leased spans are a
// prefix of the order, they all share the lease's time, and among them only access count and depth still decide. So the
// tree knows the best of each part under the orders that can be asked for, and a victim is the best of a prefix or of
// the rest.
//
// Spans are kept in *leaves* of up to kLeafSpans, unordered within, and the leaves are the nodes of a treap: leaf i
// holds nothing later than `floor_us` of leaf i + 1. Appending the newest span, the common case, is O(1) amortized. A
// span knows its leaf; a leaf knows the runs and starts of its spans.
//
// A leaf's bounds are never above the keys of its spans, but they may lie: what raises a key (a removal, a credit, a
// span cut short) leaves them alone. The search corrects the leaf that it would choose until it finds one whose bound
// is true. Each correction is paid for by what made it necessary.
//
// Not thread-safe.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "index/eviction_key.h"
#include "index/run.h"
#include "index/slab.h"

namespace icache {

// What may be asked for.
enum class AgeOrder : uint8_t {
  kDeepest,          // the deepest block
  kLeastUsed,        // access count, then the deepest
  kLeastUsedOldest,  // access count, then own last_seen, then the deepest
  kWitness,          // the deepest block that counts on its span for quota eviction
};
inline constexpr size_t kAgeOrders = 4;

struct AgeLeaf {
  static constexpr uint32_t kLeafSpans = 32;

  int64_t floor_us = 0;  // no span is earlier
  uint32_t count = 0;
  uint32_t parent = 0;
  uint32_t left = 0;
  uint32_t right = 0;
  EvictionKey bound[kAgeOrders];  // of this leaf alone
  uint32_t best[kAgeOrders];      // the leaf of the smallest bound in the subtree
  int64_t seen_us[kLeafSpans];
  RunRef run[kLeafSpans];
  uint8_t start[kLeafSpans];
};

using LeafSlab = Slab<AgeLeaf>;

class AgeTree {
 public:
  static constexpr uint32_t kNoLeaf = LeafSlab::kNone;

  struct Victim {
    RunRef run = 0;  // 0: none
    Span span;
    EvictionKey key;
    bool alone = false;  // no other span is as old (FirstLru only)
  };

  // Where spans are looked up: the runs, and the slot of the replica that the tree is about.
  class Spans {
   public:
    Spans(const Arena* arena, uint32_t slot) : arena_(*arena), slot_(slot) {}
    Span At(RunRef run, uint32_t start) const;

   private:
    const Arena& arena_;
    const uint32_t slot_;
  };

  bool empty() const { return root_ == kNoLeaf; }

  // Adds a span and sets its `leaf`. `other_moved(run, start, leaf)` is told of spans that had to move to another leaf.
  template <typename Moved>
  void Insert(LeafSlab& leaves, const Spans& spans, RunRef run, Span* span, Moved other_moved) {
    span->leaf = Place(leaves, spans, span->seen_us, other_moved);
    AgeLeaf& leaf = leaves[span->leaf];
    leaf.seen_us[leaf.count] = span->seen_us;
    leaf.run[leaf.count] = run;
    leaf.start[leaf.count] = static_cast<uint8_t>(span->start);
    ++leaf.count;
    Lower(leaves, *span);
  }
  // Takes a span out.
  template <typename Moved>
  void Remove(LeafSlab& leaves, RunRef run, const Span& span, Moved other_moved) {
    const uint32_t id = span.leaf;
    Drop(leaves, run, span);
    if (leaves[id].count == 0) {
      Unlink(leaves, id);
    } else if (leaves[id].count <= AgeLeaf::kLeafSpans / 4) {
      Join(leaves, id, other_moved);
    }
  }
  // A span of the tree may now be nearer to eviction than before, its run, start and last_seen unchanged.
  void Lower(LeafSlab& leaves, const Span& span);

  // A span with the smallest own last_seen. Requires !empty().
  Victim Oldest(const LeafSlab& leaves, const Spans& spans) const;

  // The largest own last_seen of all spans. Requires !empty().
  int64_t NewestSeen(const LeafSlab& leaves) const;

  // The first to be evicted when spans seen at `lease_us` or before count as seen then, by (age, deepest first). The
  // victim is the last block of the span. Requires !empty().
  Victim FirstLru(LeafSlab& leaves, const Spans& spans, int64_t lease_us);
  // The same by (access count, age, deepest first). Requires !empty().
  Victim FirstLfu(LeafSlab& leaves, const Spans& spans, int64_t lease_us);
  // The same as FirstLru among blocks that count on their span for quota eviction; run 0 when there are none. The
  // victim is the last block before Span::witness.
  Victim FirstWitness(LeafSlab& leaves, const Spans& spans, int64_t lease_us);

  // A key that is not above that of any span.
  EvictionKey LowerBound(const LeafSlab& leaves) const;

  // For tests: order, heap, links, bounds. Adds the number of spans to `count`.
  bool CheckInvariants(const LeafSlab& leaves, const Spans& spans, size_t* count) const;
  template <typename Visit>
  void ForEach(const LeafSlab& leaves, Visit visit) const {
    ForEachLeaf(leaves, [&](uint32_t id) {
      const AgeLeaf& leaf = leaves[id];
      for (uint32_t i = 0; i < leaf.count; ++i) visit(leaf.run[i], leaf.start[i]);
    });
  }

 private:
  struct Best {
    uint32_t leaf = kNoLeaf;  // by its bound, all of it in question
    EvictionKey bound = EvictionKey::Never();
    Victim exact;  // of the leaf of which only a part is in question; run 0 when there is none
    EvictionKey exact_key = EvictionKey::Never();
    uint32_t parted_spans = 0;  // in question in that leaf
  };

  static EvictionKey KeyOf(AgeOrder order, const Span& span);
  static bool Pull(LeafSlab& leaves, uint32_t id);
  static void PullUp(LeafSlab& leaves, uint32_t id, uint32_t changed);
  static uint32_t Merge(LeafSlab& leaves, uint32_t left, uint32_t right);
  void ReplaceChild(LeafSlab& leaves, uint32_t parent, uint32_t child, uint32_t replacement);
  // Adds a leaf to the treap, next in the order to `after` (which means nothing while there is no leaf).
  void LinkAfter(LeafSlab& leaves, uint32_t after, uint32_t id);
  void Unlink(LeafSlab& leaves, uint32_t id);
  uint32_t Leftmost(const LeafSlab& leaves, uint32_t node) const;
  uint32_t Successor(const LeafSlab& leaves, uint32_t id) const;
  uint32_t NewLeaf(LeafSlab& leaves, uint32_t after, int64_t floor_us);
  static void Drop(LeafSlab& leaves, RunRef run, const Span& span);
  // The leaf with the largest floor up to `seen_us`, or the first.
  uint32_t LeafFor(const LeafSlab& leaves, int64_t seen_us) const;
  // Recomputes a leaf's bound under one order.
  void Correct(LeafSlab& leaves, const Spans& spans, AgeOrder order, uint32_t id);
  // The best under `order` among spans seen up to (or, `after`, later than) `seen_us`.
  Best Search(const LeafSlab& leaves, const Spans& spans, AgeOrder order, int64_t seen_us, bool after) const;
  // The same, corrected until it is exact.
  Best SearchExactly(LeafSlab& leaves, const Spans& spans, AgeOrder order, int64_t seen_us, bool after);
  Victim BestIn(const AgeLeaf& leaf, const Spans& spans, AgeOrder order, int64_t seen_us, bool after, bool all,
                EvictionKey* key, uint32_t* considered) const;

  // A leaf with room for a span of this age.
  template <typename Moved>
  uint32_t Place(LeafSlab& leaves, const Spans& spans, int64_t seen_us, Moved other_moved);
  // Joins an almost empty leaf with the next one if both fit into one.
  template <typename Moved>
  void Join(LeafSlab& leaves, uint32_t id, Moved other_moved);
  // Moves the later half of a full leaf to a new one, whose id comes back.
  uint32_t Halve(LeafSlab& leaves, const Spans& spans, uint32_t id);

  template <typename Visit>
  void ForEachLeaf(const LeafSlab& leaves, Visit visit) const {
    if (root_ == kNoLeaf) return;
    for (uint32_t id = Leftmost(leaves, root_); id != kNoLeaf; id = Successor(leaves, id)) visit(id);
  }

  uint32_t root_ = kNoLeaf;
  uint32_t newest_ = kNoLeaf;  // the last in order
};

template <typename Moved>
uint32_t AgeTree::Place(LeafSlab& leaves, const Spans& spans, int64_t seen_us, Moved other_moved) {
  if (root_ == kNoLeaf) return NewLeaf(leaves, kNoLeaf, seen_us);
  const uint32_t id = LeafFor(leaves, seen_us);
  AgeLeaf& leaf = leaves[id];
  if (leaf.count < AgeLeaf::kLeafSpans) {
    if (seen_us < leaf.floor_us) leaf.floor_us = seen_us;  // only the first leaf is chosen for something earlier
    return id;
  }
  if (id == newest_ && seen_us >= *std::max_element(leaf.seen_us, leaf.seen_us + leaf.count)) {
    return NewLeaf(leaves, id, seen_us);
  }
  const uint32_t later = Halve(leaves, spans, id);
  const AgeLeaf& half = leaves[later];
  for (uint32_t i = 0; i < half.count; ++i) other_moved(half.run[i], half.start[i], later);
  if (seen_us >= half.floor_us) return later;
  if (seen_us < leaves[id].floor_us) leaves[id].floor_us = seen_us;
  return id;
}

template <typename Moved>
void AgeTree::Join(LeafSlab& leaves, uint32_t id, Moved other_moved) {
  const uint32_t next = Successor(leaves, id);
  if (next == kNoLeaf) return;
  AgeLeaf& leaf = leaves[id];
  const AgeLeaf& other = leaves[next];
  if (leaf.count + other.count > AgeLeaf::kLeafSpans * 3 / 4) return;
  for (uint32_t i = 0; i < other.count; ++i, ++leaf.count) {
    leaf.seen_us[leaf.count] = other.seen_us[i];
    leaf.run[leaf.count] = other.run[i];
    leaf.start[leaf.count] = other.start[i];
    other_moved(other.run[i], other.start[i], id);
  }
  for (size_t order = 0; order < kAgeOrders; ++order) {
    leaf.bound[order] = std::min(leaf.bound[order], other.bound[order]);
  }
  PullUp(leaves, id, id);
  Unlink(leaves, next);
}

}  // namespace icache
