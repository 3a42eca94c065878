#include "index/entry_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

namespace icache {
namespace {

// Entries of one replica beside a tree of them; victims are found by scanning.
class EntryTreeTest : public ::testing::Test {
 protected:
  EntryId Add(int64_t seen_us, uint32_t depth, uint32_t access = 0, bool witness = false) {
    const EntryId id = entries_.Allocate();
    Set(id, seen_us, depth, access, witness);
    tree_.Insert(entries_, id);
    ids_.push_back(id);
    return id;
  }

  void Set(EntryId id, int64_t seen_us, uint32_t depth, uint32_t access, bool witness) {
    Entry& entry = entries_[id];
    entry.seen_us = seen_us;
    entry.depth = depth;
    entry.access = access;
    entry.witness = witness;
  }

  void Drop(EntryId id) {
    tree_.Remove(entries_, id);
    entries_.Free(id);
    ids_.erase(std::find(ids_.begin(), ids_.end(), id));
  }

  EvictionKey KeyOf(EntryId id, int64_t lease_us, bool lfu) const {
    const Entry& entry = entries_[id];
    return {.access = lfu ? entry.access.load() : 0,
            .seen_us = std::max(entry.seen_us, lease_us),
            .shallowness = ~entry.depth};
  }

  // The smallest key among all entries, or among the witnesses only.
  EvictionKey Smallest(int64_t lease_us, bool lfu, bool witnesses_only = false) const {
    bool any = false;
    EvictionKey smallest;
    for (EntryId id : ids_) {
      if (witnesses_only && !entries_[id].witness) continue;
      const EvictionKey key = KeyOf(id, lease_us, lfu);
      if (!any || key < smallest) smallest = key;
      any = true;
    }
    return smallest;
  }

  void ExpectSound() {
    size_t count = 0;
    ASSERT_TRUE(tree_.CheckInvariants(entries_, &count));
    ASSERT_EQ(count, ids_.size());
  }

  EntrySlab entries_;
  EntryTree tree_;
  std::vector<EntryId> ids_;
};

TEST_F(EntryTreeTest, OldestGoesFirstAndDeepestOfEquals) {
  Add(/*seen_us=*/20, /*depth=*/9);
  const EntryId head = Add(/*seen_us=*/10, /*depth=*/0);
  const EntryId tail = Add(/*seen_us=*/10, /*depth=*/1);
  EXPECT_EQ(tree_.FirstLru(entries_, kNoTime).id, tail);
  Drop(tail);
  EXPECT_EQ(tree_.FirstLru(entries_, kNoTime).id, head);
}

TEST_F(EntryTreeTest, LeaseMakesOldEntriesEqualSoThatDepthDecides) {
  Add(/*seen_us=*/10, /*depth=*/0);
  const EntryId deep = Add(/*seen_us=*/20, /*depth=*/5);
  const EntryId fresh = Add(/*seen_us=*/40, /*depth=*/7);
  const EntryTree::Victim victim = tree_.FirstLru(entries_, /*lease_us=*/30);
  EXPECT_EQ(victim.id, deep);
  EXPECT_EQ(victim.key.seen_us, 30);
  EXPECT_EQ(tree_.FirstLru(entries_, /*lease_us=*/50).id, fresh);
}

TEST_F(EntryTreeTest, AccessCountComesBeforeAge) {
  const EntryId used = Add(/*seen_us=*/10, /*depth=*/0, /*access=*/2);
  const EntryId unused = Add(/*seen_us=*/20, /*depth=*/0, /*access=*/0);
  EXPECT_EQ(tree_.FirstLfu(entries_, kNoTime).id, unused);
  EXPECT_EQ(tree_.FirstLru(entries_, kNoTime).id, used);
}

TEST_F(EntryTreeTest, CountsThatRoseUntoldAreCorrectedBeforeAVictimIsNamed) {
  const EntryId first = Add(/*seen_us=*/10, /*depth=*/0);
  const EntryId second = Add(/*seen_us=*/20, /*depth=*/0);
  entries_[first].access = 3;
  entries_[second].access = 1;
  const EntryTree::Victim victim = tree_.FirstLfu(entries_, kNoTime);
  EXPECT_EQ(victim.id, second);
  EXPECT_EQ(victim.key.access, 1u);
  ExpectSound();
}

TEST_F(EntryTreeTest, OnlyWitnessesStandForTheirPrefix) {
  Add(/*seen_us=*/10, /*depth=*/0);
  EXPECT_EQ(tree_.FirstWitness(entries_, kNoTime).id, kNoEntry);
  const EntryId witness = Add(/*seen_us=*/20, /*depth=*/3);
  tree_.SetWitness(entries_, witness, true);
  EXPECT_EQ(tree_.FirstWitness(entries_, kNoTime).id, witness);
  tree_.SetWitness(entries_, witness, false);
  EXPECT_EQ(tree_.FirstWitness(entries_, kNoTime).id, kNoEntry);
}

TEST_F(EntryTreeTest, EqualsAScanOverRandomLives) {
  for (uint32_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
    for (int step = 0; step < 2000; ++step) {
      const uint32_t action = below(10);
      if (ids_.size() < 4 || (action < 4 && ids_.size() < 200)) {
        Add(below(50), below(8), below(3), below(3) == 0);
      } else if (action < 6) {
        Drop(ids_[below(static_cast<uint32_t>(ids_.size()))]);
      } else if (action < 7) {
        const EntryId id = ids_[below(static_cast<uint32_t>(ids_.size()))];
        tree_.Remove(entries_, id);
        Set(id, below(50), below(8), below(3), below(3) == 0);
        tree_.Insert(entries_, id);
      } else if (action < 8) {
        const EntryId id = ids_[below(static_cast<uint32_t>(ids_.size()))];
        tree_.SetWitness(entries_, id, !entries_[id].witness);
      } else {
        entries_[ids_[below(static_cast<uint32_t>(ids_.size()))]].access += 1;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSound());
      if (ids_.empty()) continue;
      const int64_t lease = below(3) == 0 ? kNoTime : below(60);
      const EntryTree::Victim lru = tree_.FirstLru(entries_, lease);
      ASSERT_EQ(lru.key, Smallest(lease, /*lfu=*/false));
      ASSERT_EQ(lru.key, KeyOf(lru.id, lease, /*lfu=*/false));
      const EntryTree::Victim lfu = tree_.FirstLfu(entries_, lease);
      ASSERT_EQ(lfu.key, Smallest(lease, /*lfu=*/true));
      ASSERT_EQ(lfu.key, KeyOf(lfu.id, lease, /*lfu=*/true));
      const EntryTree::Victim witness = tree_.FirstWitness(entries_, lease);
      const bool any = std::any_of(ids_.begin(), ids_.end(), [&](EntryId id) { return entries_[id].witness; });
      ASSERT_EQ(witness.id != kNoEntry, any);
      if (any) {
        ASSERT_EQ(witness.key, Smallest(lease, /*lfu=*/false, /*witnesses_only=*/true));
      }
    }
    while (!ids_.empty()) Drop(ids_.back());
  }
}

}  // namespace
}  // namespace icache
