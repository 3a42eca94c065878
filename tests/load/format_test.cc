#include "load/format.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace icache {
namespace {

TEST(FormatTest, ThousandsAreSetApart) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1000), "1,000");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(WithCommas(-123), "-123");
  EXPECT_EQ(WithCommas(-1234), "-1,234");
  EXPECT_EQ(WithCommas(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(FormatTest, LatenciesAreGivenInMicroseconds) {
  LatencyHistogram histogram;
  histogram.Record(100);
  histogram.Record(1'234'567);
  EXPECT_EQ(FormatLatencies(histogram), "p50 0 µs, p90 1,235 µs, p99 1,235 µs, p99.9 1,235 µs, max 1,235 µs");
}

}  // namespace
}  // namespace icache
