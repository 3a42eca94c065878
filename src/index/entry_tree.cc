#include "index/entry_tree.h"

#include <algorithm>
#include <cassert>
#include <tuple>

namespace icache {
namespace {

// Heap priority of a node; larger is nearer to the root. The finalizer of MurmurHash3 (public domain) spreads ids that
// differ in few bits.
uint32_t Priority(EntryId id) {
  id ^= id >> 16;
  id *= 0x85ebca6bU;
  id ^= id >> 13;
  id *= 0xc2b2ae35U;
  id ^= id >> 16;
  return id;
}

bool LessUsed(const Entry& a, const Entry& b) {
  return std::tuple(a.ordered_access, ~a.depth) < std::tuple(b.ordered_access, ~b.depth);
}

bool LessUsedOrOlder(const Entry& a, const Entry& b) {
  return std::tuple(a.ordered_access, a.seen_us, ~a.depth) < std::tuple(b.ordered_access, b.seen_us, ~b.depth);
}

bool Deeper(const Entry& a, const Entry& b) { return a.depth > b.depth; }

// The better of two nodes, either of which may be missing; the first on ties.
template <typename Better>
EntryId BestOf(const EntrySlab& entries, EntryId a, EntryId b, Better better) {
  if (a == kNoEntry) return b;
  if (b == kNoEntry) return a;
  return better(entries[b], entries[a]) ? b : a;
}

}  // namespace

// Recomputes the aggregates of one node from its children. False when nothing changed.
bool EntryTree::Pull(EntrySlab& entries, EntryId id) {
  Entry& node = entries[id];
  const auto best = [&](EntryId own, EntryId Entry::*field, Better better) {
    if (node.left != kNoEntry) own = BestOf(entries, own, entries[node.left].*field, better);
    if (node.right != kNoEntry) own = BestOf(entries, own, entries[node.right].*field, better);
    const bool changed = node.*field != own;
    node.*field = own;
    return changed;
  };
  bool changed = best(id, &Entry::least_used, LessUsed);
  changed |= best(id, &Entry::least_used_oldest, LessUsedOrOlder);
  changed |= best(id, &Entry::deepest, Deeper);
  changed |= best(node.witness ? id : kNoEntry, &Entry::deepest_witness, Deeper);
  return changed;
}

// Recomputes from `id` to the root, stopping where neither the aggregates nor, through them, `changed` (an entry whose
// fields are new; may be kNoEntry) reach further up.
void EntryTree::PullUp(EntrySlab& entries, EntryId id, EntryId changed) {
  while (id != kNoEntry) {
    const bool differs = Pull(entries, id);
    const Entry& node = entries[id];
    const bool carries = changed != kNoEntry && (node.least_used == changed || node.least_used_oldest == changed ||
                                                 node.deepest == changed || node.deepest_witness == changed);
    if (!differs && !carries) return;
    id = node.parent;
  }
}

// Joins two trees of which no entry of `left` is newer than one of `right`. The result's parent is the caller's to set.
EntryId EntryTree::Merge(EntrySlab& entries, EntryId left, EntryId right) {
  if (left == kNoEntry) return right;
  if (right == kNoEntry) return left;
  if (Priority(left) >= Priority(right)) {
    const EntryId child = Merge(entries, entries[left].right, right);
    entries[left].right = child;
    entries[child].parent = left;
    Pull(entries, left);
    return left;
  }
  const EntryId child = Merge(entries, left, entries[right].left);
  entries[right].left = child;
  entries[child].parent = right;
  Pull(entries, right);
  return right;
}

// Parts a tree into entries seen up to `seen_us` and those seen later. The results' parents are the caller's to set.
void EntryTree::Split(EntrySlab& entries, EntryId node, int64_t seen_us, EntryId* left, EntryId* right) {
  if (node == kNoEntry) {
    *left = *right = kNoEntry;
    return;
  }
  Entry& entry = entries[node];
  if (entry.seen_us <= seen_us) {
    EntryId inner;
    Split(entries, entry.right, seen_us, &inner, right);
    entry.right = inner;
    if (inner != kNoEntry) entries[inner].parent = node;
    *left = node;
  } else {
    EntryId inner;
    Split(entries, entry.left, seen_us, left, &inner);
    entry.left = inner;
    if (inner != kNoEntry) entries[inner].parent = node;
    *right = node;
  }
  Pull(entries, node);
}

void EntryTree::ReplaceChild(EntrySlab& entries, EntryId parent, EntryId child, EntryId replacement) {
  if (parent == kNoEntry) {
    root_ = replacement;
  } else if (entries[parent].left == child) {
    entries[parent].left = replacement;
  } else {
    entries[parent].right = replacement;
  }
  if (replacement != kNoEntry) entries[replacement].parent = parent;
}

void EntryTree::Insert(EntrySlab& entries, EntryId id) {
  Entry& entry = entries[id];
  entry.ordered_access = entry.access.load(std::memory_order_relaxed);
  entry.left = entry.right = entry.parent = kNoEntry;
  const uint32_t priority = Priority(id);

  if (newest_ == kNoEntry || entry.seen_us >= entries[newest_].seen_us) {
    // Append: the new entry takes the place of the first node up the right edge that outranks it no longer.
    EntryId parent = newest_;
    EntryId below = kNoEntry;
    while (parent != kNoEntry && Priority(parent) < priority) {
      below = parent;
      parent = entries[parent].parent;
    }
    entry.parent = parent;
    (parent == kNoEntry ? root_ : entries[parent].right) = id;
    entry.left = below;
    if (below != kNoEntry) entries[below].parent = id;
    newest_ = id;
    Pull(entries, id);
    PullUp(entries, parent, id);
    return;
  }

  EntryId parent = kNoEntry;
  EntryId node = root_;
  while (node != kNoEntry && Priority(node) >= priority) {
    parent = node;
    node = entry.seen_us < entries[node].seen_us ? entries[node].left : entries[node].right;
  }
  const bool left_side = parent != kNoEntry && entry.seen_us < entries[parent].seen_us;
  Split(entries, node, entry.seen_us, &entry.left, &entry.right);
  if (entry.left != kNoEntry) entries[entry.left].parent = id;
  if (entry.right != kNoEntry) entries[entry.right].parent = id;
  entry.parent = parent;
  if (parent == kNoEntry) {
    root_ = id;
  } else if (left_side) {
    entries[parent].left = id;
  } else {
    entries[parent].right = id;
  }
  Pull(entries, id);
  PullUp(entries, parent, id);
}

void EntryTree::Remove(EntrySlab& entries, EntryId id) {
  Entry& entry = entries[id];
  if (id == newest_) {
    newest_ = entry.parent;
    for (EntryId node = entry.left; node != kNoEntry; node = entries[node].right) newest_ = node;
  }
  const EntryId parent = entry.parent;
  ReplaceChild(entries, parent, id, Merge(entries, entry.left, entry.right));
  PullUp(entries, parent, kNoEntry);
}

void EntryTree::SetWitness(EntrySlab& entries, EntryId id, bool witness) {
  entries[id].witness = witness;
  PullUp(entries, id, id);
}

EntryId EntryTree::Oldest(const EntrySlab& entries) const {
  EntryId node = root_;
  while (node != kNoEntry && entries[node].left != kNoEntry) node = entries[node].left;
  return node;
}

// The best, by the aggregate `best`, of the entries seen up to `seen_us`.
EntryId EntryTree::BestSeenUpTo(const EntrySlab& entries, int64_t seen_us, EntryId Entry::*best, Better better) const {
  EntryId found = kNoEntry;
  for (EntryId node = root_; node != kNoEntry;) {
    const Entry& entry = entries[node];
    if (entry.seen_us > seen_us) {
      node = entry.left;
      continue;
    }
    if (entry.left != kNoEntry) found = BestOf(entries, found, entries[entry.left].*best, better);
    if (best != &Entry::deepest_witness || entry.witness) found = BestOf(entries, found, node, better);
    node = entry.right;
  }
  return found;
}

// The best, by the aggregate `best`, of the entries seen after `seen_us`. Not for deepest_witness.
EntryId EntryTree::BestSeenAfter(const EntrySlab& entries, int64_t seen_us, EntryId Entry::*best, Better better) const {
  EntryId found = kNoEntry;
  for (EntryId node = root_; node != kNoEntry;) {
    const Entry& entry = entries[node];
    if (entry.seen_us <= seen_us) {
      node = entry.right;
      continue;
    }
    if (entry.right != kNoEntry) found = BestOf(entries, found, entries[entry.right].*best, better);
    found = BestOf(entries, found, node, better);
    node = entry.left;
  }
  return found;
}

EntryTree::Victim EntryTree::FirstLru(const EntrySlab& entries, int64_t lease_us) const {
  assert(!empty());
  // All that the lease lifts shares its time; without such entries the oldest ones share theirs.
  const int64_t age_us = std::max(lease_us, entries[Oldest(entries)].seen_us);
  const EntryId id = BestSeenUpTo(entries, age_us, &Entry::deepest, Deeper);
  return {.id = id, .key = {.access = 0, .seen_us = age_us, .shallowness = ~entries[id].depth}};
}

EntryTree::Victim EntryTree::FirstLfu(EntrySlab& entries, int64_t lease_us) {
  assert(!empty());
  while (true) {
    const EntryId leased = BestSeenUpTo(entries, lease_us, &Entry::least_used, LessUsed);
    const EntryId fresh = BestSeenAfter(entries, lease_us, &Entry::least_used_oldest, LessUsedOrOlder);
    const auto key = [&](EntryId id) -> EvictionKey {
      const Entry& entry = entries[id];
      return {
          .access = entry.ordered_access, .seen_us = std::max(lease_us, entry.seen_us), .shallowness = ~entry.depth};
    };
    const bool take_leased = fresh == kNoEntry || (leased != kNoEntry && key(leased) <= key(fresh));
    const EntryId id = take_leased ? leased : fresh;
    Entry& entry = entries[id];
    const uint32_t access = entry.access.load(std::memory_order_relaxed);
    if (access == entry.ordered_access) return {.id = id, .key = key(id)};
    entry.ordered_access = access;
    PullUp(entries, id, id);
  }
}

EntryTree::Victim EntryTree::FirstWitness(const EntrySlab& entries, int64_t lease_us) const {
  if (root_ == kNoEntry || entries[root_].deepest_witness == kNoEntry) return {};
  // The oldest witness: keep left as long as there is one.
  EntryId node = root_;
  while (true) {
    const Entry& entry = entries[node];
    if (entry.left != kNoEntry && entries[entry.left].deepest_witness != kNoEntry) {
      node = entry.left;
    } else if (entry.witness) {
      break;
    } else {
      node = entry.right;
    }
  }
  const int64_t age_us = std::max(lease_us, entries[node].seen_us);
  const EntryId id = BestSeenUpTo(entries, age_us, &Entry::deepest_witness, Deeper);
  return {.id = id, .key = {.access = 0, .seen_us = age_us, .shallowness = ~entries[id].depth}};
}

bool EntryTree::CheckInvariants(const EntrySlab& entries, size_t* count) const {
  // In-order walk by links, so that the check needs no recursion.
  EntryId node = root_;
  if (node == kNoEntry) return newest_ == kNoEntry;
  if (entries[node].parent != kNoEntry) return false;
  while (entries[node].left != kNoEntry) node = entries[node].left;
  EntryId last = kNoEntry;
  while (node != kNoEntry) {
    const Entry& entry = entries[node];
    ++*count;
    if (last != kNoEntry && entries[last].seen_us > entry.seen_us) return false;
    if (entry.ordered_access > entry.access.load(std::memory_order_relaxed)) return false;
    for (EntryId child : {entry.left, entry.right}) {
      if (child == kNoEntry) continue;
      if (entries[child].parent != node || Priority(child) > Priority(node)) return false;
    }
    // Ties may be broken either way, so the best is compared by value.
    const auto holds = [&](EntryId own, EntryId Entry::*field, Better better) {
      EntryId best = own;
      if (entry.left != kNoEntry) best = BestOf(entries, best, entries[entry.left].*field, better);
      if (entry.right != kNoEntry) best = BestOf(entries, best, entries[entry.right].*field, better);
      const EntryId kept = entry.*field;
      if (best == kNoEntry || kept == kNoEntry) return best == kept;
      return !better(entries[best], entries[kept]) && !better(entries[kept], entries[best]);
    };
    if (!holds(node, &Entry::least_used, LessUsed) || !holds(node, &Entry::least_used_oldest, LessUsedOrOlder) ||
        !holds(node, &Entry::deepest, Deeper) ||
        !holds(entry.witness ? node : kNoEntry, &Entry::deepest_witness, Deeper)) {
      return false;
    }
    last = node;
    if (entry.right != kNoEntry) {
      node = entry.right;
      while (entries[node].left != kNoEntry) node = entries[node].left;
    } else {
      while (entries[node].parent != kNoEntry && entries[entries[node].parent].right == node)
        node = entries[node].parent;
      node = entries[node].parent;
    }
  }
  return last == newest_;
}

}  // namespace icache
