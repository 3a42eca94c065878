// A random life of the engine beside the model: after every step both must say the same, and the engine's invariants
// must hold.
//
// Each configuration runs from a fixed seed, and one of them from a fresh seed as well; a failure names seed and step.
// To repeat or extend a run: ICACHE_RANDOM_SEED sets the seed and ICACHE_RANDOM_STEPS the steps of every configuration.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "icache/index/change_observer.h"
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

struct Config {
  const char* name;
  uint64_t seed;
  int steps;
  int64_t max_entries;  // 0 = none
  bool with_quotas;
  UniverseSize universe;

  friend std::ostream& operator<<(std::ostream& out, const Config& config) { return out << config.name; }
};

constexpr Config kConfigs[] = {
    {.name = "Cap4",
     .seed = 1,
     .steps = 300'000,
     .max_entries = 4,
     .with_quotas = false,
     .universe = {.tenants = 2, .models = 2, .adapters = 2, .replicas = 3, .hashes = 12}},
    {.name = "Cap40",
     .seed = 2,
     .steps = 300'000,
     .max_entries = 40,
     .with_quotas = false,
     .universe = {.tenants = 3, .models = 2, .adapters = 2, .replicas = 4, .hashes = 24}},
    {.name = "Cap40WithQuotas",
     .seed = 3,
     .steps = 150'000,
     .max_entries = 40,
     .with_quotas = true,
     .universe = {.tenants = 3, .models = 1, .adapters = 2, .replicas = 3, .hashes = 16}},
    {.name = "Cap400",
     .seed = 4,
     .steps = 60'000,
     .max_entries = 400,
     .with_quotas = true,
     .universe = {.tenants = 2, .models = 2, .adapters = 2, .replicas = 5, .hashes = 64}},
    {.name = "Quotas",
     .seed = 5,
     .steps = 200'000,
     .max_entries = 0,
     .with_quotas = true,
     .universe = {.tenants = 2, .models = 1, .adapters = 2, .replicas = 3, .hashes = 16}},
    {.name = "UncappedSmall",
     .seed = 6,
     .steps = 200'000,
     .max_entries = 0,
     .with_quotas = false,
     .universe = {.tenants = 1, .models = 2, .adapters = 1, .replicas = 3, .hashes = 8}},
    {.name = "UncappedLarge",
     .seed = 7,
     .steps = 60'000,
     .max_entries = 0,
     .with_quotas = false,
     .universe = {.tenants = 3, .models = 2, .adapters = 3, .replicas = 6, .hashes = 80}},
    // Few names and long chains, so that replicas part and meet at every offset of the same runs.
    {.name = "LongChains",
     .seed = 8,
     .steps = 8'000,
     .max_entries = 0,
     .with_quotas = false,
     .universe = {.tenants = 1, .models = 1, .adapters = 1, .replicas = 5, .hashes = 700}},
    {.name = "LongChainsCapped",
     .seed = 9,
     .steps = 8'000,
     .max_entries = 900,
     .with_quotas = false,
     .universe = {.tenants = 1, .models = 1, .adapters = 1, .replicas = 4, .hashes = 600}},
    {.name = "LongChainsWithQuotas",
     .seed = 10,
     .steps = 8'000,
     .max_entries = 600,
     .with_quotas = true,
     .universe = {.tenants = 2, .models = 1, .adapters = 1, .replicas = 4, .hashes = 400}},
    {.name = "OneChain",
     .seed = 11,
     .steps = 150'000,
     .max_entries = 0,
     .with_quotas = false,
     .universe = {.tenants = 1, .models = 1, .adapters = 1, .replicas = 3, .hashes = 20}},
};

constexpr int kStepsPerFullComparison = 512;
constexpr int64_t kEntriesCheckedEveryStep = 500;
constexpr int kStepsPerCheckBeyond = 256;

auto Parts(const ReplicaStats& stats) {
  return std::tie(stats.cache_memory_bytes, stats.hit_rate, stats.pressure, stats.client_version, stats.t2_hit_tokens,
                  stats.t2_query_tokens, stats.last_seen, stats.reported);
}

