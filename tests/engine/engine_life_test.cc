// An engine's random life, seen through an EngineStream whose transport loses, repeats and replays.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "icache/engine/engine_stream.h"
#include "tests/engine/mirror_sink.h"
#include "tests/testing/simulated_engine.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using Json = nlohmann::json;
using ::icache::testing::HeldContents;
using ::icache::testing::IsOk;
using ::icache::testing::MirrorSink;
using ::icache::testing::SimulatedBatch;
using ::icache::testing::SimulatedEngine;
using ::icache::testing::SimulatedEngineOptions;

struct Transport {
  double loss = 0;
  double repeats = 0;
  size_t replay_buffer = 0;  // batches; 0 = no replay
};

// A moment at which both clocks agree.
Moment At(absl::Time time) { return {time, time}; }

// One engine, one stream, and a daemon that is told what the stream says.
class Life {
 public:
  Life(const SimulatedEngineOptions& engine, const Transport& transport)
      : transport_(transport), random_(engine.seed + 99), engine_(engine) {
    options_.sequencer.has_replay = transport.replay_buffer > 0;
    options_.ledger.adapters[SimulatedEngine::kMappedLoraId] = SimulatedEngine::kMappedLora;
    options_.ledger.ttl = absl::Seconds(60);
    StartBridge();
  }

  void StartBridge() {
    asked_.reset();
    stream_ = std::make_unique<EngineStream>(options_, [this](uint64_t from) { asked_ = from; });
    Tick();
  }

  void Publish() {
    now_ += absl::Milliseconds(10);
    Send(engine_.Publish(Seconds()));
  }
  void Restart() {
    engine_.Restart();
    buffer_.clear();
  }
  // Publishes what cannot be lost, so that every gap shows, and lets the stream settle.
  void Settle() {
    now_ += absl::Milliseconds(10);
    const double loss = std::exchange(transport_.loss, 0);
    Send(engine_.PublishNothing(Seconds()));
    transport_.loss = loss;
    Tick();
  }
  void Pass(absl::Duration time) {
    now_ += time;
    Tick();
  }

  const HeldContents& Told() const { return daemon_.held; }
  HeldContents Held() const { return engine_.Held(); }
  const SimulatedEngine& engine() const { return engine_; }
  EngineStream& stream() { return *stream_; }
  EngineReplica& replica() { return *stream_->replicas().begin()->second; }

 private:
  double Seconds() const { return absl::ToDoubleSeconds(now_ - absl::UnixEpoch()); }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }

  void Send(SimulatedBatch batch) {
    if (batch.sequence == 0) buffer_.clear();
    if (!Chance(transport_.loss)) {
      stream_->OnLive(batch.sequence, batch.payload, At(now_));
      if (Chance(transport_.repeats)) stream_->OnLive(batch.sequence, batch.payload, At(now_));
    }
    buffer_.push_back(std::move(batch));
    if (buffer_.size() > transport_.replay_buffer) buffer_.pop_front();
    Answer();
    Report();
  }
  void Answer() {
    while (transport_.replay_buffer > 0 && asked_.has_value()) {
      const uint64_t from = *std::exchange(asked_, std::nullopt);
      for (const SimulatedBatch& batch : buffer_) {
        if (batch.sequence >= from && !asked_) stream_->OnReplayed(batch.sequence, batch.payload, At(now_));
      }
      if (!asked_) stream_->OnReplayEnd(At(now_));
    }
  }
  void Tick() {
    stream_->OnTick(At(now_));
    Answer();
    Report();
  }
  void Report() {
    for (const auto& [rank, replica] : stream_->replicas()) {
      if (replica->TakeVoid()) {
        daemon_.held.clear();
        replica->ledger.ReportAll(&daemon_);
      } else {
        replica->ledger.Drain(&daemon_);
      }
    }
  }

  Transport transport_;
  StreamOptions options_;
  std::mt19937_64 random_;
  SimulatedEngine engine_;
  std::unique_ptr<EngineStream> stream_;
  std::deque<SimulatedBatch> buffer_;
  std::optional<uint64_t> asked_;
  MirrorSink daemon_;
  absl::Time now_ = absl::FromUnixSeconds(1'700'000'000);
};

void ExpectSound(Life& life) { ASSERT_THAT(life.replica().ledger.CheckInvariants(), IsOk()); }

TEST(EngineLifeTest, WithoutLossTheClaimsAreExact) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimulatedEngineOptions options{.seed = seed, .bytes_hashes = seed % 2 == 0, .sends_root = seed % 3 == 0};
    options.restarts = 0.002;
    Life life(options, {.repeats = 0.02});
    for (int i = 0; i < 3000; ++i) {
      life.Publish();
      if (i % 100 == 0) {
        ExpectSound(life);
        ASSERT_EQ(life.Told(), life.Held()) << "seed " << seed << " batch " << i;
      }
    }
  }
}

