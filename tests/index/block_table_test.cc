#include "index/block_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <unordered_map>
#include <vector>

namespace icache {
namespace {

// Blocks whose "hash in the run" is a number that a map has for their place.
class BlockTableTest : public ::testing::Test {
 protected:
  static uint64_t KeyOf(const Place& place) { return uint64_t{place.run} << 8 | place.offset; }

  struct Blocks {
    const std::unordered_map<uint64_t, uint64_t>& hashes;
    uint64_t HashOf(const Place& place) const { return hashes.at(KeyOf(place)); }
    void Prefetch(const Place&) const {}
  };

  bool Insert(uint64_t hash, const Place& place) {
    hashes_[KeyOf(place)] = hash;
    const bool added = table_.Insert(hash, place, [&](const Place& other) { return hashes_.at(KeyOf(other)) == hash; });
    table_.Balance(Blocks{hashes_});
    return added;
  }
  void Erase(uint64_t hash, const Place& place) {
    const auto offset = static_cast<uint8_t>(place.offset);
    table_.Erase(absl::MakeConstSpan(&hash, 1), place.run, absl::MakeConstSpan(&offset, 1));
    table_.Balance(Blocks{hashes_});
  }
  Place Find(uint64_t hash) const {
    return table_.Find(hash, [&](const Place& other) { return hashes_.at(KeyOf(other)) == hash; });
  }

  Arena arena_;
  Extents extents_;
  Retired retired_{&arena_, &extents_};
  BlockTable table_{&extents_, &retired_};
  std::unordered_map<uint64_t, uint64_t> hashes_;
};

TEST_F(BlockTableTest, FindsWhatIsThereAsItGrowsAndShrinks) {
  std::mt19937_64 random(1);
  std::vector<std::pair<uint64_t, Place>> held;
  uint32_t next = 1;
  // 256 segments and more tell them apart by bits that tags no longer have.
  for (const size_t target : {5'000u, 100u, 400'000u, 1'000u, 20'000u, 0u}) {
    while (held.size() != target) {
      if (held.size() < target && random() % 4 != 0) {
        held.emplace_back(random(), Place{.run = next++, .offset = static_cast<uint32_t>(random() % 256)});
        ASSERT_TRUE(Insert(held.back().first, held.back().second));
      } else if (!held.empty()) {
        std::swap(held[random() % held.size()], held.back());
        Erase(held.back().first, held.back().second);
        ASSERT_EQ(Find(held.back().first).run, 0u);
        held.pop_back();
      }
    }
    EXPECT_TRUE(table_.CheckInvariants());
    EXPECT_EQ(table_.size(), held.size());
    for (const auto& [hash, place] : held) ASSERT_EQ(KeyOf(Find(hash)), KeyOf(place));
    EXPECT_EQ(Find(random()).run, 0u);
  }
  EXPECT_EQ(table_.bytes(), 0u);
}

TEST_F(BlockTableTest, RefusesWhatIsThere) {
  EXPECT_TRUE(Insert(7, {.run = 1, .offset = 2}));
  EXPECT_FALSE(Insert(7, {.run = 3, .offset = 4}));
  EXPECT_EQ(Find(7).run, 1u);
}

TEST_F(BlockTableTest, AddsABatchWholeOrNotAtAll) {
  std::mt19937_64 random(4);
  std::vector<uint64_t> hashes(200);
  for (uint64_t& hash : hashes) hash = random();
  const auto insert = [&](uint32_t run) {
    for (uint32_t i = 0; i < hashes.size(); ++i) hashes_[KeyOf({.run = run, .offset = i})] = hashes[i];
    return table_.Insert(BlockTable::Batch(table_, hashes), run,
                         [&](uint32_t i, const Place& other) { return hashes_.at(KeyOf(other)) == hashes[i]; });
  };
  ASSERT_EQ(insert(1), hashes.size());
  EXPECT_EQ(table_.size(), hashes.size());
  for (uint64_t& hash : hashes) hash = random();
  hashes[150] = hashes[120];  // the later one is there already
  EXPECT_EQ(insert(2), 150u);
  EXPECT_EQ(table_.size(), hashes.size());
  EXPECT_TRUE(table_.CheckInvariants());
  EXPECT_EQ(Find(hashes[120]).run, 0u);
}

TEST_F(BlockTableTest, BlocksOfOneHomePassOnToTheNextBuckets) {
  // Equal but for bits that no tag has: all have one home.
  std::vector<Place> places;
  for (uint32_t i = 1; i <= 20; ++i) {
    places.push_back({.run = i, .offset = 0});
    ASSERT_TRUE(Insert(uint64_t{i} << 56 | 5, places.back()));
    ASSERT_TRUE(table_.CheckInvariants());
  }
  for (uint32_t i : {3u, 1u, 20u, 9u}) {
    Erase(uint64_t{i} << 56 | 5, places[i - 1]);
    ASSERT_TRUE(table_.CheckInvariants());
    EXPECT_EQ(Find(uint64_t{i} << 56 | 5).run, 0u);
  }
  EXPECT_EQ(Find(uint64_t{10} << 56 | 5).run, 10u);
}

TEST_F(BlockTableTest, ReadersFindWhatStaysWhileOthersComeAndGo) {
  constexpr uint32_t kStaying = 3000;
  std::mt19937_64 random(2);
  std::vector<uint64_t> hash_of(kStaying + 40'000);
  for (uint64_t& hash : hash_of) hash = random();
  // Known before the readers start, so that the table alone is shared.
  for (uint32_t i = 0; i < hash_of.size(); ++i) hashes_[KeyOf({.run = i + 1, .offset = 0})] = hash_of[i];
  const auto find = [&](uint64_t hash) {
    return table_.Find(hash, [&](const Place& other) { return hash_of[other.run - 1] == hash; });
  };
  const auto insert = [&](uint32_t i) {
    table_.Insert(hash_of[i], {.run = i + 1, .offset = 0}, [](const Place&) { return false; });
    table_.Balance(Blocks{hashes_});
  };
  for (uint32_t i = 0; i < kStaying; ++i) insert(i);
  std::atomic<bool> done{false};
  std::thread reader([&] {
    std::mt19937 local(3);
    while (!done) {
      const uint32_t i = local() % kStaying;
      ASSERT_EQ(find(hash_of[i]).run, i + 1);
    }
  });
  for (int round = 0; round < 3; ++round) {
    for (uint32_t i = kStaying; i < hash_of.size(); ++i) insert(i);
    for (uint32_t i = kStaying; i < hash_of.size(); ++i) Erase(hash_of[i], {.run = i + 1, .offset = 0});
  }
  done = true;
  reader.join();
  EXPECT_TRUE(table_.CheckInvariants());
}

}  // namespace
}  // namespace icache
