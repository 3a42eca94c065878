#include "icache/daemon/background_task.h"

#include <gtest/gtest.h>

#include <atomic>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"

namespace icache {
namespace {

TEST(BackgroundTaskTest, RepeatsUntilTheStepSaysEnd) {
  std::atomic<int> steps = 0;
  absl::Notification ended;
  BackgroundTask task("test", absl::Microseconds(1), [&] {
    if (++steps < 3) return BackgroundTask::Next::kRepeat;
    ended.Notify();
    return BackgroundTask::Next::kEnd;
  });
  ended.WaitForNotification();
  EXPECT_EQ(steps, 3);
}

TEST(BackgroundTaskTest, WaitsTheIntervalBeforeTheFirstStep) {
  std::atomic<bool> stepped = false;
  {
    BackgroundTask task("test", absl::InfiniteDuration(), [&] {
      stepped = true;
      return BackgroundTask::Next::kEnd;
    });
  }  // does not wait for the interval
  EXPECT_FALSE(stepped);
}

TEST(BackgroundTaskTest, DestructionWaitsForARunningStep) {
  absl::Notification begun;
  std::atomic<bool> finished = false;
  {
    BackgroundTask task("test", absl::ZeroDuration(), [&] {
      if (!begun.HasBeenNotified()) begun.Notify();
      finished = true;
      return BackgroundTask::Next::kRepeat;
    });
    begun.WaitForNotification();
  }
  EXPECT_TRUE(finished);
}

}  // namespace
}  // namespace icache