// What replicas hold, as an observer of the engine's changes comes to know it.
class Mirror final : public ChangeObserver {
 public:
  using Row = std::tuple<std::string, std::string, std::string>;                             // tenant, model, replica
  using Holdings = std::map<std::tuple<std::string, std::string, std::string>, absl::Time>;  // scheme, adapter, hash

  Mirror() { SetListening(kAllTypes); }

  void OnChange(const IndexChange& change) override {
    Holdings& held = held_[Row(change.tenant_id, change.model_id, change.replica_id)];
    if (change.type == CacheEventType::kAllCleared) {
      std::erase_if(held, [&](const auto& holding) { return holding.second <= change.at; });
    }
    for (const BlockHash& hash : change.hashes) {
      const Holdings::key_type key(change.hash_scheme, change.adapter_id, Bytes(hash));
      if (change.type == CacheEventType::kPrefixAdded) {
        held[key] = change.at;
      } else {
        EXPECT_EQ(held.erase(key), 1) << "lost what it did not hold: " << HashText(std::get<2>(key));
      }
    }
  }

  std::map<Row, Holdings> Held() const {
    std::map<Row, Holdings> held = held_;
    std::erase_if(held, [](const auto& row) { return row.second.empty(); });
    return held;
  }
  static std::map<Row, Holdings> HeldBy(const NaiveIndex& model) {
    std::map<Row, Holdings> held;
    for (const auto& [key, entry] : model.entries()) {
      const NaiveIndex::PrefixKey& prefix = key.prefix;
      held[{prefix.tenant, prefix.model, key.replica}][{prefix.scheme, prefix.adapter, prefix.hash}] = entry.last_seen;
    }
    return held;
  }

 private:
  static std::string Bytes(const BlockHash& hash) {
    if (!hash.IsPacked()) return std::string(hash.wide());
    std::string bytes(kPackedHashBytes, '\0');
    StoreBigEndian64(hash.packed(), bytes.data());
    return bytes;
  }

  std::map<Row, Holdings> held_;
};

// Engine and model, fed with the same random steps.
class Run {
 public:
  Run(const Config& config, uint64_t seed)
      : config_(config), universe_(config.universe, seed), random_(&universe_, seed) {
    const IndexOptions options = {.max_entries = config.max_entries, .hot_threshold = 2, .shard_count = 4};
    engine_ = CreateShardedIndex(options, &retention_, &mirror_).value();
    model_ = std::make_unique<NaiveIndex>(options, &retention_);
  }

  // One change, then a comparison.
  void Step() {
    ++step_;
    const size_t roll = random_.Below(100);
    if (roll < 45) {
      Update();
    } else if (roll < 60) {
      Event();
    } else if (roll < 80) {
      Lookup();
    } else if (roll < 93) {
      Advance();
    } else if (roll < 96) {
      Sweep();
    } else {
      ChangeRetention();
    }
    CompareSome();
    if (step_ % kStepsPerFullComparison == 0) CompareAll();
    if (model_->entries().size() < kEntriesCheckedEveryStep || step_ % kStepsPerCheckBeyond == 0) {
      EXPECT_THAT(engine_->CheckInvariants(), IsOk());
    }
  }

  // The last change, for people.
  std::string LastChange() const {
    if (last_update_) return Text(*last_update_, clock_.Now());
    if (last_event_) return Text(*last_event_, clock_.Now());
    return last_other_;
  }
  int64_t most_entries() const { return most_entries_; }

 private:
  void Update() {
    const absl::Time now = clock_.Now();
    const OwnedUpdate update = random_.Update(now);
    SetLast(update, std::nullopt, "");
    const ApplyResult actual = Apply(*engine_, update, now);
    const absl::StatusOr<ApplyResult> expected =
        WithViews(update, [&](const StateUpdate& views) { return model_->ApplyUpdateLike(views, now, *engine_); });
    ASSERT_TRUE(expected.ok()) << expected.status();
    ExpectSame(actual, *expected);
  }

  void Event() {
    const OwnedEvent event = random_.Event(clock_.Now());
    SetLast(std::nullopt, event, "");
    const ApplyResult actual = Apply(*engine_, event, clock_.Now());
    ExpectSame(actual, Apply(*model_, event, clock_.Now()));
  }

