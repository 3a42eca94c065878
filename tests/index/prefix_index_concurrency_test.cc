// Many threads on one engine: its invariants hold afterwards, and what does not depend on their order comes out exact.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <latch>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "icache/index/prefix_index.h"
#include "icache/index/sharded_index.h"
#include "tests/index/random_observations.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_retention.h"
#include "tests/testing/naive_index.h"
#include "tests/testing/observations.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

constexpr size_t kThreads = 16;
constexpr UniverseSize kSmall = {.tenants = 2, .models = 2, .adapters = 2, .replicas = kThreads, .hashes = 24};

// Runs `work` on kThreads threads, each with its number, and waits for all.
void InParallel(const std::function<void(size_t thread)>& work) {
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      work(i);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Looks a chain up, checks that the view agrees with itself, and takes the credit.
void ReadAndCredit(const PrefixIndex& index, RandomObservations& random, absl::Time expired_through) {
  const std::string adapter = random.Any(random.universe().adapters);
  const std::vector<std::string> hashes = random.ChainHashes();
  const std::vector<std::string_view> views = ViewsOf(hashes);
  const Chain chain(BlockHashSpan(absl::MakeConstSpan(views)), 16);
  index.Read(random.Scope(), [&](const ScopeView& view) {
    std::vector<ReplicaMatch> matches;
    view.MatchChain(adapter, chain, expired_through, &matches);
    EXPECT_LE(matches.size(), view.ReplicaCount());
    for (const ReplicaMatch& match : matches) {
      EXPECT_TRUE(view.HasReplica(match.replica_id));
      EXPECT_EQ(view.ReplicaAt(match.name_order), match.replica_id);
      EXPECT_EQ(static_cast<size_t>(match.matched_tokens), 16 * match.matched_blocks);
      EXPECT_GT(absl::FromUnixMicros(match.last_seen_us), expired_through);
    }
    for (size_t i = 1; i < view.ReplicaCount(); ++i) EXPECT_LT(view.ReplicaAt(i - 1), view.ReplicaAt(i));
    EXPECT_EQ(view.Known() == KnownKeys::kScopeKnown, view.ReplicaCount() > 0);
    view.CreditChain(adapter, chain, matches);
    view.MatchHash(adapter, chain.hash(0), expired_through, &matches);
    view.CreditHash(adapter, chain.hash(0), matches);
  });
}

void ChangeRetention(FakeRetention& retention, RandomObservations& random) {
  RetentionRules rules;
  rules.ttl = absl::Minutes(static_cast<int64_t>(1 + random.Below(60)));
  rules.algorithm = random.OneIn(2) ? EvictionAlgorithm::kLru : EvictionAlgorithm::kLfu;
  if (random.OneIn(2)) rules.max_prefixes = static_cast<int64_t>(random.Below(40));
  retention.Set(random.Any(random.universe().tenants), rules);
}

TEST(PrefixIndexConcurrencyTest, InvariantsHoldAfterAMixOfEverything) {
  constexpr int kSteps = 4000;
  constexpr int64_t kMaxEntries = 200;
  const Universe universe(kSmall, 1);
  FakeRetention retention;
  FakeClock clock;
  auto index =
      CreateShardedIndex({.max_entries = kMaxEntries, .hot_threshold = 2, .shard_count = 4}, &retention).value();

  InParallel([&](size_t thread) {
    RandomObservations random(&universe, thread);
    for (int step = 0; step < kSteps; ++step) {
      const absl::Time now = clock.Now();
      const size_t roll = random.Below(100);
      if (roll < 40) {
        Apply(*index, random.Update(now), now);
      } else if (roll < 55) {
        Apply(*index, random.Event(now), now);
      } else if (roll < 85) {
        ReadAndCredit(*index, random, now - absl::Minutes(30));
      } else if (roll < 87) {
        index->Sweep(now);
      } else if (roll < 90) {
        const CacheState state = index->GetState(random.Any(universe.tenants), random.Any(universe.models));
        EXPECT_LE(state.hot_prefixes, state.total_prefixes);
      } else if (roll < 93) {
        EXPECT_GE(index->Stats().entries, 0);
        index->HoldsModel(random.Any(universe.models));
      } else if (roll < 95) {
        index->ForEachModel([](std::string_view model, const ModelStats&) { EXPECT_FALSE(model.empty()); });
        index->ForEachQuotaTenant([](std::string_view, int64_t evicted) { EXPECT_GE(evicted, 0); });
      } else if (roll < 96) {
        ChangeRetention(retention, random);
      } else if (roll < 97) {
        clock.Advance(absl::Minutes(static_cast<int64_t>(random.Below(3))));
      } else {
        clock.Advance(absl::Microseconds(1));
      }
    }
  });

  EXPECT_THAT(index->CheckInvariants(), IsOk());
  EXPECT_LE(index->Stats().entries, kMaxEntries);
  clock.Advance(absl::Hours(2));
  index->Sweep(clock.Now());
  EXPECT_EQ(index->Stats().entries, 0);
  EXPECT_THAT(index->CheckInvariants(), IsOk());
}

// Sends all that one replica has to say, the same at every call.
void Play(const Universe& universe, size_t replica, absl::Time now, PrefixIndex& index) {
  constexpr int kSteps = 400;
  RandomObservations random(&universe, replica);
  for (int step = 0; step < kSteps; ++step) {
    if (random.OneIn(4)) {
      OwnedEvent event = random.Event(now);
      event.replica_id = universe.replicas[replica];
      Apply(index, event, now);
    } else {
      OwnedUpdate update = random.Update(now);
      update.replica_id = universe.replicas[replica];
      Apply(index, update, now);
    }
  }
}

TEST(PrefixIndexConcurrencyTest, WritersThatKeepEachReplicasOrderEndLikeASequentialReplay) {
  const Universe universe(kSmall, 2);
  FakeRetention retention;
  const absl::Time now = FakeClock().Now();
  const IndexOptions options = {.max_entries = 0, .shard_count = 4};
  auto index = CreateShardedIndex(options, &retention).value();
  NaiveIndex model(options, &retention);

  InParallel([&](size_t thread) { Play(universe, thread, now, *index); });
  for (size_t replica = 0; replica < kThreads; ++replica) Play(universe, replica, now, model);

  ASSERT_THAT(index->CheckInvariants(), IsOk());
  EXPECT_EQ(index->Stats().entries, model.Stats().entries);
  EXPECT_EQ(index->Stats().prefixes, model.Stats().prefixes);
  EXPECT_GT(model.Stats().entries, 500);
  for (const std::string& tenant : universe.tenants) {
    for (const std::string& model_id : universe.models) {
      const CacheState actual = index->GetState(tenant, model_id);
      const CacheState expected = model.GetState(tenant, model_id);
      EXPECT_EQ(actual.total_prefixes, expected.total_prefixes);
      ASSERT_EQ(actual.replicas.size(), expected.replicas.size());
      for (size_t i = 0; i < actual.replicas.size(); ++i) {
        EXPECT_EQ(actual.replicas[i].replica_id, expected.replicas[i].replica_id);
        EXPECT_EQ(actual.replicas[i].stats.last_seen, expected.replicas[i].stats.last_seen);
        EXPECT_EQ(actual.replicas[i].stats.reported, expected.replicas[i].stats.reported);
      }
      for (const std::string& scheme : universe.schemes) {
        for (const std::string& adapter : universe.adapters) {
          for (const std::string& hash : universe.hashes) {
            const ScopeKey scope = {tenant, model_id, scheme};
            ASSERT_EQ(HoldersOf(*index, scope, adapter, hash), HoldersOf(model, scope, adapter, hash));
          }
        }
      }
    }
  }
}

TEST(PrefixIndexConcurrencyTest, NoCreditIsLost) {
  constexpr int32_t kCredits = 500;
  constexpr int32_t kAll = kCredits * static_cast<int32_t>(kThreads);
  FakeRetention retention;
  const absl::Time now = FakeClock().Now();
  // An entry is hot at exactly as many credits as were taken, and would not be at one more.
  for (const int32_t missing : {0, 1}) {
    auto index = CreateShardedIndex({.hot_threshold = kAll + missing}, &retention).value();
    Apply(*index, {.prefixes = {Blocks({"a", "b"})}}, now);
    InParallel([&](size_t thread) {
      for (int i = 0; i < kCredits; ++i) {
        index->Read({"t", "m", "vllm"}, [](const ScopeView& view) {
          const std::vector<std::string_view> hashes = {"a", "b"};
          const Chain chain(BlockHashSpan(absl::MakeConstSpan(hashes)), 16);
          std::vector<ReplicaMatch> matches;
          view.MatchChain("", chain, absl::InfinitePast(), &matches);
          view.CreditChain("", chain, matches);
        });
        if (thread == 0) Apply(*index, {.prefixes = {Single("a")}}, now);  // a refresh keeps the count
      }
    });
    EXPECT_EQ(index->GetState("t", "m").hot_prefixes, missing == 0 ? 2 : 0);
    EXPECT_THAT(index->CheckInvariants(), IsOk());
  }
}

}  // namespace
}  // namespace icache::testing
