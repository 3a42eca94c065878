#include "bridge/outbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Need = Outbox::Need;

class OutboxTest : public ::testing::Test {
 protected:
  static constexpr ReplicaId kA = 1;
  static constexpr ReplicaId kB = 2;

  // An update that its time tells from others.
  static Report Numbered(int number, size_t blocks = 1) {
    auto update = std::make_shared<CacheStateUpdate>();
    update->set_timestamp_us(number);
    return {std::move(update), blocks, absl::FromUnixSeconds(number)};
  }
  std::vector<int> PopAll() {
    std::vector<int> numbers;
    while (const auto next = outbox_.Pop()) numbers.push_back(static_cast<int>(next->report.update->timestamp_us()));
    return numbers;
  }

  int wakes_ = 0;
  Outbox outbox_{10, [this] { ++wakes_; }};
};

TEST_F(OutboxTest, ADaemonThatIsNotThereIsToldNothing) {
  outbox_.Push(kA, Numbered(1));
  outbox_.Restart(kA, {Numbered(2)});
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kChanges);
  EXPECT_THAT(PopAll(), IsEmpty());
}

TEST_F(OutboxTest, ADaemonThatComesIsToldEverythingThenChanges) {
  outbox_.OnConnected(false);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverythingAtFirst);
  outbox_.Push(kA, Numbered(1));
  outbox_.Restart(kA, {Numbered(2), Numbered(3)});
  outbox_.Push(kA, Numbered(4));
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kChanges);
  EXPECT_THAT(PopAll(), ElementsAre(2, 3, 4));
  EXPECT_EQ(wakes_, 2);
}

TEST_F(OutboxTest, ADaemonThatComesBackIsToldEverythingAgain) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(1)});
  outbox_.OnDisconnected();
  outbox_.Push(kA, Numbered(2));
  outbox_.OnConnected(false);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverything);
  EXPECT_THAT(PopAll(), IsEmpty());
}

TEST_F(OutboxTest, ADaemonThatLostWhatItWasToldIsOwedEverything) {
  outbox_.Owe(kA);  // it was told nothing
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(1)});
  outbox_.Restart(kB, {Numbered(2)});
  outbox_.Owe(kA);
  outbox_.Push(kA, Numbered(3));
  outbox_.Push(kB, Numbered(4));
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverything);
  EXPECT_THAT(PopAll(), ElementsAre(2, 4));
}

TEST_F(OutboxTest, WhatIsNoMoreIsOwedToADaemonThatComesBackAlone) {
  outbox_.OnConnected(false);
  outbox_.Retire(kA, {Numbered(1)});
  outbox_.Owe(kA);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kChanges);
  EXPECT_THAT(PopAll(), ElementsAre(1));
  outbox_.OnDisconnected();
  outbox_.OnConnected(false);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverything);
  outbox_.Restart(kA, {Numbered(2)});
  outbox_.Owe(kA);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverything);
}

TEST_F(OutboxTest, TheLatestFenceIsKnown) {
  EXPECT_EQ(outbox_.FenceOf(kA), absl::InfinitePast());
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(1)});
  outbox_.Owe(kA, absl::FromUnixSeconds(5));
  outbox_.Owe(kA, absl::FromUnixSeconds(3));
  outbox_.Owe(kA);
  EXPECT_EQ(outbox_.FenceOf(kA), absl::FromUnixSeconds(5));
}

TEST_F(OutboxTest, AFullQueueIsThrownAwayAndAskedForWhenTheDaemonTakesSomething) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(1, 1000)});
  outbox_.Push(kA, Numbered(2, 10));
  EXPECT_EQ(outbox_.stats().queued_blocks, 1010);
  outbox_.Push(kA, Numbered(3, 1));
  EXPECT_EQ(outbox_.stats().queued_blocks, 0);
  EXPECT_EQ(outbox_.stats().overflows, 1);
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kChanges);
  EXPECT_THAT(PopAll(), IsEmpty());
  EXPECT_EQ(outbox_.NeedOf(kA), Need::kEverything);
}

TEST_F(OutboxTest, WhatHasBeenSentMakesRoom) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {});
  for (int i = 0; i < 100; ++i) {
    outbox_.Push(kA, Numbered(i, 9));
    EXPECT_THAT(PopAll(), ElementsAre(i));
  }
}

TEST_F(OutboxTest, WhatIsToldAgainDoesNotOverflow) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {});
  outbox_.Push(kA, Numbered(1, 5));
  outbox_.PushAgain(kA, {Numbered(2, 100)});
  outbox_.Push(kA, Numbered(3, 10));
  EXPECT_THAT(PopAll(), ElementsAre(1, 2, 3));
}

TEST_F(OutboxTest, NothingIsToldAgainWhileItWaits) {
  outbox_.OnConnected(false);
  EXPECT_FALSE(outbox_.MayTellAgain(kA));
  outbox_.Restart(kA, {Numbered(1)});
  EXPECT_FALSE(outbox_.MayTellAgain(kA));
  PopAll();
  EXPECT_TRUE(outbox_.MayTellAgain(kA));
  outbox_.Push(kA, Numbered(2));
  EXPECT_TRUE(outbox_.MayTellAgain(kA));
  outbox_.PushAgain(kA, {Numbered(3)});
  EXPECT_FALSE(outbox_.MayTellAgain(kA));
}

TEST_F(OutboxTest, ReplicasTakeTurns) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(1), Numbered(2), Numbered(3)});
  outbox_.Restart(kB, {Numbered(11), Numbered(12)});
  EXPECT_THAT(PopAll(), ElementsAre(1, 11, 2, 12, 3));
}

TEST_F(OutboxTest, TheOldestWaitingChangeIsKnown) {
  outbox_.OnConnected(false);
  outbox_.Restart(kA, {Numbered(7)});
  outbox_.Restart(kB, {Numbered(5)});
  EXPECT_EQ(outbox_.stats().oldest, absl::FromUnixSeconds(5));
  PopAll();
  EXPECT_EQ(outbox_.stats().oldest, absl::InfiniteFuture());
}

}  // namespace
}  // namespace icache