  void Sweep() {
    SetLast(std::nullopt, std::nullopt, "sweep");
    EXPECT_EQ(engine_->Sweep(clock_.Now()), model_->Sweep(clock_.Now()));
  }

  void Advance() {
    SetLast(std::nullopt, std::nullopt, "advance");
    switch (random_.Below(16)) {
      case 0:
        clock_.Advance(absl::Minutes(static_cast<int64_t>(random_.Below(30))));
        break;
      case 1:
        if (random_.OneIn(4)) clock_.Advance(absl::Hours(static_cast<int64_t>(random_.Below(50))));
        break;
      case 2:
        clock_.Advance(absl::Microseconds(1));
        break;
      default:
        clock_.Advance(absl::Seconds(static_cast<int64_t>(random_.Below(20))));
    }
  }

  void ChangeRetention() {
    static constexpr absl::Duration kTtls[] = {absl::Minutes(1), absl::Minutes(5), absl::Minutes(30), absl::Hours(48)};
    const std::string& tenant = random_.Any(universe_.tenants);
    RetentionRules rules = retention_.For(tenant);
    switch (random_.Below(config_.with_quotas ? 3 : 2)) {
      case 0:
        rules.algorithm =
            rules.algorithm == EvictionAlgorithm::kLru ? EvictionAlgorithm::kLfu : EvictionAlgorithm::kLru;
        break;
      case 1:
        rules.ttl = random_.Any(kTtls);
        break;
      case 2:
        rules.max_prefixes.reset();
        if (!random_.OneIn(4))
          rules.max_prefixes = random_.OneIn(8) ? 0 : static_cast<int64_t>(1 + random_.Below(universe_.hashes.size()));
        break;
    }
    retention_.Set(tenant, rules);
    SetLast(std::nullopt, std::nullopt,
            "rules of " + tenant + ": " + absl::FormatDuration(rules.ttl) + ", algorithm " +
                std::to_string(static_cast<int>(rules.algorithm)) + ", quota " +
                std::to_string(rules.max_prefixes.value_or(-1)));
  }

  // A lookup that earns credit for some of those it finds.
  void Lookup() {
    SetLast(std::nullopt, std::nullopt, "lookup");
    const ScopeKey scope = random_.Scope();
    const std::string& adapter = random_.Any(universe_.adapters);
    const absl::Time expired_through = clock_.Now() - retention_.For(scope.tenant_id).ttl;
    const uint64_t credited = random_.OneIn(2) ? ~uint64_t{0} : random_.Bits();
    if (random_.OneIn(3)) {
      const std::string& hash = random_.Any(universe_.hashes);
      CompareHash(scope, adapter, hash, expired_through, credited);
    } else {
      CompareChain(scope, adapter, expired_through, credited);
    }
  }

  // Asks both for the holders of `hash`, and credits the i-th of them by name where bit i of `credited` is set.
  void CompareHash(const ScopeKey& scope, std::string_view adapter, std::string_view hash, absl::Time expired_through,
                   uint64_t credited) {
    const auto ask = [&](const PrefixIndex& index) {
      std::vector<Match> matched;
      index.Read(scope, [&](const ScopeView& view) {
        view.MatchHash(adapter, BlockHash(hash), expired_through, &matches_);
        CheckStats(view, matches_);
        matched = Owned(matches_);
        if (credited == 0) return;
        KeepSome(credited, &matches_);
        view.CreditHash(adapter, BlockHash(hash), matches_);
      });
      return matched;
    };
    EXPECT_EQ(ask(*engine_), ask(*model_)) << "holders of " << HashText(hash);
  }

