#include "icache/config/scalar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr Scalar::Style kPlain = Scalar::Style::kPlain;
constexpr Scalar::Style kQuoted = Scalar::Style::kQuoted;
constexpr Scalar::Style kFlag = Scalar::Style::kFlag;
constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

TEST(ScalarTest, IntegersAreDecimal) {
  EXPECT_EQ(ReadInteger({"0"}).value(), 0);
  EXPECT_EQ(ReadInteger({"-12"}).value(), -12);
  EXPECT_EQ(ReadInteger({"+12"}).value(), 12);
  EXPECT_EQ(ReadInteger({"9223372036854775807"}).value(), INT64_MAX);
  EXPECT_EQ(ReadInteger({"-9223372036854775808"}).value(), INT64_MIN);
  EXPECT_EQ(ReadInteger({"7", kFlag}).value(), 7);
  for (const char* text :
       {"", "-", "+", "5.0", "5.", "1e3", "0x10", "010", "0o7", "1_000", "five", " 5", "5 ", "++5"}) {
    EXPECT_THAT(ReadInteger({text}), StatusIs(kBad, ::testing::HasSubstr("must be an integer"))) << text;
  }
}

TEST(ScalarTest, IntegersBeyond64BitsAreRefused) {
  for (const char* text : {"9223372036854775808", "-9223372036854775809", "99999999999999999999999"}) {
    EXPECT_THAT(ReadInteger({text}), StatusIs(kBad, ::testing::HasSubstr("64 bits"))) << text;
  }
}

TEST(ScalarTest, QuotesMakeAStringOfANumberOrBoolean) {
  EXPECT_THAT(ReadInteger({"5", kQuoted}), StatusIs(kBad, "must be an integer, got \"5\" in quotes"));
  EXPECT_THAT(ReadNumber({"0.5", kQuoted}), StatusIs(kBad, "must be a number, got \"0.5\" in quotes"));
  EXPECT_THAT(ReadBoolean({"true", kQuoted}), StatusIs(kBad, "must be true or false, got \"true\" in quotes"));
}

TEST(ScalarTest, NumbersAreDecimal) {
  EXPECT_EQ(ReadNumber({"0.1"}).value(), 0.1);
  EXPECT_EQ(ReadNumber({"-3"}).value(), -3);
  EXPECT_EQ(ReadNumber({"+.5"}).value(), 0.5);
  EXPECT_EQ(ReadNumber({"2."}).value(), 2);
  EXPECT_EQ(ReadNumber({"1e3"}).value(), 1000);
  EXPECT_EQ(ReadNumber({"1e-999"}).value(), 0);
  EXPECT_TRUE(std::isinf(ReadNumber({"1e999"}).value()));
  EXPECT_EQ(ReadNumberOrString({"0.1", kQuoted}).value(), 0.1);
  for (const char* text : {"", ".", "inf", "-inf", ".inf", "nan", ".nan", "0x1p3", "0x10", "1_0", "1,5", " 1", "1 ",
                           "+-1", "--1", "1e", "e3", "1..2", "one"}) {
    EXPECT_THAT(ReadNumber({text}), StatusIs(kBad, ::testing::HasSubstr("must be a number"))) << text;
    EXPECT_THAT(ReadNumberOrString({text, kQuoted}), StatusIs(kBad)) << text;
  }
}

TEST(ScalarTest, BooleansAreTrueAndFalseOnly) {
  EXPECT_TRUE(ReadBoolean({"true"}).value());
  EXPECT_FALSE(ReadBoolean({"false"}).value());
  for (const char* text : {"True", "TRUE", "yes", "no", "on", "off", "y", "n", "1", "0", ""}) {
    EXPECT_THAT(ReadBoolean({text}), StatusIs(kBad)) << text;
  }
}

TEST(ScalarTest, PlainTextThatLooksLikeSomethingElseIsNoString) {
  for (const char* text : {"123",  "-1",   "1.5",   "1e3", "0x1F", "0o17", "0b1", "1_000", ".inf", "-.Inf",
                           ".NaN", "true", "False", "yes", "NO",   "on",   "off", "null",  "~",    "0123"}) {
    EXPECT_THAT(ReadString({text}), StatusIs(kBad, ::testing::HasSubstr("needs quotes"))) << text;
    EXPECT_EQ(ReadString({text, kQuoted}).value(), text);
    EXPECT_EQ(ReadString({text, kFlag}).value(), text);
  }
}

TEST(ScalarTest, OrdinaryWordsAreStrings) {
  for (const char* text : {"team-a", "30m", "0.0.0.0:9090", "1.2.3", "0xteam", "e3", "1e3x", "_", "y", "inf", "nan",
                           "v1", "a b", "-", "2001-01-01", "truest"}) {
    EXPECT_THAT(ReadString({text}), IsOk()) << text;
  }
}

TEST(ScalarTest, DurationsReadTheSameInQuotes) {
  EXPECT_EQ(ReadDuration({"30m"}).value(), absl::Minutes(30));
  EXPECT_EQ(ReadDuration({"30m", kQuoted}).value(), absl::Minutes(30));
  EXPECT_EQ(ReadDuration({"0"}).value(), absl::ZeroDuration());
  EXPECT_THAT(ReadDuration({"30"}), StatusIs(kBad));
}

}  // namespace
}  // namespace icache
