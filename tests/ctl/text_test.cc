#include "ctl/text.h"

#include <gtest/gtest.h>

#include <limits>

namespace icache {
namespace {

TEST(TextTest, HexReadsBackAsTheBytes) {
  const std::string bytes("\x00\x7f\xff", 3);
  EXPECT_EQ(ToHex(bytes), "007fff");
  EXPECT_EQ(FromHex("007FfF"), bytes);
  EXPECT_EQ(FromHex("0"), std::nullopt);
  EXPECT_EQ(FromHex("0g"), std::nullopt);
}

TEST(TextTest, WhatATerminalWouldObeyIsShown) {
  EXPECT_EQ(Visible("a\x1b[2J\n"), "a\\x1b[2J\\x0a");
  EXPECT_EQ(Visible("\xc2\x9b"), "\\xc2\\x9b");  // the CSI of Latin-1
  EXPECT_EQ(Visible("\xff"), "\\xff");
  EXPECT_EQ(Visible("größe"), "größe");
}

TEST(TextTest, NumbersAreGroupedByThree) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(-1234567), "-1,234,567");
  EXPECT_EQ(WithCommas(std::numeric_limits<int64_t>::min()), "-9,223,372,036,854,775,808");
}

TEST(TextTest, AgesHaveTheirTwoLargestUnits) {
  EXPECT_EQ(AgeText(absl::ZeroDuration()), "0s");
  EXPECT_EQ(AgeText(absl::Milliseconds(250)), "250ms");
  EXPECT_EQ(AgeText(absl::Seconds(59)), "59s");
  EXPECT_EQ(AgeText(absl::Seconds(3599)), "59m59s");
  EXPECT_EQ(AgeText(absl::Minutes(200)), "3h20m");
  EXPECT_EQ(AgeText(absl::Hours(50)), "2d2h");
}

TEST(TextTest, BytesHaveABinaryUnit) {
  EXPECT_EQ(BytesText(512), "512 B");
  EXPECT_EQ(BytesText(1536), "1.5 KiB");
  EXPECT_EQ(BytesText(32.0 * (1 << 30)), "32.0 GiB");
}

}  // namespace
}  // namespace icache