  // The same with a chain, in either form.
  void CompareChain(const ScopeKey& scope, std::string_view adapter, absl::Time expired_through, uint64_t credited) {
    const bool is_packed = random_.OneIn(3);
    const std::vector<uint64_t> packed = random_.PackedHashes();
    const std::vector<std::string> hashes = random_.ChainHashes();
    const std::vector<std::string_view> views = ViewsOf(hashes);
    const std::vector<int32_t> tokens = random_.Tokens(hashes.size());
    const Chain chain = is_packed ? Chain(BlockHashSpan(absl::MakeConstSpan(packed)), 16)
                                  : Chain(BlockHashSpan(absl::MakeConstSpan(views)), tokens);
    const auto ask = [&](const PrefixIndex& index) {
      std::vector<Match> matched;
      index.Read(scope, [&](const ScopeView& view) {
        view.MatchChain(adapter, chain, expired_through, &matches_);
        CheckStats(view, matches_);
        matched = Owned(matches_);
        if (credited == 0) return;
        KeepSome(credited, &matches_);
        view.CreditChain(adapter, chain, matches_);
      });
      return matched;
    };
    EXPECT_EQ(ask(*engine_), ask(*model_)) << "chain" << (is_packed ? HashText(packed) : HashText(hashes));
  }

  // Orders `matches` by replica and keeps those whose bit is set.
  static void KeepSome(uint64_t bits, std::vector<ReplicaMatch>* matches) {
    std::sort(matches->begin(), matches->end(),
              [](const ReplicaMatch& a, const ReplicaMatch& b) { return a.replica_id < b.replica_id; });
    size_t i = 0;
    std::erase_if(*matches, [&](const ReplicaMatch&) { return (bits >> (i++ % 64) & 1) == 0; });
  }

  // A match carries the stats row that the view lists for its replica.
  static void CheckStats(const ScopeView& view, const std::vector<ReplicaMatch>& matches) {
    for (const ReplicaMatch& match : matches) {
      const ReplicaStats* listed = nullptr;
      view.ForEachStats([&](std::string_view replica, const ReplicaStats& stats, bool) {
        if (replica == match.replica_id) listed = &stats;
      });
      EXPECT_EQ(match.stats, listed);
    }
  }

  static void ExpectSame(const ApplyResult& actual, const ApplyResult& expected) {
    EXPECT_EQ(actual.applied, expected.applied);
    EXPECT_EQ(actual.entries_stored, expected.entries_stored);
    for (size_t i = 0; i < kDropReasonCount; ++i) {
      const DropReason reason = static_cast<DropReason>(i);
      EXPECT_EQ(actual.dropped[reason], expected.dropped[reason]) << DropReasonName(reason);
    }
  }

  void CompareSome() {
    const IndexStats stats = engine_->Stats();
    EXPECT_EQ(stats.entries, static_cast<int64_t>(model_->entries().size()));
    most_entries_ = std::max(most_entries_, stats.entries);
    const ScopeKey scope = random_.Scope();
    const absl::Time expired_through =
        random_.OneIn(2) ? absl::InfinitePast() : clock_.Now() - absl::Minutes(static_cast<int64_t>(random_.Below(30)));
    switch (step_ % 8) {
      case 0:
        return CompareScope(scope);
      case 1:
        return CompareState(scope.tenant_id, scope.model_id);
      case 2:
        return CompareStats();
      case 3:
        return CompareModels();
      case 4:
      case 5:
        return CompareHash(scope, random_.Any(universe_.adapters), random_.Any(universe_.hashes), expired_through, 0);
      default:
        return CompareChain(scope, random_.Any(universe_.adapters), expired_through, 0);
    }
  }

  void CompareAll() {
    EXPECT_EQ(mirror_.Held(), Mirror::HeldBy(*model_));
    CompareStats();
    CompareModels();
    ComparePartitions("");
    for (const std::string& tenant : universe_.tenants) {
      ComparePartitions(tenant);
      for (const std::string& model : universe_.models) {
        CompareState(tenant, model);
        for (const std::string& scheme : universe_.schemes) {
          CompareScope({tenant, model, scheme});
          for (const std::string& adapter : universe_.adapters) {
            for (const std::string& hash : universe_.hashes) {
              CompareHash({tenant, model, scheme}, adapter, hash, absl::InfinitePast(), 0);
            }
          }
        }
      }
    }
  }

