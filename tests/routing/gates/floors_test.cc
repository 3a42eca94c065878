#include "routing/gates/floors.h"

#include <gmock/gmock.h>

#include <limits>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(PrefixGateTest, ShortRequestsAreShutOutOnlyWithoutAffinity) {
  const struct {
    int32_t tokens;
    int64_t minimum;
    bool affinity;
    PrefixGate gate;
  } kRows[] = {
      // contract/lookup.md step 4: "Below P.minimumPrefixTokens with affinityRouting Disabled: NO_HINT at once".
      {255, 256, false, PrefixGate::kShut},
      {256, 256, false, PrefixGate::kOpen},
      // "With affinity Enabled the lookup runs".
      {255, 256, true, PrefixGate::kDowngrade},
      {256, 256, true, PrefixGate::kOpen},
      {0, 0, false, PrefixGate::kOpen},
      {-1, 0, false, PrefixGate::kShut},
      {std::numeric_limits<int32_t>::max(), std::numeric_limits<int64_t>::max(), false, PrefixGate::kShut},
  };
  for (const auto& row : kRows) {
    CachePolicy policy;
    policy.minimum_prefix_tokens = row.minimum;
    policy.affinity_routing = row.affinity;
    EXPECT_EQ(PassPrefixGate(row.tokens, policy), row.gate) << row.tokens << " of " << row.minimum;
  }
}

// Rows are named "a", "b", … by their matches.
std::vector<std::string> Survivors(std::vector<ScoredReplica> rows, int64_t minimum_matched_tokens,
                                   double routing_floor_score) {
  CachePolicy policy;
  policy.minimum_matched_tokens = minimum_matched_tokens;
  policy.routing_floor_score = routing_floor_score;
  ApplyFloors(policy, &rows);
  std::vector<std::string> names;
  for (const ScoredReplica& row : rows) names.emplace_back(1, static_cast<char>('a' + row.match));
  return names;
}

ScoredReplica Row(char name, float score, int32_t matched_tokens) {
  return {.score = score,
          .hit_probability = 0,
          .matched_tokens = matched_tokens,
          .match = static_cast<uint32_t>(name - 'a')};
}

TEST(FloorsTest, RowsBelowTheMatchedFloorGo) {
  // Step 8: "drop replicas with matched_tokens < P.minimumMatchedTokens".
  EXPECT_THAT(Survivors({Row('a', 9, 64), Row('b', 8, 63), Row('c', 7, 65)}, 64, 0), ElementsAre("a", "c"));
}

TEST(FloorsTest, AFloorOfZeroIsOff) { EXPECT_THAT(Survivors({Row('a', 0, 0)}, 0, 0), ElementsAre("a")); }

TEST(FloorsTest, ALowTopScoreTakesAllRowsAlong) {
  // "top score < P.routingFloorScore → none (all rows go)".
  EXPECT_THAT(Survivors({Row('a', 0.5f, 64), Row('b', 0.4f, 64)}, 0, 0.6), IsEmpty());
}

TEST(FloorsTest, OnlyTheTopScoreMeetsTheRoutingFloor) {
  EXPECT_THAT(Survivors({Row('a', 0.7f, 64), Row('b', 0.1f, 64)}, 0, 0.6), ElementsAre("a", "b"));
}

TEST(FloorsTest, TheRoutingFloorLooksAtTheTopOfWhatIsLeft) {
  // "in this order": the best row is gone before scores are looked at.
  EXPECT_THAT(Survivors({Row('a', 0.7f, 16), Row('b', 0.1f, 64)}, 64, 0.6), IsEmpty());
}

TEST(FloorsTest, AScoreEqualToTheFloorStays) {
  for (double floor : {0.1, 0.3, 0.7, 0.9, 1e9 + 1}) {
    EXPECT_THAT(Survivors({Row('a', static_cast<float>(floor), 64)}, 0, floor), ElementsAre("a")) << floor;
  }
}

TEST(FloorsTest, NoRowsStayNoRows) { EXPECT_THAT(Survivors({}, 64, 0.1), IsEmpty()); }

}  // namespace
}  // namespace icache
