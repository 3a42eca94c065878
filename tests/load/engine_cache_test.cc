#include "load/engine_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "load/random.h"

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Chain = std::vector<uint64_t>;

Chain Insert(EngineCache* cache, const Chain& chain) {
  Chain evicted;
  cache->Insert(chain, &evicted);
  return evicted;
}

TEST(EngineCacheTest, HoldsWhatWasInsertedUpToTheFirstDifference) {
  EngineCache cache(10);
  EXPECT_THAT(Insert(&cache, {1, 2, 3}), IsEmpty());
  EXPECT_EQ(cache.HeldBlocks(Chain{1, 2, 3, 4}), 3u);
  EXPECT_EQ(cache.HeldBlocks(Chain{1, 20, 3}), 1u);
  EXPECT_EQ(cache.HeldBlocks(Chain{5}), 0u);
  EXPECT_EQ(cache.HeldBlocks(Chain{}), 0u);
}

TEST(EngineCacheTest, SaysHowMuchWasHeldBeforeAndIsHeldNow) {
  EngineCache cache(10);
  Insert(&cache, {1, 2});
  Chain evicted;
  const EngineCache::Insertion insertion = cache.Insert(Chain{1, 2, 3, 4}, &evicted);
  EXPECT_EQ(insertion.held_before, 2u);
  EXPECT_EQ(insertion.held_after, 4u);
  EXPECT_EQ(cache.size(), 4u);
}

TEST(EngineCacheTest, EvictsTheTailOfTheOldestRequestFirst) {
  EngineCache cache(5);
  Insert(&cache, {1, 2, 3});
  Insert(&cache, {11, 12});
  EXPECT_THAT(Insert(&cache, {21, 22}), ElementsAre(3, 2));
  EXPECT_EQ(cache.HeldBlocks(Chain{1, 2, 3}), 1u);
}

TEST(EngineCacheTest, UseMakesAWholePrefixRecent) {
  EngineCache cache(4);
  Insert(&cache, {1, 2});
  Insert(&cache, {11, 12});
  Insert(&cache, {1, 2});
  EXPECT_THAT(Insert(&cache, {21, 22}), ElementsAre(12, 11));
}

TEST(EngineCacheTest, NeverEvictsTheBlocksOfThePromptThatIsInserted) {
  EngineCache cache(3);
  Insert(&cache, {1, 2});
  Insert(&cache, {11});
  EXPECT_THAT(Insert(&cache, {1, 2, 3}), ElementsAre(11));
  EXPECT_EQ(cache.HeldBlocks(Chain{1, 2, 3}), 3u);
}

TEST(EngineCacheTest, StoresAsMuchOfALongPromptAsFits) {
  EngineCache cache(2);
  Insert(&cache, {9});
  Chain evicted;
  const EngineCache::Insertion insertion = cache.Insert(Chain{1, 2, 3}, &evicted);
  EXPECT_EQ(insertion.held_after, 2u);
  EXPECT_THAT(evicted, ElementsAre(9));
  EXPECT_EQ(cache.HeldBlocks(Chain{1, 2, 3}), 2u);
}

// The same cache as a plain list of blocks, the least recently used first.
class NaiveCache {
 public:
  explicit NaiveCache(size_t capacity) : capacity_(capacity) {}

  Chain Insert(Chain chain) {
    chain.resize(std::min(chain.size(), capacity_));
    for (const uint64_t hash : chain) std::erase(blocks_, hash);
    Chain evicted;
    while (blocks_.size() + chain.size() > capacity_) {
      evicted.push_back(blocks_.front());
      blocks_.erase(blocks_.begin());
    }
    blocks_.insert(blocks_.end(), chain.rbegin(), chain.rend());
    return evicted;
  }

  bool Holds(uint64_t hash) const { return std::find(blocks_.begin(), blocks_.end(), hash) != blocks_.end(); }
  size_t size() const { return blocks_.size(); }

 private:
  const size_t capacity_;
  Chain blocks_;
};

TEST(EngineCacheTest, AgreesWithAPlainListOnRandomPrompts) {
  SplitMix64 random(7);
  EngineCache cache(40);
  NaiveCache naive(40);
  for (int round = 0; round < 5'000; ++round) {
    Chain chain;
    uint64_t hash = 0;
    for (uint64_t length = 1 + random.Next() % 45; length > 0; --length) {
      hash = SplitMix64(hash * 3 + random.Next() % (chain.size() < 10 ? 1 : 3)).Next();
      chain.push_back(hash);
    }
    ASSERT_EQ(Insert(&cache, chain), naive.Insert(chain)) << "round " << round;
    ASSERT_EQ(cache.size(), naive.size());
    ASSERT_LE(cache.size(), cache.capacity());
    const size_t held = cache.HeldBlocks(chain);
    for (size_t i = 0; i < chain.size(); ++i) ASSERT_EQ(naive.Holds(chain[i]), i < held);
  }
  size_t visited = 0;
  cache.ForEachBlock([&](uint64_t block) {
    ++visited;
    EXPECT_TRUE(naive.Holds(block));
  });
  EXPECT_EQ(visited, naive.size());
}

}  // namespace
}  // namespace icache
