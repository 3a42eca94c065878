#include "load/send_schedule.h"

#include <gtest/gtest.h>

namespace icache {
namespace {

TEST(SendScheduleTest, CallsAreEvenlySpacedFromTheStart) {
  const SendSchedule schedule(2000, 1'000'000, 10, 20);
  EXPECT_EQ(schedule.TimeOf(0), 1'000'000);
  EXPECT_EQ(schedule.TimeOf(1), 1'500'000);
  EXPECT_EQ(schedule.TimeOf(schedule.size()), 16'000'000);
}

TEST(SendScheduleTest, TheFirstCallsAreWarmUp) {
  const SendSchedule schedule(2000, 0, 10, 20);
  EXPECT_EQ(schedule.size(), 30u);
  EXPECT_FALSE(schedule.IsMeasured(9));
  EXPECT_TRUE(schedule.IsMeasured(10));
}

TEST(SendScheduleTest, DoesNotDriftOverALongRun) {
  const SendSchedule schedule(3, 0, 0, 3'000'000);
  EXPECT_NEAR(static_cast<double>(schedule.TimeOf(3'000'000)), 1e15, 1);
}

}  // namespace
}  // namespace icache
