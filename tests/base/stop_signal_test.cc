// Nothing here is timed: one that waits too long makes its test hang until ctest ends it.
#include "icache/base/stop_signal.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

namespace icache {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::hours kLong{10};

TEST(StopSignalTest, WaitsNoLongerThanItShould) {
  const StopSignal stop;
  EXPECT_FALSE(stop.IsGiven());
  EXPECT_FALSE(stop.AwaitUntil(Clock::now() - kLong));
  EXPECT_FALSE(stop.AwaitUntil(Clock::now() + std::chrono::milliseconds(1)));
}

TEST(StopSignalTest, WhoComesLaterDoesNotWait) {
  StopSignal stop;
  stop.Give();
  stop.Give();
  EXPECT_TRUE(stop.IsGiven());
  EXPECT_TRUE(stop.AwaitUntil(Clock::now() + kLong));
  EXPECT_TRUE(stop.AwaitUntil(Clock::now() - kLong));
}

TEST(StopSignalTest, WakesAllWhoWait) {
  StopSignal stop;
  std::vector<std::thread> waiting;
  for (int i = 0; i < 3; ++i) waiting.emplace_back([&stop] { EXPECT_TRUE(stop.AwaitUntil(Clock::now() + kLong)); });
  stop.Give();
  for (std::thread& thread : waiting) thread.join();
}

}  // namespace
}  // namespace icache
