#include "load/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "load/prompt.h"
#include "tests/load/perfect_hints.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::PerfectHints;
using ::icache::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr int32_t kBlock = 512;  // one block for each id

// A request whose prompt is `ids`, whole.
TraceRequest At(int64_t time_ms, std::vector<int64_t> ids) {
  const auto tokens = static_cast<int32_t>(ids.size()) * kTraceIdTokens;
  return {.timestamp_ms = time_ms, .input_tokens = tokens, .output_tokens = 1, .hash_ids = std::move(ids)};
}

std::vector<uint64_t> ChainOf(std::vector<int64_t> ids) {
  PromptExpander expander(kBlock);
  const absl::Span<const uint64_t> chain = expander.Chain(At(0, std::move(ids)));
  return {chain.begin(), chain.end()};
}

ReplayOptions Options(size_t engines, size_t capacity_blocks) {
  return {.fleet = {.engines = engines, .capacity_blocks = capacity_blocks, .block_size = kBlock}};
}

ReplayResult Play(const ReplayOptions& options, const std::vector<TraceRequest>& trace, PerfectHints* hints) {
  auto result = Replay(options, trace, hints, [] {});
  EXPECT_THAT(result, IsOk());
  return *std::move(result);
}

// Worked by hand. The first two prompts introduce the two engines; the third then finds two equal holders with equal
// loads and goes to the lower number.
TEST(ReplayTest, FourPoliciesOnATraceWorkedByHand) {
  PerfectHints hints(2, kBlock);
  const ReplayResult result = Play(Options(2, 10), {At(0, {1, 2}), At(0, {1, 2}), At(1000, {1, 2, 3})}, &hints);
  ASSERT_THAT(result.policies, SizeIs(4));

  const PolicyResult& hinted = result.policies[0];
  EXPECT_EQ(hinted.policy, "hints");
  EXPECT_EQ(hinted.totals.prompt_tokens, 3584);
  EXPECT_EQ(hinted.totals.reused_tokens, 1024);
  EXPECT_THAT(hinted.computed_tokens, ElementsAre(1536, 1024));
  EXPECT_EQ(Imbalance(hinted.computed_tokens), 1.2);

  const PolicyResult& round_robin = result.policies[1];
  EXPECT_EQ(round_robin.policy, "round robin");
  EXPECT_THAT(round_robin.computed_tokens, ElementsAre(1536, 1024));

  // All on engine 0: the second prompt reuses one block of two (the last token is computed), the third two of three.
  const PolicyResult& best_match = result.policies[2];
  EXPECT_EQ(best_match.policy, "best match");
  EXPECT_EQ(best_match.totals.reused_tokens, 1536);
  EXPECT_THAT(best_match.computed_tokens, ElementsAre(2048, 0));
  EXPECT_EQ(Imbalance(best_match.computed_tokens), 2);

  const PolicyResult& oracle = result.policies[3];
  EXPECT_EQ(oracle.policy, "oracle");
  EXPECT_THAT(oracle.computed_tokens, hinted.computed_tokens);
}

// The third prompt finds engine 0 loaded with 2048 of 2560 tokens, above 1.5 times the mean, though it holds more.
TEST(ReplayTest, TheLoadCapSendsAPromptPastItsBestHolder) {
  PerfectHints hints(2, kBlock);
  const std::vector<TraceRequest> trace = {At(0, {1, 2, 3, 4}), At(0, {1}), At(0, {1, 2, 3})};
  EXPECT_THAT(Play(Options(2, 10), trace, &hints).policies[0].computed_tokens, ElementsAre(2048, 512 + 1024));
  ReplayOptions tolerant = Options(2, 10);
  tolerant.load_cap = 1.7;
  EXPECT_THAT(Play(tolerant, trace, &hints).policies[0].computed_tokens, ElementsAre(2048 + 512, 512));
}

TEST(ReplayTest, CountsAnswersAndRows) {
  PerfectHints hints(2, kBlock);
  const ReplayResult result = Play(Options(2, 10), {At(0, {1, 2}), At(0, {1, 2}), At(1000, {1, 2, 3})}, &hints);
  EXPECT_THAT(result.reason_codes, ElementsAre(Pair("NO_HINT", 1), Pair("PREFIX_MATCH", 2)));
  EXPECT_EQ(result.rows_checked, 3);
  EXPECT_EQ(result.rows_wrong, 0);
  EXPECT_EQ(result.held_prefixes, 3);
  EXPECT_EQ(result.round_trip_ns.count(), 3u);
}

