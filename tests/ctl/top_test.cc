#include "ctl/top.h"

#include <gmock/gmock.h>

#include "ctl/text.h"

namespace icache {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TopSample SampleAt(int64_t seconds, const char* text) {
  return {.time = absl::FromUnixSeconds(seconds), .metrics = ReadMetrics(text), .state = {}, .state_problem = ""};
}

constexpr char kEarlier[] =
    "inferencecache_lookup_route_calls_total{reason_code=\"PREFIX_MATCH\"} 100\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"1e-05\"} 0\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"5e-05\"} 90\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"+Inf\"} 100\n";
constexpr char kLater[] =
    "inferencecache_lookup_route_calls_total{reason_code=\"PREFIX_MATCH\"} 120\n"
    "inferencecache_lookup_route_calls_total{reason_code=\"NO_HINT\"} 4\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"1e-05\"} 20\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"5e-05\"} 114\n"
    "inferencecache_lookup_route_latency_seconds_bucket{le=\"+Inf\"} 124\n"
    "inferencecache_index_holdings 7\n";

TEST(TopTest, RatesAndLatenciesAreThoseBetweenTwoSamples) {
  const TopFigures figures = Compare(SampleAt(10, kEarlier), SampleAt(12, kLater));
  EXPECT_EQ(figures.calls_per_s, 12);
  EXPECT_EQ(figures.calls_per_s_by_reason.at("PREFIX_MATCH"), 10);
  EXPECT_EQ(figures.calls_per_s_by_reason.at("NO_HINT"), 2);
  EXPECT_NEAR(figures.p50_us.value(), 10, 1e-9);
  EXPECT_NEAR(figures.p99_us.value(), 50, 1e-9);
  EXPECT_EQ(figures.entries, 7);
}

TEST(TopTest, ADaemonThatWasRestartedCountsAnew) {
  EXPECT_EQ(Compare(SampleAt(10, kLater), SampleAt(12, kEarlier)).calls_per_s, 50);
}

TEST(TopTest, WithoutCallsThereIsNoLatency) {
  const TopFigures figures = Compare(SampleAt(10, kLater), SampleAt(10, kLater));
  EXPECT_EQ(figures.calls_per_s, 0);
  EXPECT_EQ(figures.p50_us, std::nullopt);
}

TEST(TopTest, FiguresBeyondAllReasonAreCut) {
  const TopFigures figures = Compare(SampleAt(10, ""), SampleAt(12, "inferencecache_index_holdings 1e300\n"));
  EXPECT_EQ(figures.entries, 9'000'000'000'000'000'000);
}

TEST(TopTest, TheScreenSaysWhyItKnowsNoReplicas) {
  TopSample now = SampleAt(12, kLater);
  now.state_problem = "GetCacheState: no";
  const TopFigures figures = Compare(SampleAt(10, kEarlier), now);
  EXPECT_THAT(TopScreen(Settings(), figures, now.time, 24, {}), ::testing::Contains("GetCacheState: no"));
}

TEST(TopTest, TheScreenFitsTheTerminal) {
  TopSample now = SampleAt(12, kLater);
  for (int i = 0; i < 100; ++i) now.state.add_replicas()->set_replica_id("replica-" + std::to_string(i));
  const TopFigures figures = Compare(SampleAt(10, kEarlier), now);
  for (const size_t width : {80, 30}) {
    const std::vector<std::string> lines =
        TopScreen(Settings(), figures, now.time, 24, {.width = width, .color = false});
    EXPECT_THAT(lines, SizeIs(24));
    for (const std::string& line : lines) EXPECT_LE(DisplayWidth(line), width);
    EXPECT_THAT(lines.back(), HasSubstr("more lines"));
  }
}

}  // namespace
}  // namespace icache
