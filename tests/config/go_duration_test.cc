#include "config/go_duration.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::IsOk;
using testing::StatusIs;

struct Accepted {
  const char* text;
  int64_t nanoseconds;
};

// What Go's time.ParseDuration makes of each text.
TEST(GoDurationTest, ReadsWhatGoReads) {
  constexpr int64_t kSecond = 1'000'000'000;
  const Accepted rows[] = {
      {"0", 0},
      {"+0", 0},
      {"-0", 0},
      {"0s", 0},
      {"30m", 30 * 60 * kSecond},
      {"1h30m", 90 * 60 * kSecond},
      {"1.5s", 3 * kSecond / 2},
      {"250ms", 250'000'000},
      {"+5s", 5 * kSecond},
      {"-5s", -5 * kSecond},
      {"-1h0.5s", -3600 * kSecond - kSecond / 2},
      {"5.s", 5 * kSecond},
      {".5s", kSecond / 2},
      {"-.5s", -kSecond / 2},
      {"10ns", 10},
      {"11us", 11'000},
      {"12\u00B5s", 12'000},
      {"12\u03BCs", 12'000},
      {"1s1s", 2 * kSecond},
      {"10.5s4m", 250'500'000'000},
      {"39h9m14.425s", 140'954'425'000'000},
      {"52763797000ns", 52'763'797'000},
      {"0.3333333333333333333h", 20 * 60 * kSecond},
      {"0.100000000000000000000h", 6 * 60 * kSecond},
      {"0.9223372036854775807h", 3'320'413'933'267},
      {"0.9ns", 0},
      {"1.0000000001s", kSecond},
      {"9007199254740993ns", (int64_t{1} << 53) + 1},
      {"9223372036854775807ns", INT64_MAX},
      {"9223372036854775.807us", INT64_MAX},
      {"9223372036s854ms775us807ns", INT64_MAX},
      {"-9223372036854775808ns", INT64_MIN},
      {"-9223372036854775.808us", INT64_MIN},
      {"-2562047h47m16.854775808s", INT64_MIN},
  };
  for (const Accepted& row : rows) {
    const absl::StatusOr<absl::Duration> duration = ParseGoDuration(row.text);
    ASSERT_THAT(duration, IsOk()) << row.text;
    EXPECT_EQ(absl::ToInt64Nanoseconds(*duration), row.nanoseconds) << row.text;
  }
}

TEST(GoDurationTest, RefusesWhatGoRefuses) {
  for (const char* text :
       {"",     "3",      "-",    "s",      ".",      "-.",       ".s",     "+.s", "1d",    "1w",   "inf",
        "-inf", "+inf",   "nan",  "00",     "0.0",    "1",        "30",     " 1s", "1s ",   "1 s",  "1e3s",
        "1,5s", "0x10s",  "--1s", "+-1s",   "1s-1s",  "1S",       "1M",     "1H",  "1min",  "1sec", "1hs",
        "1m30", "1.2.3s", "\xff", "1\xc2s", "1\xb5s", "infinite", "1h 30m", "٣s",  "3000h3"}) {
    EXPECT_THAT(ParseGoDuration(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(GoDurationTest, RefusesWhatNanosecondsCannotHold) {
  for (const char* text : {"9223372036854775808ns", "9223372036854775.808us", "9223372036854ms775us808ns", "3000000h",
                           "-9223372036854775809ns", "99999999999999999999s", "18446744073709551616ns",
                           "9223372036854775807ns1ns", "2562047h47m16.854775808s", "9223372036854775807h"}) {
    EXPECT_THAT(ParseGoDuration(text), StatusIs(absl::StatusCode::kInvalidArgument, ::testing::HasSubstr("292 years")))
        << text;
  }
}

TEST(GoDurationTest, MessageShowsTheText) {
  EXPECT_THAT(ParseGoDuration("1d"), StatusIs(absl::StatusCode::kInvalidArgument,
                                              "must be a duration such as 30m, 1h30m or 250ms, got \"1d\""));
}

TEST(GoDurationTest, EmbeddedNulIsNoUnit) {
  EXPECT_THAT(ParseGoDuration(std::string_view("1s\0", 3)), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace icache
