#include "bridge/clear_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Verdict = ClearWatch::Verdict;

MATCHER_P2(IsDue, replica, fence, "") { return arg.replica == replica && arg.fence == fence; }

class ClearWatchTest : public ::testing::Test {
 protected:
  static constexpr ReplicaId kId = 7;
  static constexpr int64_t kStamp = 1'000'000;  // in microseconds, as all times of the wire

  void SendChange() { Send(kStamp, false); }
  void SendClear(int64_t stamp) { Send(stamp, true); }
  Verdict Cleared(int64_t time, const std::string& replica = "r") {
    inferencecache::v1alpha1::CacheEvent event;
    event.set_tenant_id("t");
    event.set_model_id("m");
    event.set_replica_id(replica);
    event.set_timestamp_us(time);
    return watch_.OnCleared(event, now_);
  }
  static absl::Time Behind(int64_t time) { return absl::FromUnixMicros(time + 1); }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ClearWatch watch_;

 private:
  void Send(int64_t stamp, bool clear) {
    CacheStateUpdate update;
    update.set_tenant_id("t");
    update.set_model_id("m");
    update.set_replica_id("r");
    update.set_timestamp_us(stamp);
    update.set_clear(clear);
    watch_.OnSent(kId, update, now_);
  }
};

TEST_F(ClearWatchTest, OurOwnClearsAreNoNews) {
  SendClear(kStamp);
  SendClear(0);
  EXPECT_EQ(Cleared(kStamp), Verdict::kExpected);
  EXPECT_EQ(Cleared(kStamp + 100), Verdict::kExpected);
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, OurClockMayBeAheadOfTheDaemons) {
  SendClear(kStamp);
  SendClear(0);
  EXPECT_EQ(Cleared(kStamp - 500), Verdict::kExpected);
  EXPECT_EQ(Cleared(kStamp - 400), Verdict::kExpected);
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, SomebodyElsesClearIsAnsweredAtOnce) {
  SendClear(0);
  EXPECT_EQ(Cleared(kStamp), Verdict::kExpected);
  EXPECT_EQ(Cleared(kStamp + 5), Verdict::kForeign);
  EXPECT_EQ(Cleared(kStamp + 3), Verdict::kForeign);
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(IsDue(kId, Behind(kStamp + 5))));
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, AClearThatIsFencedOffIsToldAgainBehindTheFence) {
  SendClear(kStamp);
  SendClear(0);
  EXPECT_EQ(Cleared(kStamp + 5'000'000), Verdict::kFenced);  // the second; nothing is said of the first
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(IsDue(kId, Behind(kStamp + 5'000'000))));
  SendClear(kStamp + 5'000'001);
  EXPECT_EQ(Cleared(kStamp + 5'000'001), Verdict::kExpected);
}

TEST_F(ClearWatchTest, AReplicaThatWasNotToldOfIsNotOurs) {
  SendChange();
  EXPECT_EQ(Cleared(kStamp, "another"), Verdict::kExpected);
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, AClearOfOursThatIsNeverSpokenOfHidesNoLaterOne) {
  SendClear(kStamp);
  now_ += absl::Minutes(1);
  EXPECT_EQ(Cleared(kStamp), Verdict::kForeign);
}

TEST_F(ClearWatchTest, WhatMayHaveBeenClearedUnheardIsToldAnew) {
  SendClear(0);
  EXPECT_EQ(watch_.OnMissed("t", "another", now_), 0);
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
  EXPECT_EQ(watch_.OnMissed("t", "m", now_), 1);
  EXPECT_EQ(watch_.OnMissed("t", "m", now_), 0);
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(IsDue(kId, absl::InfinitePast())));
  EXPECT_EQ(Cleared(kStamp), Verdict::kForeign);  // ours may be among those that were missed
}

TEST_F(ClearWatchTest, WhoClearsAgainAndAgainIsAnsweredLessAndLessOften) {
  SendChange();
  int answers = 0;
  for (int second = 0; second < 3600; ++second) {
    now_ += absl::Seconds(1);
    Cleared(kStamp);
    answers += !watch_.TakeDue(now_).empty();
  }
  EXPECT_GT(answers, 10);
  EXPECT_LT(answers, 25);
  now_ += absl::Hours(1);
  Cleared(kStamp);
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(IsDue(kId, Behind(kStamp))));
}

}  // namespace
}  // namespace icache
