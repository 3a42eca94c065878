#include "bridge/clear_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ClearWatchTest : public ::testing::Test {
 protected:
  static constexpr ReplicaId kId = 7;

  void Send(bool clear) {
    CacheStateUpdate update;
    update.set_tenant_id("t");
    update.set_model_id("m");
    update.set_replica_id("r");
    update.set_clear(clear);
    watch_.OnSent(kId, update, now_);
  }
  bool Cleared(const std::string& replica = "r") {
    inferencecache::v1alpha1::CacheEvent event;
    event.set_tenant_id("t");
    event.set_model_id("m");
    event.set_replica_id(replica);
    return watch_.OnCleared(event, now_);
  }

  absl::Time now_ = absl::FromUnixSeconds(1000);
  ClearWatch watch_;
};

TEST_F(ClearWatchTest, OurOwnClearsAreNoNews) {
  Send(true);
  Send(true);
  EXPECT_FALSE(Cleared());
  EXPECT_FALSE(Cleared());
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, SomebodyElsesClearIsAnsweredAtOnce) {
  Send(true);
  EXPECT_FALSE(Cleared());
  EXPECT_TRUE(Cleared());
  EXPECT_TRUE(Cleared());
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(kId));
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, AReplicaThatWasNotToldOfIsNotOurs) {
  Send(false);
  EXPECT_FALSE(Cleared("another"));
  EXPECT_THAT(watch_.TakeDue(now_), IsEmpty());
}

TEST_F(ClearWatchTest, AClearOfOursThatIsFencedOffHidesNoLaterOne) {
  Send(true);
  now_ += absl::Minutes(1);
  EXPECT_TRUE(Cleared());
}

TEST_F(ClearWatchTest, WhoClearsAgainAndAgainIsAnsweredLessAndLessOften) {
  Send(false);
  int answers = 0;
  for (int second = 0; second < 3600; ++second) {
    now_ += absl::Seconds(1);
    Cleared();
    answers += !watch_.TakeDue(now_).empty();
  }
  EXPECT_GT(answers, 10);
  EXPECT_LT(answers, 25);
  now_ += absl::Hours(1);
  Cleared();
  EXPECT_THAT(watch_.TakeDue(now_), ElementsAre(kId));
}

}  // namespace
}  // namespace icache
