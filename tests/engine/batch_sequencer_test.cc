#include "icache/engine/batch_sequencer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/testing/simulated_engine.h"

namespace icache {
namespace {

using ::icache::testing::SimulatedBatch;
using ::icache::testing::SimulatedEngine;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Notes what it is told, in order, as short words; "2" is a batch of ts 2.
class Recorder final : public SequencerListener {
 public:
  void OnBatch(const KvBatch& batch) override { Note(std::to_string(absl::ToUnixSeconds(batch.time))); }
  void OnEngineStart(bool known_from_start) override { Note(known_from_start ? "start" : "restart"); }
  void OnLateStart() override { Note("late"); }
  void OnLoss(bool same_engine) override { Note(same_engine ? "loss" : "loss of another"); }
  void RequestReplay(uint64_t from) override { Note("ask " + std::to_string(from)); }

  std::vector<std::string> Take() { return std::exchange(notes_, {}); }

 private:
  void Note(std::string note) { notes_.push_back(std::move(note)); }
  std::vector<std::string> notes_;
};

class BatchSequencerTest : public ::testing::TestWithParam<bool> {
 protected:
  static SequencerOptions Options(bool has_replay) {
    SequencerOptions options;
    options.has_replay = has_replay;
    options.max_waiting_batches = 4;
    return options;
  }

  // A batch of ts `time`, numbered `sequence`.
  std::string Payload(double time) { return engine_.PublishNothing(time).payload; }
  void Live(uint64_t sequence, double time) { sequencer_->OnLive(sequence, Payload(time), now_); }
  void Replayed(uint64_t sequence, double time) { sequencer_->OnReplayed(sequence, Payload(time), now_); }
  void ReplayEnd() { sequencer_->OnReplayEnd(now_); }
  void Tick(absl::Duration by) {
    now_ += by;
    sequencer_->OnTick(now_);
  }
  void Use(bool has_replay) { sequencer_.emplace(Options(has_replay), &recorder_); }
  // In sync behind batch 2, of ts 2.
  void UseSynced() {
    Use(true);
    Tick(absl::ZeroDuration());
    for (int i = 0; i < 3; ++i) Replayed(i, i);
    ReplayEnd();
    recorder_.Take();
  }

  SimulatedEngine engine_{{}};
  absl::Time now_ = absl::FromUnixSeconds(1000);
  Recorder recorder_;
  std::optional<BatchSequencer> sequencer_;
};

TEST_F(BatchSequencerTest, WithoutReplayTheFirstNumberTellsWhetherTheStartWasSeen) {
  Use(false);
  Live(0, 1);
  Live(1, 2);
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "1", "2"));
  Use(false);
  Live(5, 1);
  EXPECT_THAT(recorder_.Take(), ElementsAre("late", "1"));
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, WithoutReplayAGapIsALoss) {
  Use(false);
  Live(0, 1);
  Live(3, 2);
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "1", "loss", "2"));
  EXPECT_EQ(sequencer_->counts().gaps, 1);
}

TEST_F(BatchSequencerTest, WithoutReplayAReconnectionIsALoss) {
  Use(false);
  Live(0, 1);
  sequencer_->OnReconnected(now_);
  // At once, for the engine may be idle for long.
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "1", "loss of another"));
  Live(1, 2);
  EXPECT_THAT(recorder_.Take(), ElementsAre("2"));
  Live(3, 3);
  EXPECT_THAT(recorder_.Take(), ElementsAre("loss", "3"));  // which nothing has come between
}

TEST_F(BatchSequencerTest, ASequenceThatFallsIsARestartOrADuplicate) {
  Use(false);
  Live(0, 1);
  Live(1, 2);
  Live(0, 1);
  Live(1, 2);
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "1", "2"));
  EXPECT_EQ(sequencer_->counts().duplicates, 2);
  Live(0, 3);
  Live(1, 4);
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "3", "4"));
  EXPECT_EQ(sequencer_->counts().restarts, 1);
}

TEST_F(BatchSequencerTest, AStartAsksForAllThereWas) {
  Use(true);
  Tick(absl::ZeroDuration());
  EXPECT_FALSE(sequencer_->in_sync());
  Live(2, 2);
  Replayed(0, 0);
  Replayed(1, 1);
  Replayed(2, 2);
  ReplayEnd();
  Live(3, 3);
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 0", "start", "0", "1", "2", "3"));
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, AReplayThatBeginsLaterIsALateStart) {
  Use(true);
  Tick(absl::ZeroDuration());
  Replayed(7, 1);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 0", "late", "1"));
}

TEST_F(BatchSequencerTest, AnEngineThatHasPublishedNothingIsKnownFromItsStart) {
  Use(true);
  Tick(absl::ZeroDuration());
  ReplayEnd();
  Live(0, 1);
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 0", "start", "1"));
}

TEST_F(BatchSequencerTest, AStartThatNobodyAnswersGoesOnLive) {
  Use(true);
  Tick(absl::ZeroDuration());
  Live(4, 1);
  for (int i = 0; i < 3; ++i) Tick(absl::Seconds(2));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 0", "ask 0", "ask 0", "late", "1"));
}

