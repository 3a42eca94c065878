#include "load/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;

const std::vector<uint64_t> kChain = {1, 2, 3};

TraceRequest Prompt(int32_t tokens) { return {.timestamp_ms = 0, .input_tokens = tokens, .output_tokens = 0}; }

TEST(ImbalanceTest, IsTheLargestOverTheMean) {
  EXPECT_EQ(Imbalance({100, 200, 300}), 1.5);
  EXPECT_EQ(Imbalance({7, 7}), 1);
  EXPECT_EQ(Imbalance({0, 0, 0, 8}), 4);
  EXPECT_EQ(Imbalance({0, 0}), 1);
}

TEST(FleetTest, CountsWhatIsReusedAndComputedOnEachEngine) {
  Fleet fleet({.engines = 2, .capacity_blocks = 10, .block_size = 16});
  fleet.Serve(0, Prompt(50), kChain);  // computes 50
  fleet.Serve(0, Prompt(50), kChain);  // reuses 48, computes 2
  fleet.Serve(1, Prompt(50), kChain);  // computes 50
  EXPECT_EQ(fleet.totals().requests, 3);
  EXPECT_EQ(fleet.totals().prompt_tokens, 150);
  EXPECT_EQ(fleet.totals().reused_tokens, 48);
  EXPECT_EQ(fleet.totals().HitRate(), 0.32);
  EXPECT_EQ(fleet.totals(0).HitRate(), 0.48);
  EXPECT_THAT(fleet.ComputedTokens(), ElementsAre(52, 50));
  EXPECT_EQ(fleet.load().load(0), 52);
}

TEST(FleetTest, AnEngineComputesAtLeastTheLastToken) {
  Fleet fleet({.engines = 1, .capacity_blocks = 10, .block_size = 16});
  fleet.Serve(0, Prompt(48), kChain);
  EXPECT_EQ(fleet.Serve(0, Prompt(48), kChain).reused_tokens, 32);
}

TEST(FleetTest, SaysWhatWasStoredAndEvicted) {
  Fleet fleet({.engines = 1, .capacity_blocks = 3, .block_size = 16});
  EXPECT_TRUE(fleet.Serve(0, Prompt(50), kChain).stored);
  EXPECT_FALSE(fleet.Serve(0, Prompt(50), kChain).stored);
  const Fleet::Service service = fleet.Serve(0, Prompt(40), std::vector<uint64_t>{8, 9});
  EXPECT_TRUE(service.stored);
  EXPECT_EQ(service.held_after, 2u);
  EXPECT_THAT(service.evicted, ElementsAre(3, 2));
  EXPECT_EQ(fleet.totals().evicted_blocks, 2);
}

TEST(FleetTest, DistinctBlocksAreCountedOnceHoweverManyHoldThem) {
  Fleet fleet({.engines = 2, .capacity_blocks = 10, .block_size = 16});
  fleet.Serve(0, Prompt(50), kChain);
  fleet.Serve(1, Prompt(40), std::vector<uint64_t>{1, 9});
  EXPECT_EQ(fleet.DistinctBlocks(), 4u);
}

TEST(FleetTest, AFleetThatServedNothingHasAHitRateOfZero) { EXPECT_EQ(Fleet({.engines = 1}).totals().HitRate(), 0); }

}  // namespace
}  // namespace icache