  void CompareScope(const ScopeKey& scope) {
    const auto ask = [&](const PrefixIndex& index) {
      std::tuple<KnownKeys, std::vector<std::string>, std::map<std::string, bool>,
                 std::map<std::string, std::optional<absl::Time>>>
          answer;
      index.Read(scope, [&](const ScopeView& view) {
        std::get<0>(answer) = view.Known();
        for (size_t i = 0; i < view.ReplicaCount(); ++i) std::get<1>(answer).emplace_back(view.ReplicaAt(i));
        view.ForEachStats([&](std::string_view replica, const ReplicaStats&, bool present) {
          std::get<2>(answer).emplace(replica, present);
          EXPECT_EQ(present, view.HasReplica(replica));
        });
        for (const std::string& replica : universe_.replicas) std::get<3>(answer)[replica] = view.LeaseOf(replica);
      });
      return answer;
    };
    EXPECT_EQ(ask(*engine_), ask(*model_)) << scope.tenant_id << "/" << scope.model_id << "/" << scope.hash_scheme;
    CompareReplicas(scope);
    CompareNames("", "");
    CompareNames(scope.tenant_id, "");
    CompareNames(scope.tenant_id, scope.model_id);
  }

  void CompareNames(std::string_view tenant, std::string_view model) {
    NameList actual(/*limit=*/2);
    NameList expected(/*limit=*/2);
    engine_->ListHeld(tenant, model, &actual);
    model_->ListHeld(tenant, model, &expected);
    EXPECT_EQ(actual.names(), expected.names());
    EXPECT_EQ(actual.omitted(), expected.omitted());
  }

  // Walks all partitions page by page, as an operator would.
  void ComparePartitions(std::string_view tenant) {
    std::optional<PartitionName> after;
    for (;;) {
      const std::vector<PartitionState> actual = engine_->ListPartitions(tenant, after, /*limit=*/2);
      const std::vector<PartitionState> expected = model_->ListPartitions(tenant, after, /*limit=*/2);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) {
        EXPECT_EQ(actual[i].name, expected[i].name);
        EXPECT_EQ(actual[i].prefixes, expected[i].prefixes);
        EXPECT_EQ(actual[i].scope_replicas, expected[i].scope_replicas);
      }
      if (actual.empty()) return;
      after = actual.back().name;
    }
  }

  void CompareReplicas(const ScopeKey& scope) {
    std::string after;
    for (int page = 0; page < 2; ++page) {
      const ScopeReplicas actual = engine_->ListReplicas(scope, after, /*limit=*/2);
      const ScopeReplicas expected = model_->ListReplicas(scope, after, /*limit=*/2);
      EXPECT_EQ(actual.total, expected.total);
      ASSERT_EQ(actual.replicas.size(), expected.replicas.size());
      for (size_t i = 0; i < actual.replicas.size(); ++i) {
        const PresenceState& a = actual.replicas[i];
        const PresenceState& b = expected.replicas[i];
        EXPECT_EQ(std::tie(a.replica_id, a.entries, a.partitions, a.oldest_seen, a.newest_seen, a.lease),
                  std::tie(b.replica_id, b.entries, b.partitions, b.oldest_seen, b.newest_seen, b.lease));
        ASSERT_EQ(a.stats.has_value(), b.stats.has_value());
        if (!a.stats.has_value()) continue;
        EXPECT_EQ(Parts(*a.stats), Parts(*b.stats));
      }
      if (actual.replicas.empty()) return;
      after = actual.replicas.front().replica_id;
    }
  }

  void CompareState(std::string_view tenant, std::string_view model) {
    const CacheState actual = engine_->GetState(tenant, model);
    const CacheState expected = model_->GetState(tenant, model);
    EXPECT_EQ(actual.total_prefixes, expected.total_prefixes);
    EXPECT_EQ(actual.hot_prefixes, expected.hot_prefixes);
    ASSERT_EQ(actual.replicas.size(), expected.replicas.size());
    for (size_t i = 0; i < actual.replicas.size(); ++i) {
      EXPECT_EQ(actual.replicas[i].replica_id, expected.replicas[i].replica_id);
      EXPECT_EQ(Parts(actual.replicas[i].stats), Parts(expected.replicas[i].stats));
    }
  }

  void CompareStats() {
    const IndexStats actual = engine_->Stats();
    const IndexStats expected = model_->Stats();
    EXPECT_EQ(actual.prefixes, expected.prefixes);
    for (int algorithm = 0; algorithm < 2; ++algorithm) {
      // Of equally old prefixes a quota may take those with more holders or with fewer, which leaves the cap less or
      // more.
      if (!config_.with_quotas) {
        EXPECT_EQ(actual.evicted_for_cap[algorithm], expected.evicted_for_cap[algorithm]);
      }
      EXPECT_EQ(actual.evicted_for_memory[algorithm], 0);
      EXPECT_EQ(actual.expired[algorithm], expected.expired[algorithm]);
    }
    const auto evicted_for_quotas = [](const PrefixIndex& index) {
      std::map<std::string, int64_t> evicted;
      index.ForEachQuotaTenant([&](std::string_view tenant, int64_t prefixes) {
        if (prefixes > 0) evicted.emplace(tenant, prefixes);
      });
      return evicted;
    };
    EXPECT_EQ(evicted_for_quotas(*engine_), evicted_for_quotas(*model_));
  }

  void CompareModels() {
    const auto ask = [](const PrefixIndex& index) {
      std::map<std::string, std::tuple<int64_t, int64_t, absl::Time>> held;
      index.ForEachModel([&](std::string_view model, const ModelStats& stats) {
        held.emplace(model, std::tuple(stats.prefixes, stats.stats_rows, stats.last_applied));
      });
      return held;
    };
    EXPECT_EQ(ask(*engine_), ask(*model_));
    for (const std::string& model : universe_.models)
      EXPECT_EQ(engine_->HoldsModel(model), model_->HoldsModel(model)) << model;
  }

  void SetLast(std::optional<OwnedUpdate> update, std::optional<OwnedEvent> event, std::string other) {
    last_update_ = std::move(update);
    last_event_ = std::move(event);
    last_other_ = std::move(other);
  }

  const Config config_;
  const Universe universe_;
  RandomObservations random_;
  FakeRetention retention_;
  FakeClock clock_;
  Mirror mirror_;
  std::unique_ptr<PrefixIndex> engine_;
  std::unique_ptr<NaiveIndex> model_;

  int step_ = 0;
  int64_t most_entries_ = 0;
  // The last change was one of these.
  std::optional<OwnedUpdate> last_update_;
  std::optional<OwnedEvent> last_event_;
  std::string last_other_;
  std::vector<ReplicaMatch> matches_;  // scratch
};

