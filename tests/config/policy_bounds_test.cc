#include "config/policy_bounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Lines(const std::vector<BoundsProblem>& problems) {
  std::vector<std::string> lines;
  for (const BoundsProblem& problem : problems) lines.push_back(std::string(problem.field) + ": " + problem.message);
  return lines;
}

TEST(PolicyBoundsTest, DefaultsAreInBounds) { EXPECT_THAT(CheckPolicy({}), IsEmpty()); }

TEST(PolicyBoundsTest, LeastValuesAreInBounds) {
  EXPECT_THAT(CheckPolicy({.eviction_ttl = absl::Nanoseconds(1),
                           .minimum_prefix_tokens = 0,
                           .minimum_matched_tokens = 0,
                           .routing_floor_score = 0,
                           .lookup_timeout_ms = -1}),
              IsEmpty());
}

TEST(PolicyBoundsTest, NamesEveryFieldOutOfBounds) {
  EXPECT_THAT(Lines(CheckPolicy({.eviction_ttl = absl::ZeroDuration(),
                                 .minimum_prefix_tokens = -1,
                                 .minimum_matched_tokens = -2,
                                 .routing_floor_score = -0.5,
                                 .enable_chain_matching = false,
                                 .require_chain = true})),
              ElementsAre("spec.evictionTTL: must be > 0, got 0", "spec.minimumPrefixTokens: must be >= 0, got -1",
                          "spec.minimumMatchedTokens: must be >= 0, got -2",
                          "spec.routingFloorScore: must be finite and >= 0, got -0.5",
                          "spec.strategy.requireChain: needs enableChainMatching: true"));
}

TEST(PolicyBoundsTest, FloorMustBeFinite) {
  EXPECT_EQ(CheckPolicy({.eviction_ttl = std::nullopt, .routing_floor_score = std::numeric_limits<double>::infinity()})
                .size(),
            1u);
  EXPECT_EQ(CheckPolicy({.eviction_ttl = std::nullopt, .routing_floor_score = std::numeric_limits<double>::quiet_NaN()})
                .size(),
            1u);
}

TEST(PolicyBoundsTest, QuotaMayBeZeroOrAbsent) {
  EXPECT_THAT(CheckQuota(std::nullopt), IsEmpty());
  EXPECT_THAT(CheckQuota(0), IsEmpty());
  EXPECT_THAT(Lines(CheckQuota(-1)), ElementsAre("spec.quota.maxIndexEntries: must be >= 0, got -1"));
}

}  // namespace
}  // namespace icache
