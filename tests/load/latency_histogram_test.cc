#include "load/latency_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "load/random.h"

namespace icache {
namespace {

// The exact answer: the value of rank ceil(quantile * count), and at least 1.
int64_t ExactQuantile(std::vector<int64_t> values, double quantile) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  return values[std::max<size_t>(rank, 1) - 1];
}

TEST(LatencyHistogramTest, IsZeroWhenNothingWasRecorded) {
  const LatencyHistogram histogram;
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.max(), 0);
  EXPECT_EQ(histogram.Mean(), 0);
}

TEST(LatencyHistogramTest, IsExactForSmallValues) {
  LatencyHistogram histogram;
  for (int64_t value = 1; value <= 100; ++value) histogram.Record(value);
  EXPECT_EQ(histogram.Quantile(0), 1);
  EXPECT_EQ(histogram.Quantile(0.5), 50);
  EXPECT_EQ(histogram.Quantile(0.99), 99);
  EXPECT_EQ(histogram.Quantile(1), 100);
  EXPECT_EQ(histogram.Mean(), 50.5);
}

TEST(LatencyHistogramTest, IsNeverBelowTheTruthAndLessThanOnePercentAbove) {
  SplitMix64 random(3);
  std::vector<int64_t> values;
  LatencyHistogram histogram;
  for (int i = 0; i < 20'000; ++i) {
    values.push_back(static_cast<int64_t>(random.Next() >> (1 + random.Next() % 62)));  // of every magnitude
    histogram.Record(values.back());
  }
  for (const double quantile : {0.0, 0.001, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999, 1.0}) {
    const int64_t exact = ExactQuantile(values, quantile);
    const int64_t answer = histogram.Quantile(quantile);
    EXPECT_GE(answer, exact) << quantile;
    EXPECT_LE(static_cast<double>(answer), static_cast<double>(exact) * 1.01) << quantile;
  }
}

TEST(LatencyHistogramTest, KeepsTheLargestValueAndTakesNegativeOnesAsZero) {
  LatencyHistogram histogram;
  histogram.Record(-5);
  histogram.Record(std::numeric_limits<int64_t>::max());
  EXPECT_EQ(histogram.Quantile(0.5), 0);
  EXPECT_EQ(histogram.Quantile(1), std::numeric_limits<int64_t>::max());
}

TEST(LatencyHistogramTest, MergingIsRecordingEverythingInOne) {
  LatencyHistogram one, other, both;
  for (int64_t value = 0; value < 1000; ++value) {
    (value % 3 == 0 ? one : other).Record(value * value);
    both.Record(value * value);
  }
  one.Merge(other);
  EXPECT_EQ(one.count(), both.count());
  EXPECT_EQ(one.max(), both.max());
  EXPECT_EQ(one.Mean(), both.Mean());
  for (const double quantile : {0.1, 0.5, 0.9, 0.999}) EXPECT_EQ(one.Quantile(quantile), both.Quantile(quantile));
}

}  // namespace
}  // namespace icache
