#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "icache/telemetry/metrics.h"
#include "tests/telemetry/fake_index.h"
#include "tests/telemetry/page_reader.h"
#include "tests/testing/fake_clock.h"

namespace icache {
namespace {

using ::icache::testing::FakeClock;
using ::icache::testing::FakeIndex;
using ::icache::testing::PageReader;

constexpr int kThreads = 16;
constexpr int kCallsPerThread = 5'000;

// Half of the models are held, a few more than can have series; threads scrape while others count.
TEST(MetricsConcurrencyTest, EveryCallOfSixteenThreadsCountsExactlyOnce) {
  FakeClock clock;
  FakeIndex index;
  std::vector<std::string> names;
  for (int i = 0; i < 2'200; ++i) {
    names.push_back("model-" + std::to_string(i));
    if (i % 2 == 0) index.models[names.back()] = {.prefixes = 1, .stats_rows = 0, .last_applied = clock.Now()};
  }
  Metrics metrics(&index, &clock);

  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      ApplyResult applied;
      applied.applied = true;
      applied.entries_stored = 2;
      applied.dropped.Add(DropReason::kMalformedEntry);
      for (int i = 0; i < kCallsPerThread; ++i) {
        const std::string& model = names[static_cast<size_t>(i * kThreads + t) % names.size()];
        LookupOutcome outcome;
        outcome.model_id = model;
        outcome.model_held = index.HoldsModel(model);
        outcome.reason = ReasonCode::kPrefixMatch;
        outcome.hint_used = true;
        outcome.latency = absl::Microseconds(i % 100);
        outcome.matched_tokens = 16;
        metrics.OnLookup(outcome);
        if (i % 10 == 0) metrics.OnUpdate(model, applied);
        if (i % 10 == 0) metrics.OnEvent(CacheEventType::kReplicaUpdated, applied);
        if (i == kCallsPerThread / 2 && t % 8 == 0) metrics.Render();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  const PageReader page(metrics.Render());
  const double calls = kThreads * kCallsPerThread;
  EXPECT_TRUE(page.problems().empty());
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_calls_total"), calls);
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_latency_seconds_count"), calls);
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_matched_tokens_count"), calls);
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_matched_tokens_sum"), 16 * calls);
  EXPECT_EQ(page.Sum("inferencecache_ingest_updates_total"), calls / 10);
  EXPECT_EQ(page.Sum("inferencecache_ingest_entries_total"), 2 * calls / 10);
  EXPECT_EQ(page.Sum("inferencecache_events_total"), calls / 10);
  EXPECT_EQ(page.Sum("inferencecache_ingest_dropped_total"), 2 * calls / 10);
  EXPECT_EQ(page.LabelValues("inferencecache_lookup_route_calls_total", "model").size(), Metrics::kMaxModels + 1);
}

// Models drain and are forgotten while lookups bring them back.
TEST(MetricsConcurrencyTest, ForgettingModelsWhileCountingKeepsTheBounds) {
  constexpr char kCalls[] = "inferencecache_lookup_route_calls_total";
  FakeClock clock;
  FakeIndex index;
  Metrics metrics(&index, &clock);
  constexpr int kCounters = 4;
  std::atomic<int> counting = kCounters;
  std::vector<std::thread> threads;
  for (int t = 0; t < kCounters; ++t) {
    threads.emplace_back([&, t] {
      for (int i = t; i < 20'000; ++i) {
        const std::string model = "model-" + std::to_string(i % 1'500);
        LookupOutcome outcome;
        outcome.model_id = model;
        outcome.model_held = true;
        metrics.OnLookup(outcome);
      }
      --counting;
    });
  }
  while (counting.load() > 0) {
    // The index itself says that nothing is held, so all that the threads brought in drains.
    metrics.Sweep();
    clock.Advance(absl::Hours(1));
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(PageReader(metrics.Render()).LabelValues(kCalls, "model").size(), Metrics::kMaxModels + 1);

  metrics.Sweep();
  clock.Advance(absl::Hours(1));
  const std::set<std::string> models = PageReader(metrics.Render()).LabelValues(kCalls, "model");
  EXPECT_TRUE(models.empty() || models == std::set<std::string>{"other"});
}

}  // namespace
}  // namespace icache
