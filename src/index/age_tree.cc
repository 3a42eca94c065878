#include "index/age_tree.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <numeric>

namespace icache {
namespace {

constexpr AgeOrder kOrders[kAgeOrders] = {AgeOrder::kDeepest, AgeOrder::kLeastUsed, AgeOrder::kLeastUsedOldest,
                                          AgeOrder::kWitness};

// Heap priority of a leaf; larger is nearer to the root. The finalizer of MurmurHash3 (public domain) spreads ids that
// differ in few bits.
uint32_t Priority(uint32_t id) {
  id ^= id >> 16;
  id *= 0x85ebca6bU;
  id ^= id >> 13;
  id *= 0xc2b2ae35U;
  id ^= id >> 16;
  return id;
}

}  // namespace

Span AgeTree::Spans::At(RunRef run, uint32_t start) const {
  const auto spans = reinterpret_cast<const Run*>(arena_.At(run))->spans();
  if (spans.size() == 1) return spans[0].Load();
  auto found = std::partition_point(spans.begin(), spans.end(), [&](const StoredSpan& stored) {
    const uint32_t slot = stored.slot();
    return slot < slot_ || (slot == slot_ && stored.Load().start < start);
  });
  assert(found != spans.end() && found->slot() == slot_);
  return found->Load();
}

EvictionKey AgeTree::KeyOf(AgeOrder order, const Span& span) {
  const uint32_t shallowness = ~span.DepthBelow(span.end);
  switch (order) {
    case AgeOrder::kDeepest:
      return {.access = 0, .seen_us = 0, .shallowness = shallowness};
    case AgeOrder::kLeastUsed:
      return {.access = span.access, .seen_us = 0, .shallowness = shallowness};
    case AgeOrder::kLeastUsedOldest:
      return {.access = span.access, .seen_us = span.seen_us, .shallowness = shallowness};
    case AgeOrder::kWitness:
      if (span.witness <= span.start) return EvictionKey::Never();
      return {.access = 0, .seen_us = 0, .shallowness = ~span.DepthBelow(span.witness)};
  }
  return {};
}

// ---- The treap ------------------------------------------------------------------------------------------------------

// Recomputes what one leaf says of its subtree. False when nothing changed.
bool AgeTree::Pull(LeafSlab& leaves, uint32_t id) {
  AgeLeaf& leaf = leaves[id];
  bool changed = false;
  for (size_t order = 0; order < kAgeOrders; ++order) {
    uint32_t best = id;
    for (uint32_t child : {leaf.left, leaf.right}) {
      if (child == kNoLeaf) continue;
      const uint32_t other = leaves[child].best[order];
      if (leaves[other].bound[order] < leaves[best].bound[order]) best = other;
    }
    changed |= leaf.best[order] != best;
    leaf.best[order] = best;
  }
  return changed;
}

// Recomputes from `id` to the root, stopping where what is said no longer changes and `changed`, a leaf whose bounds
// are new (or none), is not what is said.
void AgeTree::PullUp(LeafSlab& leaves, uint32_t id, uint32_t changed) {
  for (; id != kNoLeaf; id = leaves[id].parent) {
    const bool differs = Pull(leaves, id);
    const AgeLeaf& leaf = leaves[id];
    if (!differs && std::find(leaf.best, leaf.best + kAgeOrders, changed) == leaf.best + kAgeOrders) return;
  }
}

// Joins two treaps of which no leaf of `left` is later than one of `right`. The result's parent is the caller's to set.
uint32_t AgeTree::Merge(LeafSlab& leaves, uint32_t left, uint32_t right) {
  if (left == kNoLeaf) return right;
  if (right == kNoLeaf) return left;
  if (Priority(left) >= Priority(right)) {
    const uint32_t child = Merge(leaves, leaves[left].right, right);
    leaves[left].right = child;
    leaves[child].parent = left;
    Pull(leaves, left);
    return left;
  }
  const uint32_t child = Merge(leaves, left, leaves[right].left);
  leaves[right].left = child;
  leaves[child].parent = right;
  Pull(leaves, right);
  return right;
}

void AgeTree::ReplaceChild(LeafSlab& leaves, uint32_t parent, uint32_t child, uint32_t replacement) {
  if (parent == kNoLeaf) {
    root_ = replacement;
  } else if (leaves[parent].left == child) {
    leaves[parent].left = replacement;
  } else {
    leaves[parent].right = replacement;
  }
  if (replacement != kNoLeaf) leaves[replacement].parent = parent;
}

void AgeTree::LinkAfter(LeafSlab& leaves, uint32_t after, uint32_t id) {
  if (root_ == kNoLeaf) {
    root_ = newest_ = id;
    return;
  }
  // At the bottom, where its place in the order is, and up from there as far as its priority takes it.
  AgeLeaf& leaf = leaves[id];
  if (leaves[after].right == kNoLeaf) {
    leaves[after].right = id;
    leaf.parent = after;
  } else {
    leaf.parent = Leftmost(leaves, leaves[after].right);
    leaves[leaf.parent].left = id;
  }
  if (after == newest_) newest_ = id;
  const uint32_t priority = Priority(id);
  while (leaf.parent != kNoLeaf && Priority(leaf.parent) < priority) {
    const uint32_t down = leaf.parent;
    AgeLeaf& parent = leaves[down];
    ReplaceChild(leaves, parent.parent, down, id);
    const bool was_left = parent.left == id;
    uint32_t& inner = was_left ? leaf.right : leaf.left;
    (was_left ? parent.left : parent.right) = inner;
    if (inner != kNoLeaf) leaves[inner].parent = down;
    inner = down;
    leaf.parent = parent.parent;
    parent.parent = id;
    Pull(leaves, down);
  }
  Pull(leaves, id);
}

void AgeTree::Unlink(LeafSlab& leaves, uint32_t id) {
  const AgeLeaf& leaf = leaves[id];
  if (id == newest_) {
    newest_ = leaf.parent;
    for (uint32_t node = leaf.left; node != kNoLeaf; node = leaves[node].right) newest_ = node;
  }
  const uint32_t parent = leaf.parent;
  ReplaceChild(leaves, parent, id, Merge(leaves, leaf.left, leaf.right));
  PullUp(leaves, parent, id);
  leaves.Free(id);
}

uint32_t AgeTree::Leftmost(const LeafSlab& leaves, uint32_t node) const {
  while (leaves[node].left != kNoLeaf) node = leaves[node].left;
  return node;
}

uint32_t AgeTree::Successor(const LeafSlab& leaves, uint32_t id) const {
  if (leaves[id].right != kNoLeaf) return Leftmost(leaves, leaves[id].right);
  uint32_t parent = leaves[id].parent;
  while (parent != kNoLeaf && leaves[parent].right == id) {
    id = parent;
    parent = leaves[id].parent;
  }
  return parent;
}

// ---- Leaves ---------------------------------------------------------------------------------------------------------

uint32_t AgeTree::NewLeaf(LeafSlab& leaves, uint32_t after, int64_t floor_us) {
  const uint32_t id = leaves.Allocate();
  AgeLeaf& leaf = leaves[id];
  leaf.floor_us = floor_us;
  leaf.count = 0;
  leaf.parent = leaf.left = leaf.right = kNoLeaf;
  std::fill_n(leaf.bound, kAgeOrders, EvictionKey::Never());
  std::fill_n(leaf.best, kAgeOrders, id);
  LinkAfter(leaves, after, id);
  return id;
}

uint32_t AgeTree::LeafFor(const LeafSlab& leaves, int64_t seen_us) const {
  if (leaves[newest_].floor_us <= seen_us) return newest_;
  uint32_t found = kNoLeaf;
  for (uint32_t node = root_; node != kNoLeaf;) {
    if (leaves[node].floor_us <= seen_us) {
      found = node;
      node = leaves[node].right;
    } else {
      node = leaves[node].left;
    }
  }
  return found != kNoLeaf ? found : Leftmost(leaves, root_);
}

uint32_t AgeTree::Halve(LeafSlab& leaves, const Spans& spans, uint32_t id) {
  constexpr uint32_t kHalf = AgeLeaf::kLeafSpans / 2;
  const AgeLeaf full = leaves[id];
  std::array<uint32_t, AgeLeaf::kLeafSpans> order;
  std::iota(order.begin(), order.end(), 0u);
  std::nth_element(order.begin(), order.begin() + kHalf, order.end(),
                   [&](uint32_t a, uint32_t b) { return full.seen_us[a] < full.seen_us[b]; });
  const uint32_t later = NewLeaf(leaves, id, full.seen_us[order[kHalf]]);
  const auto fill = [&](uint32_t to, const uint32_t* from) {
    AgeLeaf& half = leaves[to];
    half.count = kHalf;
    std::fill_n(half.bound, kAgeOrders, EvictionKey::Never());
    for (uint32_t i = 0; i < kHalf; ++i) {
      half.seen_us[i] = full.seen_us[from[i]];
      half.run[i] = full.run[from[i]];
      half.start[i] = full.start[from[i]];
      const Span span = spans.At(half.run[i], half.start[i]);
      for (AgeOrder each : kOrders) {
        EvictionKey& bound = half.bound[static_cast<size_t>(each)];
        bound = std::min(bound, KeyOf(each, span));
      }
    }
    PullUp(leaves, to, to);
  };
  fill(id, order.data());
  fill(later, order.data() + kHalf);
  return later;
}

void AgeTree::Drop(LeafSlab& leaves, RunRef run, const Span& span) {
  AgeLeaf& leaf = leaves[span.leaf];
  uint32_t i = 0;
  while (leaf.run[i] != run || leaf.start[i] != span.start) ++i;
  assert(i < leaf.count);
  --leaf.count;
  leaf.seen_us[i] = leaf.seen_us[leaf.count];
  leaf.run[i] = leaf.run[leaf.count];
  leaf.start[i] = leaf.start[leaf.count];
}

void AgeTree::Lower(LeafSlab& leaves, const Span& span) {
  AgeLeaf& leaf = leaves[span.leaf];
  bool lowered = false;
  for (AgeOrder order : kOrders) {
    EvictionKey& bound = leaf.bound[static_cast<size_t>(order)];
    const EvictionKey key = KeyOf(order, span);
    if (key < bound) {
      bound = key;
      lowered = true;
    }
  }
  if (lowered) PullUp(leaves, span.leaf, span.leaf);
}

// ---- Victims --------------------------------------------------------------------------------------------------------

AgeTree::Victim AgeTree::BestIn(const AgeLeaf& leaf, const Spans& spans, AgeOrder order, int64_t seen_us, bool after,
                                bool all, EvictionKey* key, uint32_t* considered) const {
  Victim best;
  *key = EvictionKey::Never();
  for (uint32_t i = 0; i < leaf.count; ++i) {
    if (!all && (leaf.seen_us[i] > seen_us) != after) continue;
    ++*considered;
    const Span span = spans.At(leaf.run[i], leaf.start[i]);
    const EvictionKey own = KeyOf(order, span);
    if (own < *key) {
      *key = own;
      best.run = leaf.run[i];
      best.span = span;
    }
  }
  return best;
}

void AgeTree::Correct(LeafSlab& leaves, const Spans& spans, AgeOrder order, uint32_t id) {
  EvictionKey key;
  uint32_t considered = 0;
  BestIn(leaves[id], spans, order, 0, false, /*all=*/true, &key, &considered);
  leaves[id].bound[static_cast<size_t>(order)] = key;
  PullUp(leaves, id, id);
}

AgeTree::Best AgeTree::Search(const LeafSlab& leaves, const Spans& spans, AgeOrder order, int64_t seen_us,
                              bool after) const {
  Best best;
  const size_t o = static_cast<size_t>(order);
  const auto take = [&](uint32_t id) {
    if (leaves[id].bound[o] < best.bound) {
      best.bound = leaves[id].bound[o];
      best.leaf = id;
    }
  };
  // Leaves with floors beyond `seen_us` hold only later spans; those before the last of the others only earlier ones.
  uint32_t parted = kNoLeaf;
  for (uint32_t node = root_; node != kNoLeaf;) {
    const AgeLeaf& leaf = leaves[node];
    if (leaf.floor_us <= seen_us) {
      if (!after) {
        if (parted != kNoLeaf) take(parted);
        if (leaf.left != kNoLeaf) take(leaves[leaf.left].best[o]);
      }
      parted = node;
      node = leaf.right;
    } else {
      if (after) {
        take(node);
        if (leaf.right != kNoLeaf) take(leaves[leaf.right].best[o]);
      }
      node = leaf.left;
    }
  }
  if (parted != kNoLeaf) {
    best.exact =
        BestIn(leaves[parted], spans, order, seen_us, after, /*all=*/false, &best.exact_key, &best.parted_spans);
  }
  return best;
}

AgeTree::Best AgeTree::SearchExactly(LeafSlab& leaves, const Spans& spans, AgeOrder order, int64_t seen_us,
                                     bool after) {
  while (true) {
    Best best = Search(leaves, spans, order, seen_us, after);
    if (best.leaf == kNoLeaf || best.exact_key <= best.bound) {
      best.leaf = kNoLeaf;
      return best;
    }
    EvictionKey key;
    uint32_t considered = 0;
    const Victim victim = BestIn(leaves[best.leaf], spans, order, 0, false, /*all=*/true, &key, &considered);
    if (key == best.bound) {
      best.exact = victim;
      best.exact_key = key;
      return best;
    }
    leaves[best.leaf].bound[static_cast<size_t>(order)] = key;
    PullUp(leaves, best.leaf, best.leaf);
  }
}

AgeTree::Victim AgeTree::Oldest(const LeafSlab& leaves, const Spans& spans) const {
  const AgeLeaf& leaf = leaves[Leftmost(leaves, root_)];
  const auto i = std::min_element(leaf.seen_us, leaf.seen_us + leaf.count) - leaf.seen_us;
  return {.run = leaf.run[i], .span = spans.At(leaf.run[i], leaf.start[i]), .key = {}};
}

int64_t AgeTree::NewestSeen(const LeafSlab& leaves) const {
  const AgeLeaf& leaf = leaves[newest_];
  return *std::max_element(leaf.seen_us, leaf.seen_us + leaf.count);
}

AgeTree::Victim AgeTree::FirstLru(LeafSlab& leaves, const Spans& spans, int64_t lease_us) {
  assert(!empty());
  // All that the lease lifts shares its time; without such spans the oldest ones share theirs.
  const AgeLeaf& first = leaves[Leftmost(leaves, root_)];
  const int64_t age_us = std::max(lease_us, *std::min_element(first.seen_us, first.seen_us + first.count));
  Best best = SearchExactly(leaves, spans, AgeOrder::kDeepest, age_us, /*after=*/false);
  best.exact.key = {.access = 0, .seen_us = age_us, .shallowness = best.exact_key.shallowness};
  best.exact.alone = best.bound == EvictionKey::Never() && best.parted_spans == 1;
  return best.exact;
}

AgeTree::Victim AgeTree::FirstLfu(LeafSlab& leaves, const Spans& spans, int64_t lease_us) {
  assert(!empty());
  Best leased = SearchExactly(leaves, spans, AgeOrder::kLeastUsed, lease_us, /*after=*/false);
  Best fresh = SearchExactly(leaves, spans, AgeOrder::kLeastUsedOldest, lease_us, /*after=*/true);
  leased.exact_key.seen_us = lease_us;
  if (fresh.exact.run == 0 || (leased.exact.run != 0 && leased.exact_key <= fresh.exact_key)) {
    leased.exact.key = leased.exact_key;
    return leased.exact;
  }
  fresh.exact.key = fresh.exact_key;
  return fresh.exact;
}

AgeTree::Victim AgeTree::FirstWitness(LeafSlab& leaves, const Spans& spans, int64_t lease_us) {
  constexpr size_t kWitness = static_cast<size_t>(AgeOrder::kWitness);
  while (root_ != kNoLeaf && leaves[leaves[root_].best[kWitness]].bound[kWitness] != EvictionKey::Never()) {
    // The first leaf with a witness: keep left as long as there is one.
    uint32_t node = root_;
    while (true) {
      const AgeLeaf& leaf = leaves[node];
      const auto has = [&](uint32_t child) {
        return child != kNoLeaf && leaves[leaves[child].best[kWitness]].bound[kWitness] != EvictionKey::Never();
      };
      if (has(leaf.left)) {
        node = leaf.left;
      } else if (leaf.bound[kWitness] != EvictionKey::Never()) {
        break;
      } else {
        node = leaf.right;
      }
    }
    const AgeLeaf& leaf = leaves[node];
    int64_t oldest_us = std::numeric_limits<int64_t>::max();
    bool found = false;
    for (uint32_t i = 0; i < leaf.count; ++i) {
      const Span span = spans.At(leaf.run[i], leaf.start[i]);
      if (span.witness <= span.start) continue;
      oldest_us = std::min(oldest_us, leaf.seen_us[i]);
      found = true;
    }
    if (!found) {
      Correct(leaves, spans, AgeOrder::kWitness, node);
      continue;
    }
    const int64_t age_us = std::max(lease_us, oldest_us);
    Best best = SearchExactly(leaves, spans, AgeOrder::kWitness, age_us, /*after=*/false);
    best.exact.key = {.access = 0, .seen_us = age_us, .shallowness = best.exact_key.shallowness};
    return best.exact;
  }
  return {};
}

EvictionKey AgeTree::LowerBound(const LeafSlab& leaves) const {
  return {.access = 0, .seen_us = leaves[Leftmost(leaves, root_)].floor_us, .shallowness = 0};
}

bool AgeTree::CheckInvariants(const LeafSlab& leaves, const Spans& spans, size_t* count) const {
  if (root_ == kNoLeaf) return newest_ == kNoLeaf;
  if (leaves[root_].parent != kNoLeaf) return false;
  bool holds = true;
  uint32_t last = kNoLeaf;
  int64_t latest_us = kNoTime;
  ForEachLeaf(leaves, [&](uint32_t id) {
    const AgeLeaf& leaf = leaves[id];
    if (leaf.count == 0 || leaf.count > AgeLeaf::kLeafSpans) holds = false;
    if (leaf.floor_us < latest_us) holds = false;
    for (uint32_t child : {leaf.left, leaf.right}) {
      if (child != kNoLeaf && (leaves[child].parent != id || Priority(child) > Priority(id))) holds = false;
    }
    for (uint32_t i = 0; i < leaf.count; ++i) {
      const Span span = spans.At(leaf.run[i], leaf.start[i]);
      if (span.start != leaf.start[i] || span.leaf != id || span.seen_us != leaf.seen_us[i]) holds = false;
      if (span.seen_us < leaf.floor_us) holds = false;
      latest_us = std::max(latest_us, span.seen_us);
      for (AgeOrder order : kOrders) {
        if (KeyOf(order, span) < leaf.bound[static_cast<size_t>(order)]) holds = false;
      }
    }
    for (size_t order = 0; order < kAgeOrders; ++order) {
      // Ties may be broken either way, so the best is compared by value.
      EvictionKey best = leaf.bound[order];
      for (uint32_t child : {leaf.left, leaf.right}) {
        if (child != kNoLeaf) best = std::min(best, leaves[leaves[child].best[order]].bound[order]);
      }
      if (leaves[leaf.best[order]].bound[order] != best) holds = false;
    }
    *count += leaf.count;
    last = id;
  });
  return holds && last == newest_;
}

}  // namespace icache