TEST(EngineLifeTest, WithReplayLossesLeaveNoTrace) {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    SimulatedEngineOptions options{.seed = seed, .sends_root = seed % 2 == 0};
    options.restarts = 0.002;
    Life life(options, {.loss = 0.05, .repeats = 0.02, .replay_buffer = 100'000});
    for (int i = 0; i < 3000; ++i) {
      life.Publish();
      if (i % 100 != 99) continue;
      life.Settle();
      ExpectSound(life);
      ASSERT_EQ(life.Told(), life.Held()) << "seed " << seed << " batch " << i;
    }
    EXPECT_EQ(life.stream().sequencer().counts().losses, 0);
    EXPECT_GT(life.stream().sequencer().counts().replayed, 0);
  }
}

TEST(EngineLifeTest, ANewBridgeReadsThePastFromReplay) {
  Life life({.seed = 4}, {.loss = 0.01, .replay_buffer = 100'000});
  for (int round = 0; round < 5; ++round) {
    for (int i = 0; i < 500; ++i) life.Publish();
    life.StartBridge();
    EXPECT_EQ(life.Told(), life.Held());
  }
}

// Whether every claim is true.
bool IsWithin(const HeldContents& claims, const HeldContents& truth) {
  for (const auto& [key, claim] : claims) {
    if (!truth.contains(key)) return false;
  }
  return true;
}

TEST(EngineLifeTest, ATtlAfterALossNothingWrongIsClaimed) {
  for (const size_t replay_buffer : {size_t{0}, size_t{1}}) {
    for (uint64_t seed = 1; seed <= 6; ++seed) {
      Life life({.seed = seed}, {.loss = 0.02, .replay_buffer = replay_buffer});
      for (int round = 0; round < 5; ++round) {
        for (int i = 0; i < 300; ++i) life.Publish();
        life.Settle();
        ExpectSound(life);
        life.Pass(absl::Seconds(60));
        ExpectSound(life);
        EXPECT_TRUE(IsWithin(life.Told(), life.Held())) << "seed " << seed;
        EXPECT_FALSE(life.replica().lapsed());
        EXPECT_EQ(life.replica().ledger.suspect_blocks(), 0);
      }
      EXPECT_GT(life.stream().sequencer().counts().losses, 0);
    }
  }
}

TEST(EngineLifeTest, TheLeaseWaitsUntilNoSuspectIsLeft) {
  Life life({.seed = 1}, {});
  for (int i = 0; i < 100; ++i) life.Publish();
  EXPECT_TRUE(life.stream().MayLease(life.replica()));
  life.stream().OnReconnected(At(absl::FromUnixSeconds(1'700'000'001)));
  EXPECT_FALSE(life.stream().MayLease(life.replica()));
  EXPECT_FALSE(life.replica().TakeRefresh(absl::FromUnixSeconds(1'700'000'001)));
  EXPECT_TRUE(life.replica().TakeRefresh(absl::FromUnixSeconds(1'700'000'040)));
  life.Pass(absl::Seconds(61));
  EXPECT_TRUE(life.stream().MayLease(life.replica()));
}

// A batch of ts 1.5 whose events are `events`, in JSON.
std::string BatchOf(const char* events, std::optional<int> rank = std::nullopt) {
  Json batch = {1.5, Json::parse(events)};
  if (rank) batch.push_back(*rank);
  const std::vector<uint8_t> payload = Json::to_msgpack(batch);
  return {payload.begin(), payload.end()};
}

TEST(EngineLifeTest, ARemovalThatCannotBeReadIsALoss) {
  StreamOptions options;
  EngineStream stream(options, [](uint64_t) {});
  const Moment now = At(absl::FromUnixSeconds(5));
  const EngineReplica& replica = *stream.replicas().begin()->second;
  stream.OnLive(0, BatchOf(R"([["BlockStored", [1], null, [7], 1]])"), now);
  EXPECT_TRUE(stream.MayLease(replica));
  stream.OnLive(1, BatchOf(R"([["BlockRemoved", [null]]])"), now);
  EXPECT_FALSE(stream.MayLease(replica));
  EXPECT_EQ(replica.ledger.suspect_blocks(), 1);
  // What is stored behind it is certain.
  stream.OnLive(2, BatchOf(R"([["BlockRemoved", [null]], ["BlockStored", [1], null, [7], 1]])"), now);
  EXPECT_EQ(replica.ledger.suspect_blocks(), 0);
}

TEST(EngineLifeTest, WhatCannotBeReadBehindAClearIsMissed) {
  EngineStream stream(StreamOptions(), [](uint64_t) {});
  const Moment now = At(absl::FromUnixSeconds(5));
  const BlockLedger& ledger = stream.replicas().begin()->second->ledger;
  // One hash stands for two blocks.
  stream.OnLive(0, BatchOf(R"([["BlockStored", [1, 2], null, [7, 8], 1], ["BlockStored", [2], null, [8], 1]])"), now);
  stream.OnLive(1, BatchOf(R"([["AllBlocksCleared"], ["BlockStored", [null], null, [8], 1]])"), now);
  stream.OnLive(2, BatchOf(R"([["BlockStored", [2], null, [8], 1], ["BlockStored", [3], 2, [9], 1]])"), now);
  EXPECT_EQ(ledger.held_blocks(), 1);
}

TEST(EngineLifeTest, AnEngineThatIsGoneHoldsNothing) {
  Life life({.seed = 1}, {});
  for (int i = 0; i < 100; ++i) life.Publish();
  EXPECT_FALSE(life.Told().empty());
  life.stream().OnEngineGone(At(absl::FromUnixSeconds(1'700'000'100)));
  life.Pass(absl::ZeroDuration());
  EXPECT_TRUE(life.Told().empty());
}

TEST(EngineLifeTest, BeforeTheFirstSignOfLifeNothingIsSaid) {
  EngineStream stream(StreamOptions(), [](uint64_t) {});
  stream.OnTick(At(absl::FromUnixSeconds(1)));
  EXPECT_FALSE(stream.started());
  EXPECT_FALSE(stream.replicas().begin()->second->HasVoid());
}

TEST(EngineLifeTest, RanksAreReplicasOfTheirOwn) {
  StreamOptions options;
  options.rank = 0;
  options.may_take_rank = [](int64_t rank) { return rank < 2; };
  EngineStream stream(options, [](uint64_t) {});
  SimulatedEngine engines[] = {SimulatedEngine({.seed = 1, .rank = 0}), SimulatedEngine({.seed = 2, .rank = 1}),
                               SimulatedEngine({.seed = 3, .rank = 2})};
  uint64_t sequence = 0;
  for (SimulatedEngine& engine : engines) {
    stream.OnLive(sequence++, engine.Publish(1).payload, At(absl::FromUnixSeconds(5)));
  }
  EXPECT_EQ(stream.replicas().size(), 2);
  EXPECT_TRUE(stream.replicas().contains(1));
  EXPECT_EQ(stream.counts().refused_ranks, 1);
}

constexpr char kRoot[] = R"([["BlockStored", [1], null, [7], 1]])";
constexpr char kContinuation[] = R"([["BlockStored", [2], 1, [8], 1]])";

TEST(EngineLifeTest, ALossBeforeARanksFirstBatchIsNotForgotten) {
  StreamOptions options;
  options.rank = 0;
  const Moment now = At(absl::FromUnixSeconds(5));
  EngineStream unreadable(options, [](uint64_t) {});
  unreadable.OnLive(0, "\xc1", now);
  unreadable.OnLive(1, BatchOf(kContinuation), now);
  EXPECT_EQ(unreadable.replicas().at(0)->ledger.held_blocks(), 0);

  EngineStream gap(options, [](uint64_t) {});
  gap.OnLive(0, BatchOf(kRoot, 0), now);
  gap.OnLive(2, BatchOf(kContinuation, 1), now);
  EXPECT_EQ(gap.replicas().at(0)->ledger.held_blocks(), 1);
  EXPECT_EQ(gap.replicas().at(1)->ledger.held_blocks(), 0);
}

TEST(EngineLifeTest, AStartVoidsTheStreamsOwnRankBeforeItIsHeard) {
  StreamOptions options;
  options.rank = 1;
  options.sequencer.has_replay = true;
  EngineStream stream(options, [](uint64_t) {});
  const Moment now = At(absl::FromUnixSeconds(5));
  stream.OnTick(now);
  EXPECT_TRUE(stream.replicas().empty());
  stream.OnReplayEnd(now);  // the engine has published nothing
  ASSERT_TRUE(stream.replicas().contains(1));
  EngineReplica& replica = *stream.replicas().at(1);
  EXPECT_TRUE(replica.TakeVoid());
  EXPECT_FALSE(replica.heard());
  stream.OnLive(0, BatchOf(kRoot), now);
  EXPECT_TRUE(replica.heard());
  EXPECT_EQ(replica.ledger.held_blocks(), 1);
}

TEST(EngineLifeTest, ARankThatIsNotHeardIsNotTaken) {
  StreamOptions options;
  options.rank = 1;
  std::vector<int64_t> taken;
  options.may_take_rank = [&](int64_t rank) {
    taken.push_back(rank);
    return rank != 1;
  };
  EngineStream stream(options, [](uint64_t) {});
  const Moment now = At(absl::FromUnixSeconds(5));
  stream.OnLive(0, BatchOf(kRoot, 5), now);
  EXPECT_THAT(taken, ::testing::ElementsAre(5));
  stream.OnLive(1, BatchOf(kRoot), now);
  EXPECT_FALSE(stream.replicas().at(1)->heard());
  EXPECT_EQ(stream.counts().refused_ranks, 1);
}

TEST(EngineLifeTest, OnlyTheEndOfTheLastLapseVoidsWhatWasTold) {
  StreamOptions options;
  options.ledger.ttl = absl::Seconds(60);
  EngineStream stream(options, [](uint64_t) {});
  EngineReplica& replica = *stream.replicas().begin()->second;
  const absl::Time start = absl::FromUnixSeconds(5);
  stream.OnLive(0, BatchOf(kRoot), At(start));
  stream.OnLive(2, BatchOf(kContinuation), At(start));
  stream.OnLive(4, BatchOf("[]"), At(start + absl::Seconds(10)));
  replica.TakeVoid();
  MirrorSink told;
  replica.ledger.Drain(&told);
  stream.OnTick(At(start + absl::Seconds(60)));
  EXPECT_TRUE(replica.lapsed());
  EXPECT_FALSE(replica.TakeVoid());
  EXPECT_TRUE(replica.ledger.HasChanges());
  stream.OnTick(At(start + absl::Seconds(70)));
  EXPECT_FALSE(replica.lapsed());
  EXPECT_TRUE(replica.TakeVoid());
}

TEST(EngineLifeTest, AClockThatIsSetBackHoldsNothingUp) {
  StreamOptions options;
  options.sequencer.has_replay = true;
  options.ledger.ttl = absl::Seconds(60);
  int asked = 0;
  EngineStream stream(options, [&](uint64_t) { ++asked; });
  EngineReplica& replica = *stream.replicas().begin()->second;
  Moment now = At(absl::FromUnixSeconds(7200));
  const auto pass = [&](absl::Duration time) {
    now.steady += time;
    now.wall += time;
    stream.OnTick(now);
  };
  pass(absl::ZeroDuration());
  stream.OnReplayEnd(now);
  stream.OnLive(0, BatchOf(R"([["BlockStored", [1, 2], null, [7, 8], 1]])"), now);
  stream.OnLive(3, BatchOf("[]"), now);
  EXPECT_FALSE(stream.sequencer().in_sync());
  now.wall -= absl::Hours(1);
  for (int i = 0; i < 60; ++i) pass(absl::Milliseconds(100));
  EXPECT_GT(asked, 2);
  EXPECT_TRUE(stream.sequencer().in_sync());  // nobody has answered: a loss
  EXPECT_TRUE(replica.lapsed());
  pass(absl::Seconds(60));
  EXPECT_FALSE(replica.lapsed());
}

TEST(EngineLifeTest, WhatIsOffloadedLastsOneTtlFromItsRemovalOn) {
  StreamOptions options;
  options.ledger.ttl = absl::Seconds(60);
  options.ledger.gpu_removal = GpuRemoval::kOffload;
  EngineStream stream(options, [](uint64_t) {});
  const BlockLedger& ledger = stream.replicas().begin()->second->ledger;
  // The batches are of 1.5, which is 40 s ago.
  Moment now = {.steady = absl::FromUnixSeconds(1000), .wall = absl::FromUnixMillis(41'500)};
  stream.OnLive(0, BatchOf(kRoot), now);
  stream.OnLive(1, BatchOf(R"([["BlockRemoved", [1]]])"), now);
  now.wall -= absl::Hours(1);
  now.steady += absl::Seconds(19);
  stream.OnTick(now);
  EXPECT_EQ(ledger.held_blocks(), 1);
  now.steady += absl::Seconds(1);
  stream.OnTick(now);
  EXPECT_EQ(ledger.held_blocks(), 0);
}

TEST(EngineLifeTest, ABatchWithoutARankIsOfItsStreams) {
  StreamOptions options;
  options.rank = 3;
  EngineStream stream(options, [](uint64_t) {});
  SimulatedEngine engine({});
  stream.OnLive(0, engine.Publish(1).payload, At(absl::FromUnixSeconds(5)));
  ASSERT_EQ(stream.replicas().size(), 1);
  EXPECT_EQ(stream.replicas().begin()->first, 3);
}

}  // namespace
}  // namespace icache
