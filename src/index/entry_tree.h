// EntryTree: the entries of one replica in one scope, by age, from which the next victim is found in O(log n) under a
// lease that moves in O(1).
//
// Why a tree of its own: a lease lifts every entry older than itself to the lease's time, all at once. Sorting by
// effective last_seen would re-sort everything at each renewal. Sorted by *own* last_seen, the leased entries are a
// prefix of the order, they all share the lease's time, and among them only access count and depth still decide. So
// each node carries the best of its subtree under the orders that can be asked for, and a victim is the best of a
// prefix or of the rest.
//
// A treap over the entries themselves (links are EntryIds), ordered by seen_us, equal times in order of insertion, with
// the hash of the id as heap priority. Appending the newest entry, the common case, is O(1) amortized.
//
// Access counts rise without the tree being told. Each entry is ordered by `ordered_access`, a lower bound; FirstLfu
// corrects the entries it would choose until it finds one whose count is true. Each correction is paid for by a credit.
//
// Not thread-safe.
#pragma once

#include "index/entry.h"

namespace icache {

class EntryTree {
 public:
  struct Victim {
    EntryId id = kNoEntry;
    EvictionKey key;
  };

  bool empty() const { return root_ == kNoEntry; }

  // Adds an entry that is in no tree, by its seen_us, depth, access and witness.
  void Insert(EntrySlab& entries, EntryId id);
  // Takes an entry out, so that its fields may change.
  void Remove(EntrySlab& entries, EntryId id);
  // Changes whether an entry of this tree is a witness.
  void SetWitness(EntrySlab& entries, EntryId id, bool witness);

  // The entry with the smallest seen_us, or kNoEntry. O(log n).
  EntryId Oldest(const EntrySlab& entries) const;

  // The first to be evicted when entries seen at `lease_us` or before count as seen then: by (age, deepest first).
  // Requires !empty().
  Victim FirstLru(const EntrySlab& entries, int64_t lease_us) const;
  // The same by (access count, age, deepest first). Requires !empty().
  Victim FirstLfu(EntrySlab& entries, int64_t lease_us);
  // The same as FirstLru among the witnesses; id kNoEntry when there are none.
  Victim FirstWitness(const EntrySlab& entries, int64_t lease_us) const;

  // For tests: order, heap, links, aggregates. Adds the number of entries to `count`.
  bool CheckInvariants(const EntrySlab& entries, size_t* count) const;

 private:
  using Better = bool (*)(const Entry& a, const Entry& b);

  static bool Pull(EntrySlab& entries, EntryId id);
  static void PullUp(EntrySlab& entries, EntryId id, EntryId changed);
  static EntryId Merge(EntrySlab& entries, EntryId left, EntryId right);
  static void Split(EntrySlab& entries, EntryId node, int64_t seen_us, EntryId* left, EntryId* right);
  void ReplaceChild(EntrySlab& entries, EntryId parent, EntryId child, EntryId replacement);
  EntryId BestSeenUpTo(const EntrySlab& entries, int64_t seen_us, EntryId Entry::*best, Better better) const;
  EntryId BestSeenAfter(const EntrySlab& entries, int64_t seen_us, EntryId Entry::*best, Better better) const;

  EntryId root_ = kNoEntry;
  EntryId newest_ = kNoEntry;  // the last in order
};

}  // namespace icache
