#include "index/segmented_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <random>

#include "absl/container/flat_hash_map.h"

namespace icache {
namespace {

using Map = SegmentedMap<absl::flat_hash_map<uint64_t, uint32_t>>;

TEST(SegmentedMapTest, FindsWhatWasInsertedThroughGrowthAndShrinking) {
  Map map;
  constexpr uint32_t kKeys = 100'000;
  for (uint32_t i = 0; i < kKeys; ++i) map.Insert(uint64_t{i} << 20, i);
  ASSERT_EQ(map.size(), kKeys);
  for (uint32_t i = 0; i < kKeys; ++i) ASSERT_EQ(map.Find(uint64_t{i} << 20), i);
  EXPECT_EQ(map.Find(uint64_t{kKeys} << 20), Map::kNone);
  for (uint32_t i = 0; i < kKeys; ++i) {
    map.Erase(uint64_t{i} << 20);
    ASSERT_EQ(map.Find(uint64_t{i} << 20), Map::kNone);
    if (i + 1 < kKeys) {
      ASSERT_EQ(map.Find(uint64_t{kKeys - 1} << 20), kKeys - 1);
    }
  }
  EXPECT_EQ(map.size(), 0u);
}

TEST(SegmentedMapTest, EqualsAnOrderedMapOverARandomLife) {
  std::mt19937_64 random(7);
  Map map;
  std::map<uint64_t, uint32_t> model;
  for (uint32_t step = 0; step < 400'000; ++step) {
    const uint64_t key = random() % 60'000;
    // Grows for the first half, shrinks in the second.
    const bool add = random() % 4 < (step < 200'000 ? 3 : 1);
    const auto found = model.find(key);
    ASSERT_EQ(map.Find(key), found == model.end() ? Map::kNone : found->second);
    if (add && found == model.end()) {
      map.Insert(key, step);
      model.emplace(key, step);
    } else if (!add && found != model.end()) {
      map.Erase(key);
      model.erase(found);
    }
  }
  size_t visited = 0;
  map.ForEach([&](uint64_t key, uint32_t id) {
    ++visited;
    ASSERT_EQ(model.at(key), id);
  });
  EXPECT_EQ(visited, model.size());
  EXPECT_EQ(map.size(), model.size());
}

}  // namespace
}  // namespace icache