TEST_F(BatchSequencerTest, AGapIsFilledByReplay) {
  UseSynced();
  Live(5, 5);
  Live(6, 6);
  EXPECT_FALSE(sequencer_->in_sync());
  for (int i = 2; i < 6; ++i) Replayed(i, i);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "3", "4", "5", "6"));
  EXPECT_TRUE(sequencer_->in_sync());
  EXPECT_EQ(sequencer_->counts().losses, 0);
}

TEST_F(BatchSequencerTest, WhatIsOlderThanTheBufferIsLost) {
  UseSynced();
  Live(9, 9);
  Replayed(8, 8);
  Replayed(9, 9);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "loss", "8", "9"));
}

TEST_F(BatchSequencerTest, AHoleInAReplayIsAskedForAgain) {
  UseSynced();
  Live(6, 6);
  Replayed(2, 2);
  Replayed(3, 3);
  Replayed(5, 5);
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "3", "ask 3"));
  for (int i = 3; i < 7; ++i) Replayed(i, i);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("4", "5", "6"));
}

TEST_F(BatchSequencerTest, ANumberThatWasNeverPublishedIsLostInTheEnd) {
  UseSynced();
  Live(4, 4);
  for (int attempt = 0; attempt < 3; ++attempt) {
    Replayed(2, 2);
    Replayed(4, 4);
    ReplayEnd();
    if (attempt == 2) break;
    EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2"));
    Tick(absl::Milliseconds(299));
    EXPECT_THAT(recorder_.Take(), IsEmpty());  // not at once
    Tick(absl::Milliseconds(1));
  }
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "loss", "4"));
  EXPECT_TRUE(sequencer_->in_sync());
  EXPECT_EQ(sequencer_->waiting_batches(), 0);
}

TEST_F(BatchSequencerTest, FurtherHolesOfAReplayAreLostAtOnce) {
  UseSynced();
  Live(8, 8);
  for (int attempt = 0; attempt < 3; ++attempt) {
    for (int i = 2; i <= 8; i += 2) Replayed(i, i);
    if (attempt < 2) Tick(absl::Milliseconds(300));
  }
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "loss", "4", "loss", "6", "loss", "8"));
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, AReplayWhoseEndIsLostIsAskedForAgain) {
  UseSynced();
  Live(6, 6);
  Replayed(2, 2);
  Replayed(3, 3);
  Tick(absl::Milliseconds(300));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "3", "ask 3"));
}

TEST_F(BatchSequencerTest, AGapThatNobodyFillsIsALossInTheEnd) {
  UseSynced();
  Live(6, 6);
  for (int i = 0; i < 3; ++i) Tick(absl::Seconds(2));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "loss", "6"));
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, ALostLastBatchIsFoundWhenIdle) {
  UseSynced();
  Tick(absl::Seconds(5));
  EXPECT_TRUE(sequencer_->in_sync());
  Replayed(2, 2);
  Replayed(3, 3);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "3"));
}

TEST_F(BatchSequencerTest, WhatAnIdleReplayBringsShowsAGapUntilItEnds) {
  UseSynced();
  Tick(absl::Seconds(5));
  Replayed(2, 2);
  EXPECT_TRUE(sequencer_->in_sync());
  Replayed(3, 3);
  EXPECT_FALSE(sequencer_->in_sync());
  EXPECT_EQ(sequencer_->counts().gaps, 1);
  ReplayEnd();
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, ABatchThatComesDuringAnIdleReplayIsNoGap) {
  UseSynced();
  Tick(absl::Seconds(5));
  Live(3, 3);
  Replayed(2, 2);
  Replayed(3, 3);
  EXPECT_TRUE(sequencer_->in_sync());
  ReplayEnd();
  EXPECT_EQ(sequencer_->counts().gaps, 0);
}

TEST_F(BatchSequencerTest, AnAnswerThatRepeatsItselfForeverEnds) {
  UseSynced();
  Tick(absl::Seconds(5));
  Live(3, 3);
  for (int i = 0; i < 50; ++i) {
    Replayed(2, 2);
    Replayed(1, 1);
    Tick(absl::Milliseconds(50));
  }
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "3"));
}

TEST_F(BatchSequencerTest, AnAnswerOfOlderBatchesOnlyIsNone) {
  UseSynced();
  Live(5, 5);
  for (int i = 0; i < 130; ++i) {
    Replayed(1, 1);
    Tick(absl::Milliseconds(50));
  }
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "loss", "5"));
}

TEST_F(BatchSequencerTest, AReplayWithAnotherLastBatchIsARestart) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  Replayed(2, 7);
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "restart", "ask 0"));
  for (int i = 0; i < 3; ++i) Replayed(i, 5 + i);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "5", "6", "7"));
}

TEST_F(BatchSequencerTest, AReplayThatDoesNotReachTheLastBatchIsARestart) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "restart", "ask 0"));
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("start"));
}