std::optional<uint64_t> FromEnvironment(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::strtoull(value, nullptr, 10);
}

void RunAll(const Config& config, uint64_t seed) {
  seed = FromEnvironment("ICACHE_RANDOM_SEED").value_or(seed);
  const int steps =
      static_cast<int>(FromEnvironment("ICACHE_RANDOM_STEPS").value_or(static_cast<uint64_t>(config.steps)));
  Run run(config, seed);
  for (int step = 1; step <= steps; ++step) {
    run.Step();
    if (::testing::Test::HasFailure()) {
      FAIL() << config.name << " seed " << seed << " step " << step << ": " << run.LastChange();
    }
  }
  ::testing::Test::RecordProperty("most_entries", std::to_string(run.most_entries()));
}

class PrefixIndexRandomTest : public ::testing::TestWithParam<Config> {};

TEST_P(PrefixIndexRandomTest, EngineAgreesWithTheModel) { RunAll(GetParam(), GetParam().seed); }

INSTANTIATE_TEST_SUITE_P(Configs, PrefixIndexRandomTest, ::testing::ValuesIn(kConfigs),
                         [](const ::testing::TestParamInfo<Config>& config) { return config.param.name; });

TEST(PrefixIndexFreshSeedTest, EngineAgreesWithTheModel) {
  for (const char* name : {"Cap40", "Quotas", "UncappedLarge"}) {
    Config config = *std::find_if(std::begin(kConfigs), std::end(kConfigs),
                                  [&](const Config& each) { return each.name == std::string_view(name); });
    config.steps /= 20;
    RunAll(config, std::random_device()());
  }
}

}  // namespace
}  // namespace icache::testing
