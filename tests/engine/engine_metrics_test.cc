#include "icache/engine/engine_metrics.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::StatusIs;

constexpr char kLoad[] =
    "# HELP vllm:num_requests_running Requests.\n"
    "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3.0\n"
    "vllm:num_requests_waiting{engine=\"0\",model_name=\"m\"} 1.0\n";

EngineLoad Read(const std::string& page, EngineKind kind = EngineKind::kVllm) {
  const absl::StatusOr<EngineLoad> load = ReadEngineLoad(page, kind, "m");
  EXPECT_TRUE(load.ok()) << load.status();
  return load.value_or(EngineLoad());
}

TEST(EngineMetricsTest, ReadsVllm) {
  const EngineLoad load = Read(std::string(kLoad) +
                               "vllm:kv_cache_usage_perc{model_name=\"m\"} 0.25\n"
                               "vllm:prefix_cache_hits_total{model_name=\"m\"} 1e3 1700000000\n"
                               "vllm:prefix_cache_queries_total{model_name=\"m\"} 4000\n"
                               "vllm:external_prefix_cache_hits_total{model_name=\"m\"} 5\n"
                               "vllm:external_prefix_cache_queries_total{model_name=\"m\"} 6\n");
  EXPECT_EQ(load.running, 3);
  EXPECT_EQ(load.waiting, 1);
  EXPECT_EQ(load.usage, 0.25);
  EXPECT_EQ(load.hits, 1000);
  EXPECT_EQ(load.queries, 4000);
  EXPECT_EQ(load.t2_hits, 5);
  EXPECT_EQ(load.t2_queries, 6);
}

TEST(EngineMetricsTest, ReadsTheOlderNameOfTheUsage) {
  EXPECT_EQ(Read(std::string(kLoad) + "vllm:gpu_cache_usage_perc 0.5\n").usage, 0.5);
}

TEST(EngineMetricsTest, ReadsSglang) {
  const EngineLoad load = Read(
      "sglang:num_running_reqs{model_name=\"m\"} 2\nsglang:num_queue_reqs 7\nsglang:token_usage 0.5\n"
      "sglang:cache_hit_rate 0.75\n",
      EngineKind::kSglang);
  EXPECT_EQ(load.running, 2);
  EXPECT_EQ(load.waiting, 7);
  EXPECT_EQ(load.usage, 0.5);
  EXPECT_EQ(load.hit_rate, 0.75);
}

TEST(EngineMetricsTest, OfSeveralModelsTheConfiguredOneCounts) {
  EXPECT_EQ(Read(std::string(kLoad) + "vllm:num_requests_running{model_name=\"other\"} 50\n").running, 3);
}

TEST(EngineMetricsTest, ASingleModelCountsWhateverItsName) {
  EXPECT_EQ(
      Read("vllm:num_requests_running{model_name=\"x\"} 5\nvllm:num_requests_waiting{model_name=\"x\"} 0\n").running,
      5);
}

TEST(EngineMetricsTest, RanksAddUpAndRatiosAreTheLargest) {
  const EngineLoad load = Read(std::string(kLoad) + "vllm:num_requests_running{engine=\"1\",model_name=\"m\"} 4\n" +
                               "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"m\"} 0.25\n" +
                               "vllm:kv_cache_usage_perc{engine=\"1\",model_name=\"m\"} 0.5\n");
  EXPECT_EQ(load.running, 7);
  EXPECT_EQ(load.usage, 0.5);
}

TEST(EngineMetricsTest, LabelsMayHoldAnything) {
  EXPECT_EQ(
      Read("vllm:num_requests_running{a=\"} 9\\\"\\n,\", model_name=\"m\",} 3\nvllm:num_requests_waiting 0\n").running,
      3);
}

TEST(EngineMetricsTest, AScrapeWithoutLoadFails) {
  for (const char* page : {"", "vllm:num_requests_running 1\n", "<html>", "vllm:num_requests_running{",
                           "vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n",
                           "vllm:num_requests_running 1\nvllm:num_requests_waiting 1\nvllm:kv_cache_usage_perc NaN\n",
                           "vllm:num_requests_running 1\nvllm:num_requests_waiting +Inf\n"}) {
    EXPECT_THAT(ReadEngineLoad(page, EngineKind::kVllm, "m"), StatusIs(absl::StatusCode::kUnavailable)) << page;
  }
}

TEST(EngineStatsReaderTest, TheHitRateIsThatBetweenScrapes) {
  EngineStatsReader reader(0, 0);
  EngineLoad load;
  load.hits = 100;
  load.queries = 200;
  EXPECT_EQ(reader.Read(load).hit_rate, 0);
  load.hits = 130;
  load.queries = 240;
  EXPECT_FLOAT_EQ(reader.Read(load).hit_rate, 0.75);
  EXPECT_FLOAT_EQ(reader.Read(load).hit_rate, 0.75);  // no query since
  load.hits = 5;
  load.queries = 10;
  EXPECT_EQ(reader.Read(load).hit_rate, 0);  // a counter fell
  load.hits = 6;
  load.queries = 12;
  EXPECT_FLOAT_EQ(reader.Read(load).hit_rate, 0.5);
}

TEST(EngineStatsReaderTest, AHitRateIsAShareWhateverTheEngineSays) {
  EngineStatsReader reader(0, 0);
  EngineLoad load;
  const auto read = [&](double hit_rate) {
    load.hit_rate = hit_rate;
    return reader.Read(load).hit_rate;
  };
  EXPECT_EQ(read(1e300), 1);
  EXPECT_EQ(read(-1), 0);
  EXPECT_EQ(read(std::numeric_limits<double>::infinity()), 1);
  EXPECT_EQ(read(std::numeric_limits<double>::quiet_NaN()), 0);
}

TEST(EngineStatsReaderTest, PressureIsTheShareOfTheConcurrency) {
  EngineLoad load;
  load.running = 6;
  load.waiting = 2;
  load.usage = 0.5;
  EXPECT_EQ(EngineStatsReader(1000, 0).Read(load).pressure, 0);
  EXPECT_FLOAT_EQ(EngineStatsReader(1000, 16).Read(load).pressure, 0.5);
  EXPECT_EQ(EngineStatsReader(1000, 4).Read(load).pressure, 1);
  EXPECT_EQ(EngineStatsReader(1000, 4).Read(load).cache_memory_bytes, 500);
}

}  // namespace
}  // namespace icache
