#include "bridge/stamp_clock.h"

#include <gtest/gtest.h>

namespace icache {
namespace {

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

TEST(StampClockTest, WhatWasSoEarlierIsStampedNoEarlierThanWhatWasSaid) {
  StampClock clock;
  EXPECT_EQ(clock.At(kStart), kStart);
  EXPECT_EQ(clock.At(kStart - absl::Seconds(1)), kStart);
  EXPECT_EQ(clock.last(), kStart);
}

TEST(StampClockTest, TimeGoesOnWhereTheWallClockIsSetBack) {
  StampClock clock;
  EXPECT_EQ(clock.Now({kStart, kStart}), kStart);
  const absl::Time later = kStart + absl::Seconds(6);
  EXPECT_EQ(clock.Now({later, later - absl::Hours(1)}), later);
}

TEST(StampClockTest, TimeGoesOnFromWhereItIsRaisedTo) {
  StampClock clock;
  const absl::Time floor = kStart + absl::Hours(1);
  clock.RaiseTo(floor, {kStart, kStart});
  EXPECT_EQ(clock.last(), floor);
  const absl::Time later = kStart + absl::Seconds(6);
  EXPECT_EQ(clock.Now({later, later}), floor + absl::Seconds(6));
}

TEST(StampClockTest, WhatIsBehindItRaisesNothing) {
  StampClock clock;
  clock.Now({kStart, kStart});
  clock.RaiseTo(kStart - absl::Seconds(1), {kStart, kStart});
  EXPECT_EQ(clock.last(), kStart);
}

}  // namespace
}  // namespace icache