TEST(ReplayTest, NoticesRowsThatDoNotSayWhatTheEngineHolds) {
  PerfectHints hints(1, kBlock);
  hints.misstated_tokens = 16;
  const ReplayResult result = Play(Options(1, 10), {At(0, {1}), At(0, {1}), At(0, {1})}, &hints);
  EXPECT_EQ(result.rows_wrong, 2);
}

TEST(ReplayTest, ReportsAClearThenWhatIsStoredFromTheRootAndWhatIsEvicted) {
  PerfectHints hints(1, kBlock);
  Play(Options(1, 3), {At(0, {1, 2}), At(0, {1, 2}), At(0, {1, 3}), At(0, {4, 5})}, &hints);
  ASSERT_THAT(hints.reports, SizeIs(4));  // the second prompt changes nothing and is not reported

  EXPECT_TRUE(hints.reports[0].clear);
  EXPECT_THAT(hints.reports[0].chain, IsEmpty());

  EXPECT_FALSE(hints.reports[1].clear);
  EXPECT_THAT(hints.reports[1].chain, ChainOf({1, 2}));

  EXPECT_THAT(hints.reports[2].chain, ChainOf({1, 3}));
  EXPECT_THAT(hints.reports[2].evicted, IsEmpty());

  EXPECT_THAT(hints.reports[3].chain, ChainOf({4, 5}));
  EXPECT_THAT(hints.reports[3].evicted, ElementsAre(ChainOf({1, 2})[1], ChainOf({1, 3})[1]));
}

TEST(ReplayTest, ReportsStatsAndALeaseOnceTheIntervalHasPassed) {
  PerfectHints hints(2, kBlock);
  ReplayOptions options = Options(2, 10);
  options.report_interval_ms = 10'000;
  options.engine_tokens_per_s = 100;  // 6000 in the load window of a minute
  Play(options, {At(0, {1, 2}), At(9'999, {1, 2}), At(25'000, {7})}, &hints);

  // Two clears, a report of each engine's chain, two of stats, and the third prompt's chain.
  ASSERT_THAT(hints.reports, SizeIs(7));
  for (size_t engine = 0; engine < 2; ++engine) {
    const PerfectHints::Kept& report = hints.reports[4 + engine];
    EXPECT_EQ(report.engine, engine);
    EXPECT_TRUE(report.lease);
    ASSERT_TRUE(report.stats.has_value());
    EXPECT_EQ(report.stats->held_tokens, 1024);
    EXPECT_EQ(report.stats->hit_rate, 0);
    EXPECT_DOUBLE_EQ(report.stats->pressure, 1024.0 / 6000);
  }
}

TEST(ReplayTest, HitRatesOfStatsCoverTheTimeSinceTheLastOnes) {
  PerfectHints hints(1, kBlock);
  ReplayOptions options = Options(1, 10);
  options.report_interval_ms = 10'000;
  Play(options, {At(0, {1}), At(10'000, {1, 2}), At(20'000, {1, 2, 3, 4})}, &hints);
  std::vector<double> hit_rates;
  for (const PerfectHints::Kept& report : hints.reports) {
    if (report.stats.has_value()) hit_rates.push_back(report.stats->hit_rate);
  }
  EXPECT_THAT(hit_rates, ElementsAre(0, 0.5));
}

TEST(ReplayTest, TheCurveEndsAtTheHitRate) {
  PerfectHints hints(1, kBlock);
  std::vector<TraceRequest> trace;
  for (int64_t i = 0; i < 1001; ++i) trace.push_back(At(i, {1, 2}));
  const ReplayResult result = Play(Options(1, 10), trace, &hints);
  for (const PolicyResult& policy : result.policies) {
    EXPECT_LE(policy.curve.size(), kCurvePoints + kCurvePoints / 2);
    EXPECT_EQ(policy.curve.back().time_ms, 1000);
    EXPECT_EQ(policy.curve.back().hit_rate, policy.totals.HitRate());
  }
}

TEST(ReplayTest, CallsProgressOncePerRequest) {
  PerfectHints hints(1, kBlock);
  int calls = 0;
  ASSERT_THAT(Replay(Options(1, 10), {At(0, {1}), At(0, {2})}, &hints, [&calls] { ++calls; }), IsOk());
  EXPECT_EQ(calls, 2);
}

TEST(ReplayTest, EndsWithTheErrorOfAReport) {
  PerfectHints hints(1, kBlock);
  hints.status = absl::UnavailableError("gone");
  EXPECT_THAT(Replay(Options(1, 10), {At(0, {1})}, &hints, [] {}), StatusIs(absl::StatusCode::kUnavailable, "gone"));
}

}  // namespace
}  // namespace icache