TEST_F(BatchSequencerTest, AReplayThatBeginsBehindTheLastBatchMayBeAnothersAndIsALoss) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  Replayed(3, 3);
  Replayed(4, 4);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "loss of another", "3", "4"));
  EXPECT_EQ(sequencer_->counts().losses, 1);
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, AReconnectionThatNoReplayAnswersMayBeToAnotherEngine) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  for (int i = 0; i < 4; ++i) Tick(absl::Seconds(3));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "loss of another"));
}

TEST_F(BatchSequencerTest, AReplayThatKnowsTheLastBatchShowsTheSameEngine) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  Replayed(2, 2);
  Replayed(5, 5);
  for (int i = 0; i < 2; ++i) {
    Tick(absl::Seconds(1));
    Replayed(2, 2);
    Replayed(5, 5);
  }
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "loss", "5"));
}

TEST_F(BatchSequencerTest, ALastBatchThatCannotBeReadShowsNoEngine) {
  UseSynced();
  sequencer_->OnReconnected(now_);
  sequencer_->OnReplayed(2, "\xc1", now_);
  Replayed(3, 3);
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "loss of another", "3"));
}

TEST_F(BatchSequencerTest, WhatWaitsWhenTheConnectionIsLostMayBeOfTheOldEngine) {
  UseSynced();
  Live(4, 4);
  sequencer_->OnReconnected(now_);
  for (int i = 0; i < 4; ++i) Tick(absl::Seconds(3));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "ask 2", "ask 2", "loss of another"));
}

TEST_F(BatchSequencerTest, AnIdleEngineWhoseReplayHasNothingOfItIsANewOne) {
  Use(true);
  Tick(absl::ZeroDuration());
  ReplayEnd();
  Live(0, 1);
  Live(1, 2);
  recorder_.Take();
  Tick(absl::Seconds(5));
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 1", "restart", "ask 0"));
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("start"));
  Tick(absl::Seconds(5));
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 0"));  // and it goes on to be that
}

TEST_F(BatchSequencerTest, DuplicatesAreNoActivity) {
  Use(true);
  Tick(absl::ZeroDuration());
  ReplayEnd();
  for (int i = 0; i < 9; ++i) Live(i, 100 + i);
  recorder_.Take();
  // Another engine, whose clock is behind.
  for (int i = 0; i < 5; ++i) {
    Tick(absl::Seconds(1));
    if (i < 4) Live(i, i);
  }
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 8"));
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("restart", "ask 0"));
  for (int i = 0; i < 4; ++i) Replayed(i, i);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "0", "1", "2", "3"));
}

TEST_F(BatchSequencerTest, WithoutReplayALowerNumberBehindAReconnectionIsARestartWhateverItsTime) {
  Use(false);
  for (int i = 0; i < 3; ++i) Live(i, 100 + i);
  sequencer_->OnReconnected(now_);
  recorder_.Take();
  Live(0, 1);
  Live(1, 2);
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "1", "2"));
  EXPECT_EQ(sequencer_->counts().restarts, 1);
  Live(1, 2);
  EXPECT_THAT(recorder_.Take(), IsEmpty());
  EXPECT_EQ(sequencer_->counts().duplicates, 1);
}

TEST_F(BatchSequencerTest, ARestartWhoseFirstBatchesWereMissedIsReplayed) {
  UseSynced();
  Live(1, 9);
  EXPECT_THAT(recorder_.Take(), ElementsAre("restart", "ask 0"));
  Replayed(0, 8);
  Replayed(1, 9);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("start", "8", "9"));
}

TEST_F(BatchSequencerTest, WhatWaitedOfAnEngineThatIsGoneIsGone) {
  UseSynced();
  Live(5, 5);
  sequencer_->Reset();
  EXPECT_EQ(sequencer_->waiting_batches(), 0);
  for (int i = 0; i < 4; ++i) Tick(absl::Seconds(2));
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 0", "ask 0", "ask 0"));
}

TEST_F(BatchSequencerTest, WhatWaitedOfAnEngineThatHasRestartedIsNotTheNewOnes) {
  UseSynced();
  Live(5, 5);
  sequencer_->OnReconnected(now_);
  Replayed(2, 7);
  Replayed(0, 6);
  Replayed(1, 6.5);
  Replayed(2, 7);
  ReplayEnd();
  EXPECT_THAT(recorder_.Take(), ElementsAre("ask 2", "ask 2", "restart", "ask 0", "start", "6", "6", "7"));
  EXPECT_TRUE(sequencer_->in_sync());
}

TEST_F(BatchSequencerTest, ABatchThatCannotBeReadIsALoss) {
  UseSynced();
  sequencer_->OnLive(3, "?", now_);
  Live(4, 4);
  EXPECT_THAT(recorder_.Take(), ElementsAre("loss", "4"));
  EXPECT_EQ(sequencer_->counts().malformed, 1);
}

TEST_F(BatchSequencerTest, WaitingBatchesAreBounded) {
  UseSynced();
  for (int i = 5; i < 15; ++i) Live(i, i);
  EXPECT_EQ(sequencer_->waiting_batches(), 4);
  EXPECT_EQ(sequencer_->counts().overflows, 6);
}

}  // namespace
}  // namespace icache
