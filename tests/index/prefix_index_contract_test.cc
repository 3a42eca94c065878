// What contract/index.md promises of any PrefixIndex, sentence by sentence, and the matching of contract/lookup.md
// step 5.
//
// Every test runs against the engine and against the model of it, which keeps both honest.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "icache/index/prefix_index.h"
#include "icache/index/sharded_index.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_retention.h"
#include "tests/testing/naive_index.h"
#include "tests/testing/observations.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kTtl = absl::Minutes(30);
constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();

struct Engine {
  const char* name;
  std::unique_ptr<PrefixIndex> (*create)(const IndexOptions& options, const RetentionSource* retention);

  friend std::ostream& operator<<(std::ostream& out, const Engine& engine) { return out << engine.name; }
};

constexpr Engine kEngines[] = {
    {"Sharded", [](const IndexOptions& options,
                   const RetentionSource* retention) { return CreateShardedIndex(options, retention).value(); }},
    {"Naive",
     [](const IndexOptions& options, const RetentionSource* retention) -> std::unique_ptr<PrefixIndex> {
       return std::make_unique<NaiveIndex>(options, retention);
     }},
};

// The default update and event speak of tenant "t", model "m", scheme "vllm", replica "r0"; so do the questions here.
class PrefixIndexContractTest : public ::testing::TestWithParam<Engine> {
 protected:
  // Created at first use, so that a test can set options_ before.
  PrefixIndex& index() {
    if (index_ == nullptr) index_ = GetParam().create(options_, &retention_);
    return *index_;
  }

  void TearDown() override { EXPECT_THAT(index().CheckInvariants(), IsOk()); }

  absl::Time Now() const { return clock_.Now(); }
  absl::Time Ago(absl::Duration age) const { return Now() - age; }

  ApplyResult Report(const OwnedUpdate& update) { return Apply(index(), update, Now()); }
  ApplyResult Publish(const OwnedEvent& event) { return Apply(index(), event, Now()); }
  size_t Sweep() { return index().Sweep(Now()); }

  // Each sets one of the tenant's rules and leaves the others.
  void SetTtl(std::string_view tenant_id, absl::Duration ttl) {
    RetentionRules rules = retention_.For(tenant_id);
    rules.ttl = ttl;
    retention_.Set(tenant_id, rules);
  }
  void SetAlgorithm(std::string_view tenant_id, EvictionAlgorithm algorithm) {
    RetentionRules rules = retention_.For(tenant_id);
    rules.algorithm = algorithm;
    retention_.Set(tenant_id, rules);
  }
  void SetQuota(std::string_view tenant_id, std::optional<int64_t> max_prefixes) {
    RetentionRules rules = retention_.For(tenant_id);
    rules.max_prefixes = max_prefixes;
    retention_.Set(tenant_id, rules);
  }

  // Everyone that holds `hash` in the partition, dead or alive.
  std::vector<Match> Holders(std::string_view hash, std::string_view adapter = "", std::string_view scheme = "vllm") {
    return HoldersOf(index(), {"t", "m", scheme}, adapter, hash);
  }
  // Those of `hashes` that somebody holds, dead or alive.
  std::vector<std::string> Held(const std::vector<std::string>& hashes) {
    std::vector<std::string> held;
    for (const std::string& hash : hashes) {
      if (!Holders(hash).empty()) held.push_back(hash);
    }
    return held;
  }
  // The holders of `hash` that a lookup sees now, under a TTL of kTtl.
  std::vector<Match> LiveHolders(std::string_view hash, std::string_view scheme = "vllm") {
    return HoldersOf(index(), {"t", "m", scheme}, "", hash, Ago(kTtl));
  }

  // Matches a chain, and takes the credit of those of `credited` among the matches.
  std::vector<Match> MatchChain(const std::vector<std::string>& hashes, const std::vector<int32_t>& tokens,
                                const std::vector<std::string>& credited = {}) {
    std::vector<Match> matched;
    const std::vector<std::string_view> views = ViewsOf(hashes);
    const Chain chain(BlockHashSpan(absl::MakeConstSpan(views)), tokens);
    index().Read({"t", "m", "vllm"}, [&](const ScopeView& view) {
      std::vector<ReplicaMatch> matches;
      view.MatchChain("", chain, Ago(kTtl), &matches);
      matched = Owned(matches);
      std::erase_if(matches, [&](const ReplicaMatch& match) {
        return std::find(credited.begin(), credited.end(), match.replica_id) == credited.end();
      });
      view.CreditChain("", chain, matches);
    });
    return matched;
  }
  void CreditHash(std::string_view hash, int times = 1) {
    for (int i = 0; i < times; ++i) {
      index().Read({"t", "m", "vllm"}, [&](const ScopeView& view) {
        std::vector<ReplicaMatch> matches;
        view.MatchHash("", BlockHash(hash), absl::InfinitePast(), &matches);
        view.CreditHash("", BlockHash(hash), matches);
      });
    }
  }

  std::vector<ReplicaState> Rows() { return index().GetState("t", "m").replicas; }
  std::vector<std::string> Present(std::string_view scheme = "vllm") {
    std::vector<std::string> replicas;
    index().Read({"t", "m", scheme}, [&](const ScopeView& view) {
      for (size_t i = 0; i < view.ReplicaCount(); ++i) replicas.emplace_back(view.ReplicaAt(i));
    });
    return replicas;
  }
  KnownKeys Known(const ScopeKey& key) {
    KnownKeys known = KnownKeys::kIndexEmpty;
    index().Read(key, [&](const ScopeView& view) { known = view.Known(); });
    return known;
  }

  IndexOptions options_;
  FakeRetention retention_;
  FakeClock clock_;

 private:
  std::unique_ptr<PrefixIndex> index_;
};

INSTANTIATE_TEST_SUITE_P(Engines, PrefixIndexContractTest, ::testing::ValuesIn(kEngines),
                         [](const ::testing::TestParamInfo<Engine>& engine) { return engine.param.name; });

MATCHER_P3(IsMatch, replica_id, blocks, tokens, "") {
  *result_listener << arg;
  return arg.replica_id == replica_id && arg.blocks == static_cast<uint32_t>(blocks) && arg.tokens == tokens;
}
MATCHER_P(HasTokens, tokens, "") {
  *result_listener << arg;
  return arg.tokens == tokens;
}
MATCHER_P(HasTier, tier, "") {
  *result_listener << arg;
  return arg.tier == tier;
}
MATCHER_P(SeenAt, time, "") {
  *result_listener << arg;
  return arg.last_seen == time;
}
MATCHER_P(HeldBy, replica_id, "") {
  *result_listener << arg;
  return arg.replica_id == replica_id;
}
MATCHER_P(IsRowOf, replica_id, "") { return arg.replica_id == replica_id; }

// Nothing was dropped but, `count` times, for `reason`.
MATCHER_P2(Dropped, reason, count, "") {
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    const DropReason each = static_cast<DropReason>(i);
    if (arg.dropped[each] > 0) *result_listener << DropReasonName(each) << "=" << arg.dropped[each] << " ";
  }
  return arg.dropped[reason] == static_cast<size_t>(count) && arg.dropped.Total() == static_cast<size_t>(count);
}
MATCHER_P(Stored, count, "was applied, stored so many entries and dropped nothing") {
  *result_listener << "applied=" << arg.applied << " stored=" << arg.entries_stored << " dropped "
                   << arg.dropped.Total();
  return arg.applied && arg.entries_stored == static_cast<size_t>(count) && arg.dropped.Total() == 0;
}

// --- Reports -------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, SingleHashIsHeldWithItsCount) {
  EXPECT_THAT(Report({.prefixes = {Single("a", 300)}}), Stored(1));
  EXPECT_THAT(Holders("a"), ElementsAre(IsMatch("r0", 1, 300)));
}

TEST_P(PrefixIndexContractTest, UpdateWithoutContentIsApplied) {
  EXPECT_THAT(Report({}), Stored(0));
  EXPECT_EQ(index().Stats().entries, 0);
}

TEST_P(PrefixIndexContractTest, UpdatesAreDeltas) {
  Report({.prefixes = {Single("a"), Single("b")}});
  Report({.prefixes = {Single("b")}});
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("a", "b"));
}

TEST_P(PrefixIndexContractTest, EmptySchemeDropsPrefixesAndKeepsStats) {
  const ApplyResult result =
      Report({.hash_scheme = "", .prefixes = {Single("a"), Single("b")}, .stats = OwnedStats{.hit_rate = 0.5f}});
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(result.entries_stored, 0u);
  EXPECT_THAT(result, Dropped(DropReason::kMissingScheme, 2));
  EXPECT_EQ(index().Stats().entries, 0);
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r0")));
}

TEST_P(PrefixIndexContractTest, EmptySchemeDropsEvictedHashes) {
  const ApplyResult result = Report({.hash_scheme = "", .evicted_hashes = {"a"}, .evicted_hashes_u64 = {7, 8}});
  EXPECT_THAT(result, Dropped(DropReason::kMissingScheme, 3));
}

TEST_P(PrefixIndexContractTest, AdapterOfAnEntryIsItsOwnElseTheUpdates) {
  OwnedPrefix own = Single("a", 1);
  own.adapter_id = "own";
  Report({.adapter_id = "lora", .prefixes = {own, Single("a", 2)}});
  Report({.prefixes = {Single("a", 3)}});
  EXPECT_THAT(Holders("a", "own"), ElementsAre(HasTokens(1)));
  EXPECT_THAT(Holders("a", "lora"), ElementsAre(HasTokens(2)));
  EXPECT_THAT(Holders("a", ""), ElementsAre(HasTokens(3)));
}

TEST_P(PrefixIndexContractTest, TenantModelAndSchemeKeepEntriesApart) {
  Report({.prefixes = {Single("a", 1)}});
  Report({.model_id = "m2", .prefixes = {Single("a", 2)}});
  Report({.tenant_id = "t2", .prefixes = {Single("a", 3)}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a", 4)}});
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "vllm"}, "", "a"), ElementsAre(HasTokens(1)));
  EXPECT_THAT(HoldersOf(index(), {"t", "m2", "vllm"}, "", "a"), ElementsAre(HasTokens(2)));
  EXPECT_THAT(HoldersOf(index(), {"t2", "m", "vllm"}, "", "a"), ElementsAre(HasTokens(3)));
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "sglang"}, "", "a"), ElementsAre(HasTokens(4)));
}

TEST_P(PrefixIndexContractTest, NamesThatConcatenateAlikeAreDifferent) {
  Report({.model_id = "mm", .tenant_id = "t", .prefixes = {Single("a", 1)}});
  Report({.model_id = "m", .tenant_id = "tm", .prefixes = {Single("a", 2)}});
  EXPECT_THAT(HoldersOf(index(), {"t", "mm", "vllm"}, "", "a"), ElementsAre(HasTokens(1)));
  EXPECT_THAT(HoldersOf(index(), {"tm", "m", "vllm"}, "", "a"), ElementsAre(HasTokens(2)));
}

TEST_P(PrefixIndexContractTest, HashesOfEveryWidthAreOpaque) {
  const std::string longest(kMaxBlockHashBytes, 'x');
  std::vector<OwnedPrefix> prefixes;
  for (size_t width = 1; width <= longest.size(); ++width) {
    prefixes.push_back(Single(longest.substr(0, width), static_cast<int32_t>(width)));
  }
  EXPECT_THAT(Report({.prefixes = prefixes}), Stored(64));
  for (size_t width = 1; width <= longest.size(); ++width) {
    EXPECT_THAT(Holders(longest.substr(0, width)), ElementsAre(HasTokens(static_cast<int32_t>(width))));
  }
}

TEST_P(PrefixIndexContractTest, WideHashesThatShareTheirEndsAreDifferent) {
  const std::string head(8, 'h');
  const std::string tail(8, 't');
  Report({.prefixes = {Single(head + "0000000000000000" + tail, 1), Single(head + "1111111111111111" + tail, 2)}});
  EXPECT_THAT(Holders(head + "0000000000000000" + tail), ElementsAre(HasTokens(1)));
  EXPECT_THAT(Holders(head + "1111111111111111" + tail), ElementsAre(HasTokens(2)));
  EXPECT_THAT(Holders(head), IsEmpty());
}

TEST_P(PrefixIndexContractTest, PackedAndByteHashesAreOneKey) {
  for (uint64_t hash : {uint64_t{0}, uint64_t{1}, uint64_t{0x0102030405060708}, ~uint64_t{0}}) {
    Report({.prefixes = {Single(BytesOf(hash), 16)}});
    Report({.replica_id = "r1", .prefixes = {Packed({hash}, 32)}});
    EXPECT_THAT(Holders(BytesOf(hash)), ElementsAre(IsMatch("r0", 1, 16), IsMatch("r1", 1, 32)));
  }
}

TEST_P(PrefixIndexContractTest, UnspecifiedTierIsT1) {
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(HasTier(Tier::kT1)));
}

TEST_P(PrefixIndexContractTest, TiersAreKeptAndUnknownOnesAreColdest) {
  const std::pair<int32_t, Tier> cases[] = {{1, Tier::kT1},      {2, Tier::kT2},       {3, Tier::kT3},
                                            {4, Tier::kUnknown}, {-1, Tier::kUnknown}, {kMaxInt32, Tier::kUnknown}};
  for (const auto& [wire, tier] : cases) {
    OwnedPrefix prefix = Single("a");
    prefix.tier = wire;
    Report({.prefixes = {prefix}});
    EXPECT_THAT(Holders("a"), ElementsAre(HasTier(tier))) << wire;
  }
}

TEST_P(PrefixIndexContractTest, UnstampedMeansNow) {
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, StampIsKeptToTheMicrosecond) {
  const absl::Time stamp = Ago(absl::Seconds(61) + absl::Microseconds(1));
  Report({.stamped_at = stamp, .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(stamp)));
}

TEST_P(PrefixIndexContractTest, FutureStampIsSetToNow) {
  Report({.stamped_at = Now() + absl::Hours(1), .prefixes = {Single("a")}, .stats = OwnedStats{}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Now())));
  ASSERT_THAT(Rows(), SizeIs(1));
  EXPECT_EQ(Rows()[0].stats.last_seen, Now());
  EXPECT_EQ(Rows()[0].stats.reported, Now());
}

TEST_P(PrefixIndexContractTest, LastWriteWinsEvenWhenItsTimeIsOlder) {
  OwnedPrefix newer = Single("a", 100);
  newer.tier = 3;
  Report({.prefixes = {newer}});
  EXPECT_THAT(Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Single("a", 7)}}), Stored(1));
  EXPECT_THAT(Holders("a"), ElementsAre(AllOf(SeenAt(Ago(absl::Minutes(5))), HasTokens(7), HasTier(Tier::kT1))));
}

TEST_P(PrefixIndexContractTest, StaleStampIsStoredAndCounted) {
  const absl::Time seconds_sent_as_microseconds = absl::FromUnixMicros(1'700'000'000);
  const ApplyResult result = Report({.stamped_at = seconds_sent_as_microseconds, .prefixes = {Single("a")}});
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(result.entries_stored, 1u);
  EXPECT_THAT(result, Dropped(DropReason::kStaleTimestamp, 1));
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(seconds_sent_as_microseconds)));
  EXPECT_THAT(LiveHolders("a"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, StampOfADayAgoIsNotYetStale) {
  EXPECT_THAT(Report({.stamped_at = Ago(absl::Hours(24)), .prefixes = {Single("a")}}), Stored(1));
  EXPECT_THAT(Report({.stamped_at = Ago(absl::Hours(24) + absl::Microseconds(1))}),
              Dropped(DropReason::kStaleTimestamp, 1));
}

TEST_P(PrefixIndexContractTest, ExtremeStampsAreKept) {
  for (int64_t us : {std::numeric_limits<int64_t>::min() + 1, int64_t{-1}, int64_t{1}}) {
    Report({.stamped_at = absl::FromUnixMicros(us), .prefixes = {Single("a")}});
    EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(absl::FromUnixMicros(us)))) << us;
  }
  Report({.stamped_at = absl::FromUnixMicros(std::numeric_limits<int64_t>::max()), .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, ChainStoresEachBlockWithTheRunningTotal) {
  EXPECT_THAT(Report({.prefixes = {Blocks({"a", "b", "c"}, {10, 0, 5})}}), Stored(3));
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(10)));
  EXPECT_THAT(Holders("b"), ElementsAre(HasTokens(10)));
  EXPECT_THAT(Holders("c"), ElementsAre(HasTokens(15)));
}

TEST_P(PrefixIndexContractTest, PackedChainStoresEachBlockWithTheRunningTotal) {
  EXPECT_THAT(Report({.prefixes = {Packed({1, 2, 3}, 16)}}), Stored(3));
  EXPECT_THAT(Holders(BytesOf(1)), ElementsAre(HasTokens(16)));
  EXPECT_THAT(Holders(BytesOf(3)), ElementsAre(HasTokens(48)));
}

TEST_P(PrefixIndexContractTest, PrefixHashOfAChainIsStoredWithItsOwnCount) {
  OwnedPrefix prefix = Blocks({"a", "b"});
  prefix.prefix_hash = "whole";
  prefix.token_count = 1000;
  EXPECT_THAT(Report({.prefixes = {prefix}}), Stored(3));
  EXPECT_THAT(Holders("b"), ElementsAre(HasTokens(32)));
  EXPECT_THAT(Holders("whole"), ElementsAre(HasTokens(1000)));
}

TEST_P(PrefixIndexContractTest, PrefixHashOfAChainIsStoredLast) {
  OwnedPrefix prefix = Blocks({"a", "b"});
  prefix.prefix_hash = "a";
  prefix.token_count = 1000;
  Report({.prefixes = {prefix}});
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(1000)));
}

TEST_P(PrefixIndexContractTest, TokenCountWithoutPrefixHashIsIgnoredBesideAChain) {
  OwnedPrefix prefix = Blocks({"a"}, {16});
  prefix.token_count = -5;
  EXPECT_THAT(Report({.prefixes = {prefix}}), Stored(1));
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(16)));
}

TEST_P(PrefixIndexContractTest, HashTwiceInAChainEndsAsItsLastBlock) {
  Report({.prefixes = {Blocks({"a", "b", "a"}, {1, 2, 4})}});
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(7)));
  EXPECT_EQ(index().Stats().entries, 2);
}

TEST_P(PrefixIndexContractTest, PackedFieldsBesideBlockHashesAreIgnored) {
  OwnedPrefix prefix = Blocks({"a"}, {16});
  prefix.block_hashes_u64 = {1, 2};
  prefix.tokens_per_block = -1;
  EXPECT_THAT(Report({.prefixes = {prefix}}), Stored(1));
  EXPECT_THAT(Holders(BytesOf(1)), IsEmpty());
}

TEST_P(PrefixIndexContractTest, UpdateWithABadNameIsDroppedWhole) {
  const std::string overlong(kMaxNameBytes + 1, 'n');
  const OwnedUpdate good = {.prefixes = {Single("a")}, .stats = OwnedStats{}};
  std::vector<OwnedUpdate> updates(8, good);
  updates[0].replica_id = "";
  updates[1].model_id = "";
  updates[2].tenant_id = "";
  updates[3].replica_id = overlong;
  updates[4].model_id = overlong;
  updates[5].tenant_id = overlong;
  updates[6].hash_scheme = overlong;
  updates[7].adapter_id = overlong;
  for (const OwnedUpdate& update : updates) {
    const ApplyResult result = Report(update);
    EXPECT_FALSE(result.applied);
    EXPECT_EQ(result.entries_stored, 0u);
    EXPECT_THAT(result, Dropped(DropReason::kMalformedUpdate, 1));
  }
  EXPECT_EQ(index().Stats().entries, 0);
  EXPECT_FALSE(index().HoldsModel("m"));
}

TEST_P(PrefixIndexContractTest, NamesOfTheGreatestLengthAreTaken) {
  const std::string name(kMaxNameBytes, 'n');
  EXPECT_THAT(Report({.replica_id = name,
                      .model_id = name,
                      .tenant_id = name,
                      .hash_scheme = name,
                      .adapter_id = name,
                      .prefixes = {Single("a")}}),
              Stored(1));
  EXPECT_THAT(HoldersOf(index(), {name, name, name}, name, "a"), ElementsAre(HeldBy(name)));
}

TEST_P(PrefixIndexContractTest, MalformedEntryIsDroppedAloneAndWhole) {
  const std::string overlong_hash(kMaxBlockHashBytes + 1, 'h');
  std::vector<std::pair<std::string, OwnedPrefix>> cases = {
      {"no hash at all", {}},
      {"a count without hash", {.token_count = 5}},
      {"tokens_per_block without hash", {.tokens_per_block = 16}},
      {"a hash over 64 bytes", Single(overlong_hash)},
      {"a negative count", Single("x", -1)},
      {"hashes without counts", Blocks({"x"}, {})},
      {"counts without hashes", Blocks({}, {16})},
      {"fewer counts than hashes", Blocks({"x", "y"}, {16})},
      {"more counts than hashes", Blocks({"x"}, {16, 16})},
      {"an empty hash in a chain", Blocks({"x", ""}, {16, 16})},
      {"a hash over 64 bytes in a chain", Blocks({"x", overlong_hash}, {16, 16})},
      {"a negative count in a chain", Blocks({"x", "y"}, {16, -1})},
      {"a sum beyond int32", Blocks({"x", "y"}, {kMaxInt32, 1})},
      {"a packed chain without tokens_per_block", Packed({1}, 0)},
      {"a packed chain with negative tokens_per_block", Packed({1}, -16)},
      {"a packed chain with a sum beyond int32", Packed({1, 2, 3}, kMaxInt32 / 2)},
      {"a chain with a bad prefix_hash", Blocks({"x"})},
      {"a chain with a prefix_hash of negative count", Blocks({"x"})},
      {"a mismatched chain with a prefix_hash", Blocks({"x", "y"}, {16})},
      {"a packed chain beside counts", Packed({1}, 16)},
      {"an overlong adapter", Single("x")},
  };
  cases[16].second.prefix_hash = overlong_hash;
  cases[17].second.prefix_hash = "x";
  cases[17].second.token_count = -1;
  cases[18].second.prefix_hash = "x";
  cases[18].second.token_count = 16;
  cases[19].second.block_token_counts = {16};
  cases[20].second.adapter_id = std::string(kMaxNameBytes + 1, 'a');
  for (const auto& [name, prefix] : cases) {
    const ApplyResult result = Report({.prefixes = {Single("before"), prefix, Single("after")}});
    EXPECT_TRUE(result.applied) << name;
    EXPECT_EQ(result.entries_stored, 2u) << name;
    EXPECT_THAT(result, Dropped(DropReason::kMalformedEntry, 1)) << name;
    EXPECT_EQ(index().Stats().entries, 2) << name;
  }
  EXPECT_THAT(Held({"before", "after"}), SizeIs(2));
}

TEST_P(PrefixIndexContractTest, CountsUpToInt32AreTaken) {
  Report({.prefixes = {Single("a", kMaxInt32), Blocks({"b", "c"}, {kMaxInt32 - 1, 1})}});
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(kMaxInt32)));
  EXPECT_THAT(Holders("c"), ElementsAre(HasTokens(kMaxInt32)));
}

TEST_P(PrefixIndexContractTest, ReportedTokensMayBeZero) {
  EXPECT_THAT(Report({.prefixes = {Single("a", 0)}}), Stored(1));
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(0)));
}

// --- Stats ---------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, StatsAreKeptAsReported) {
  Report({.stamped_at = Ago(absl::Seconds(5)),
          .stats = OwnedStats{.cache_memory_bytes = 1 << 20,
                              .hit_rate = 0.75f,
                              .pressure = 0.25f,
                              .client_version = "v1.2",
                              .t2_hit_tokens = 11,
                              .t2_query_tokens = 22}});
  ASSERT_THAT(Rows(), ElementsAre(IsRowOf("r0")));
  const ReplicaStats stats = Rows()[0].stats;
  EXPECT_EQ(stats.cache_memory_bytes, 1 << 20);
  EXPECT_EQ(stats.hit_rate, 0.75f);
  EXPECT_EQ(stats.pressure, 0.25f);
  EXPECT_EQ(stats.client_version, "v1.2");
  EXPECT_EQ(stats.t2_hit_tokens, 11);
  EXPECT_EQ(stats.t2_query_tokens, 22);
  EXPECT_EQ(stats.last_seen, Ago(absl::Seconds(5)));
  EXPECT_EQ(stats.reported, Ago(absl::Seconds(5)));
}

TEST_P(PrefixIndexContractTest, StatsAreOfOneTenantModelAndReplica) {
  Report({.stats = OwnedStats{}});
  EXPECT_THAT(index().GetState("t", "m2").replicas, IsEmpty());
  EXPECT_THAT(index().GetState("t2", "m").replicas, IsEmpty());
  Report({.replica_id = "r1", .stats = OwnedStats{}});
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r0"), IsRowOf("r1")));
}

TEST_P(PrefixIndexContractTest, StatsThatAreNotFiniteBecomeZero) {
  const float inf = std::numeric_limits<float>::infinity();
  for (float bad : {std::nanf(""), inf, -inf}) {
    Report({.stats = OwnedStats{.hit_rate = bad, .pressure = 0.5f}});
    ASSERT_THAT(Rows(), SizeIs(1));
    EXPECT_EQ(Rows()[0].stats.hit_rate, 0);
    EXPECT_EQ(Rows()[0].stats.pressure, 0.5f);
    Report({.stats = OwnedStats{.hit_rate = 0.5f, .pressure = bad}});
    EXPECT_EQ(Rows()[0].stats.hit_rate, 0.5f);
    EXPECT_EQ(Rows()[0].stats.pressure, 0);
  }
}

TEST_P(PrefixIndexContractTest, OlderStatsReplaceNewerOnes) {
  Report({.stats = OwnedStats{.hit_rate = 0.9f}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .stats = OwnedStats{.hit_rate = 0.1f}});
  ASSERT_THAT(Rows(), SizeIs(1));
  EXPECT_EQ(Rows()[0].stats.hit_rate, 0.1f);
  EXPECT_EQ(Rows()[0].stats.reported, Ago(absl::Minutes(1)));
}

TEST_P(PrefixIndexContractTest, UpdateWithoutStatsLeavesThem) {
  Report({.stats = OwnedStats{.hit_rate = 0.9f}});
  const absl::Time reported = Now();
  clock_.Advance(absl::Minutes(1));
  Report({.prefixes = {Single("a")}});
  ASSERT_THAT(Rows(), SizeIs(1));
  EXPECT_EQ(Rows()[0].stats.last_seen, reported);
}

TEST_P(PrefixIndexContractTest, IdleReplicasAreBounded) {
  options_.max_idle_replicas = 2;
  Report({.replica_id = "r0", .stats = OwnedStats{}});
  Report({.replica_id = "r1", .stats = OwnedStats{}});
  const ApplyResult refused = Report({.replica_id = "r2", .tenant_id = "t2", .stats = OwnedStats{}});
  EXPECT_TRUE(refused.applied);
  EXPECT_THAT(refused, Dropped(DropReason::kReplicaLimit, 1));
  EXPECT_THAT(index().GetState("t2", "m").replicas, IsEmpty());
  // Those that are kept are still refreshed, and a replica with entries is not idle.
  EXPECT_THAT(Report({.replica_id = "r1", .stats = OwnedStats{.hit_rate = 0.5f}}), Stored(0));
  EXPECT_THAT(Report({.replica_id = "r3", .prefixes = {Single("a")}, .stats = OwnedStats{}}), Stored(1));
}

TEST_P(PrefixIndexContractTest, SweptReplicasMakeRoomForIdleOnes) {
  options_.max_idle_replicas = 1;
  Report({.replica_id = "r0", .stats = OwnedStats{}});
  clock_.Advance(kTtl);
  Sweep();
  EXPECT_THAT(Report({.replica_id = "r1", .stats = OwnedStats{}}), Stored(0));
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r1")));
}

// --- Order within an update, clear and evictions in it --------------------------------------------------------------

TEST_P(PrefixIndexContractTest, UpdateClearsBeforeItStores) {
  Report({.prefixes = {Single("a"), Single("b")}});
  Report({.clear = true, .prefixes = {Single("b", 7)}});
  EXPECT_THAT(Holders("a"), IsEmpty());
  EXPECT_THAT(Holders("b"), ElementsAre(HasTokens(7)));
}

TEST_P(PrefixIndexContractTest, UpdateEvictsBeforeItStores) {
  Report({.prefixes = {Single("a"), Single("b")}});
  Report({.evicted_hashes = {"a", "b"}, .prefixes = {Single("b", 7)}});
  EXPECT_THAT(Holders("a"), IsEmpty());
  EXPECT_THAT(Holders("b"), ElementsAre(HasTokens(7)));
}

TEST_P(PrefixIndexContractTest, UpdateStoresStatsAfterItClears) {
  Report({.stats = OwnedStats{.hit_rate = 0.1f}});
  Report({.clear = true, .stats = OwnedStats{.hit_rate = 0.9f}});
  ASSERT_THAT(Rows(), SizeIs(1));
  EXPECT_EQ(Rows()[0].stats.hit_rate, 0.9f);
}

TEST_P(PrefixIndexContractTest, PrefixesOfAnUpdateAreStoredInOrder) {
  Report({.prefixes = {Single("a", 1), Blocks({"a", "b"}), Single("b", 2)}});
  EXPECT_THAT(Holders("a"), ElementsAre(HasTokens(16)));
  EXPECT_THAT(Holders("b"), ElementsAre(HasTokens(2)));
}

TEST_P(PrefixIndexContractTest, ClearInAnUpdateIsAnAllClearedOfItsTime) {
  Report({.stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("old")}, .stats = OwnedStats{}});
  Report({.hash_scheme = "sglang", .stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("old")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("new")}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .clear = true});
  EXPECT_THAT(Held({"old", "new"}), ElementsAre("new"));
  EXPECT_THAT(Holders("old", "", "sglang"), IsEmpty());
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(Report({.stamped_at = Ago(absl::Minutes(2) + absl::Microseconds(1))}), Dropped(DropReason::kFenced, 1));
}

TEST_P(PrefixIndexContractTest, ClearNeedsNoScheme) {
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(Report({.hash_scheme = "", .clear = true}), Stored(0));
  EXPECT_THAT(Holders("a"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, EvictedHashesComeInBothForms) {
  Report({.prefixes = {Packed({1, 2, 3, 4}, 16), Single("a")}});
  EXPECT_THAT(Report({.evicted_hashes = {BytesOf(1), "a"}, .evicted_hashes_u64 = {2, 4}}), Stored(0));
  EXPECT_THAT(Held({BytesOf(1), BytesOf(2), BytesOf(3), BytesOf(4), "a"}), ElementsAre(BytesOf(3)));
}

TEST_P(PrefixIndexContractTest, EvictedHashesAreOfExactlyTheUpdatesSchemeAndAdapter) {
  Report({.prefixes = {Single("a")}});
  Report({.adapter_id = "lora", .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}});
  Report({.evicted_hashes = {"a"}});
  EXPECT_THAT(Holders("a"), ElementsAre(HeldBy("r1")));
  EXPECT_THAT(Holders("a", "lora"), ElementsAre(HeldBy("r0")));
  EXPECT_THAT(Holders("a", "", "sglang"), ElementsAre(HeldBy("r0")));
  Report({.adapter_id = "lora", .evicted_hashes = {"a"}});
  EXPECT_THAT(Holders("a", "lora"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, EvictedHashesSpareLaterCopies) {
  Report({.stamped_at = Ago(absl::Seconds(10)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Seconds(10) + absl::Microseconds(1)), .evicted_hashes = {"a"}});
  EXPECT_THAT(Held({"a"}), SizeIs(1));
  Report({.stamped_at = Ago(absl::Seconds(10)), .evicted_hashes = {"a"}});
  EXPECT_THAT(Held({"a"}), IsEmpty());
}

TEST_P(PrefixIndexContractTest, MalformedEvictedHashIsDroppedAlone) {
  Report({.prefixes = {Single("a"), Single("b")}});
  const ApplyResult result =
      Report({.evicted_hashes = {"a", "", std::string(kMaxBlockHashBytes + 1, 'h'), "unknown", "b"}});
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(result, Dropped(DropReason::kMalformedEviction, 2));
  EXPECT_THAT(Held({"a", "b"}), IsEmpty());
}

// --- Events --------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, EvictedEventRemovesUnderEverySchemeAndAdapter) {
  Report({.prefixes = {Single("a"), Single("b")}});
  Report({.adapter_id = "lora", .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  EXPECT_TRUE(Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a"}).applied);
  EXPECT_THAT(Holders("a"), IsEmpty());
  EXPECT_THAT(Holders("a", "lora"), IsEmpty());
  EXPECT_THAT(Holders("a", "", "sglang"), IsEmpty());
  EXPECT_THAT(Holders("b"), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, EvictedEventWithAdapterRemovesUnderThatOneAlone) {
  Report({.prefixes = {Single("a")}});
  Report({.adapter_id = "lora", .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .adapter_id = "lora", .prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a", .adapter_id = "lora"});
  EXPECT_THAT(Holders("a"), SizeIs(1));
  EXPECT_THAT(Holders("a", "lora"), IsEmpty());
  EXPECT_THAT(Holders("a", "lora", "sglang"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, EvictedEventOfOthersChangesNothing) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kPrefixEvicted, .replica_id = "r1", .prefix_hash = "a"});
  Publish({.type = CacheEventType::kPrefixEvicted, .model_id = "m2", .prefix_hash = "a"});
  Publish({.type = CacheEventType::kPrefixEvicted, .tenant_id = "t2", .prefix_hash = "a"});
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "b"});
  EXPECT_THAT(Holders("a"), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, EvictedEventSparesALaterCopyToTheMicrosecond) {
  const absl::Time stored = Ago(absl::Seconds(10));
  Report({.stamped_at = stored, .prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a", .stamped_at = stored - absl::Microseconds(1)});
  EXPECT_THAT(Holders("a"), SizeIs(1));
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a", .stamped_at = stored});
  EXPECT_THAT(Holders("a"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, EventTimeIsCappedAtNow) {
  Report({.stats = OwnedStats{}});
  Publish({.type = CacheEventType::kReplicaUpdated, .stamped_at = Now() + absl::Hours(1)});
  EXPECT_EQ(Rows().at(0).stats.last_seen, Now());
}

TEST_P(PrefixIndexContractTest, AllClearedRemovesWhatIsNotLaterUnderEverySchemeAndAdapter) {
  const absl::Time cleared = Ago(absl::Minutes(1));
  Report({.stamped_at = cleared, .prefixes = {Blocks({"a", "b"})}, .stats = OwnedStats{}});
  Report({.adapter_id = "lora", .stamped_at = cleared, .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .stamped_at = cleared, .prefixes = {Single("a")}});
  Report({.stamped_at = cleared + absl::Microseconds(1), .prefixes = {Single("later")}});
  EXPECT_TRUE(Publish({.type = CacheEventType::kAllCleared, .stamped_at = cleared}).applied);
  EXPECT_THAT(Held({"a", "b", "later"}), ElementsAre("later"));
  EXPECT_THAT(Holders("a", "lora"), IsEmpty());
  EXPECT_THAT(Holders("a", "", "sglang"), IsEmpty());
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_P(PrefixIndexContractTest, AllClearedIsOfOneTenantModelAndReplica) {
  Report({.prefixes = {Single("a")}, .stats = OwnedStats{}});
  Publish({.type = CacheEventType::kAllCleared, .replica_id = "r1"});
  Publish({.type = CacheEventType::kAllCleared, .model_id = "m2"});
  Publish({.type = CacheEventType::kAllCleared, .tenant_id = "t2"});
  EXPECT_THAT(Holders("a"), SizeIs(1));
  EXPECT_THAT(Rows(), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, AllClearedSparesStatsThatAreLater) {
  Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Single("a")}, .stats = OwnedStats{}});
  Publish({.type = CacheEventType::kReplicaUpdated, .stamped_at = Ago(absl::Minutes(1))});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(2))});
  EXPECT_THAT(Held({"a"}), IsEmpty());
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r0")));
}

TEST_P(PrefixIndexContractTest, AllClearedTakesTheAccessCounts) {
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Single("a")}});
  CreditHash("a", 20);
  Publish({.type = CacheEventType::kAllCleared});
  Report({.prefixes = {Single("a")}});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 0);
}

TEST_P(PrefixIndexContractTest, ReplicaUpdatedSetsLastSeenOfTheStatsOnly) {
  const absl::Time reported = Ago(absl::Minutes(5));
  Report({.stamped_at = reported, .prefixes = {Single("a")}, .stats = OwnedStats{.hit_rate = 0.5f}});
  EXPECT_TRUE(Publish({.type = CacheEventType::kReplicaUpdated}).applied);
  ASSERT_THAT(Rows(), SizeIs(1));
  EXPECT_EQ(Rows()[0].stats.last_seen, Now());
  EXPECT_EQ(Rows()[0].stats.reported, reported);
  EXPECT_EQ(Rows()[0].stats.hit_rate, 0.5f);
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(reported)));
}

TEST_P(PrefixIndexContractTest, ReplicaUpdatedSetsLastSeenEvenBack) {
  Report({.stats = OwnedStats{}});
  Publish({.type = CacheEventType::kReplicaUpdated, .stamped_at = Ago(absl::Minutes(5))});
  EXPECT_EQ(Rows().at(0).stats.last_seen, Ago(absl::Minutes(5)));
  EXPECT_EQ(Rows().at(0).stats.reported, Now());
}

TEST_P(PrefixIndexContractTest, ReplicaUpdatedCreatesNoStats) {
  Report({.prefixes = {Single("a")}});
  EXPECT_TRUE(Publish({.type = CacheEventType::kReplicaUpdated}).applied);
  EXPECT_TRUE(Publish({.type = CacheEventType::kReplicaUpdated, .replica_id = "r1"}).applied);
  EXPECT_THAT(Rows(), IsEmpty());
}

TEST_P(PrefixIndexContractTest, AddedAndUnknownEventsDoNothing) {
  Report({.prefixes = {Single("a")}});
  for (CacheEventType type : {CacheEventType::kPrefixAdded, CacheEventType::kUnspecified}) {
    const ApplyResult result = Publish({.type = type, .prefix_hash = "b"});
    EXPECT_TRUE(result.applied);
    EXPECT_EQ(result.dropped.Total(), 0u);
  }
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("a"));
}

TEST_P(PrefixIndexContractTest, MalformedEventIsDropped) {
  Report({.prefixes = {Single("a")}});
  const OwnedEvent evicted = {.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a"};
  std::vector<OwnedEvent> events(5, evicted);
  events[0].replica_id = "";
  events[1].model_id = "";
  events[2].tenant_id = "";
  events[3].prefix_hash = "";
  events[4].prefix_hash = std::string(kMaxBlockHashBytes + 1, 'h');
  for (const OwnedEvent& event : events) {
    const ApplyResult result = Publish(event);
    EXPECT_FALSE(result.applied);
    EXPECT_THAT(result, Dropped(DropReason::kMalformedEvent, 1));
  }
  EXPECT_THAT(Held({"a"}), SizeIs(1));
}

// --- Fences --------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, StampedClearFencesWhatIsStampedEarlier) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  const absl::Time cleared = Ago(absl::Minutes(5));
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = cleared});

  const ApplyResult late =
      Report({.stamped_at = cleared - absl::Microseconds(1), .prefixes = {Single("late")}, .stats = OwnedStats{}});
  EXPECT_FALSE(late.applied);
  EXPECT_THAT(late, Dropped(DropReason::kFenced, 1));
  EXPECT_THAT(Held({"late"}), IsEmpty());
  EXPECT_THAT(Rows(), IsEmpty());
  EXPECT_THAT(Report({.stamped_at = cleared, .prefixes = {Single("on time")}}), Stored(1));
}

TEST_P(PrefixIndexContractTest, FenceDropsEventsStampedEarlier) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(5))});
  Report({.stats = OwnedStats{}});
  for (CacheEventType type :
       {CacheEventType::kPrefixEvicted, CacheEventType::kAllCleared, CacheEventType::kReplicaUpdated,
        CacheEventType::kPrefixAdded, CacheEventType::kUnspecified}) {
    const ApplyResult result = Publish({.type = type, .prefix_hash = "a", .stamped_at = Ago(absl::Minutes(6))});
    EXPECT_FALSE(result.applied);
    EXPECT_THAT(result, Dropped(DropReason::kFenced, 1));
  }
  EXPECT_EQ(Rows().at(0).stats.last_seen, Now());
}

TEST_P(PrefixIndexContractTest, UnstampedPassesEveryFence) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  EXPECT_THAT(Report({.prefixes = {Single("b")}}), Stored(1));
  EXPECT_TRUE(Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "b"}).applied);
}

TEST_P(PrefixIndexContractTest, UnstampedClearLeavesNoFence) {
  Report({.prefixes = {Single("a")}, .stats = OwnedStats{}});
  Publish({.type = CacheEventType::kAllCleared});
  EXPECT_THAT(Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}}), Stored(1));
}

TEST_P(PrefixIndexContractTest, FenceIsOfOneTenantModelAndReplicaUnderEveryScheme) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  const absl::Time before = Ago(absl::Minutes(1));
  EXPECT_TRUE(Report({.replica_id = "r1", .stamped_at = before}).applied);
  EXPECT_TRUE(Report({.model_id = "m2", .stamped_at = before}).applied);
  EXPECT_TRUE(Report({.tenant_id = "t2", .stamped_at = before}).applied);
  EXPECT_FALSE(Report({.hash_scheme = "sglang", .stamped_at = before}).applied);
}

TEST_P(PrefixIndexContractTest, ClearOfNothingLeavesNoFence) {
  EXPECT_TRUE(Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()}).applied);
  Report({.replica_id = "r1", .stamped_at = Now(), .clear = true});
  EXPECT_TRUE(Report({.stamped_at = Ago(absl::Minutes(1))}).applied);
  EXPECT_TRUE(Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(1))}).applied);
}

TEST_P(PrefixIndexContractTest, ClearOfStatsAloneLeavesAFence) {
  Report({.stats = OwnedStats{}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  EXPECT_FALSE(Report({.stamped_at = Ago(absl::Minutes(1))}).applied);
}

TEST_P(PrefixIndexContractTest, ClearThatSparesAllStillLeavesAFence) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(1))});
  EXPECT_THAT(Held({"a"}), SizeIs(1));
  EXPECT_FALSE(Report({.stamped_at = Ago(absl::Minutes(2))}).applied);
}

TEST_P(PrefixIndexContractTest, LaterClearRaisesAFenceEvenIfNothingIsHeld) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(8))});
  EXPECT_TRUE(Report({.stamped_at = Ago(absl::Minutes(7))}).applied);
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(6))});
  EXPECT_FALSE(Report({.stamped_at = Ago(absl::Minutes(7))}).applied);
}

TEST_P(PrefixIndexContractTest, FenceNeverFallsBack) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(1))});
  EXPECT_FALSE(Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(5))}).applied);
  EXPECT_FALSE(Report({.stamped_at = Ago(absl::Minutes(2))}).applied);
}

TEST_P(PrefixIndexContractTest, FenceStandsOneTtlFromItsArrival) {
  Report({.prefixes = {Single("a")}});
  const absl::Time cleared = Ago(absl::Minutes(10));
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = cleared});
  const absl::Time before = cleared - absl::Seconds(1);
  clock_.Advance(kTtl - absl::Microseconds(1));
  Sweep();
  EXPECT_FALSE(Report({.stamped_at = before}).applied);
  clock_.Advance(absl::Microseconds(1));
  EXPECT_TRUE(Report({.stamped_at = before}).applied);
}

TEST_P(PrefixIndexContractTest, RaisedFenceStandsOneTtlFromTheLaterArrival) {
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  clock_.Advance(kTtl / 2);
  const absl::Time raised = Now();
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = raised});
  clock_.Advance(kTtl - absl::Microseconds(1));
  EXPECT_FALSE(Report({.stamped_at = raised - absl::Seconds(1)}).applied);
  clock_.Advance(absl::Microseconds(1));
  EXPECT_TRUE(Report({.stamped_at = raised - absl::Seconds(1)}).applied);
}

TEST_P(PrefixIndexContractTest, FenceOutlivesTheEntriesOfItsReplica) {
  Report({.prefixes = {Single("a")}, .stats = OwnedStats{}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  EXPECT_FALSE(index().HoldsModel("m"));
  EXPECT_FALSE(Report({.stamped_at = Ago(absl::Seconds(1)), .prefixes = {Single("a")}}).applied);
}

// --- Leases --------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, LeaseRenewsAllThatTheReplicaHoldsInTheScope) {
  Report({.prefixes = {Blocks({"a", "b"})}});
  Report({.adapter_id = "lora", .prefixes = {Single("c")}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("d")}});
  const absl::Time reported = Now();
  clock_.Advance(absl::Minutes(20));
  EXPECT_THAT(Report({.retains_all = true}), Stored(0));
  EXPECT_THAT(Holders("a"), ElementsAre(AllOf(HeldBy("r0"), SeenAt(Now())), AllOf(HeldBy("r1"), SeenAt(reported))));
  EXPECT_THAT(Holders("b"), ElementsAre(SeenAt(Now())));
  EXPECT_THAT(Holders("c", "lora"), ElementsAre(SeenAt(Now())));
  EXPECT_THAT(Holders("d", "", "sglang"), ElementsAre(SeenAt(reported)));
}

TEST_P(PrefixIndexContractTest, LeaseRenewsAMatchedRun) {
  Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Blocks({"a", "b"})}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .retains_all = true});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  EXPECT_THAT(MatchChain({"a", "b"}, {16, 16}), ElementsAre(SeenAt(Ago(absl::Minutes(2)))));
}

TEST_P(PrefixIndexContractTest, LeaseOlderThanAnEntryDoesNotAgeIt) {
  Report({.prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(5)), .retains_all = true});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, LeaseCoversEntriesReportedLaterWithAnOlderTime) {
  Report({.prefixes = {Single("a")}, .retains_all = true});
  Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Single("b")}});
  EXPECT_THAT(Holders("b"), ElementsAre(SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, LeaseNeverGoesBack) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .retains_all = true});
  EXPECT_EQ(Report({.stamped_at = Ago(absl::Minutes(5)), .retains_all = true}).dropped.Total(), 0u);
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Ago(absl::Minutes(1)))));
}

TEST_P(PrefixIndexContractTest, LeaseIsCappedAtNow) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.stamped_at = Now() + absl::Hours(1), .retains_all = true});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, LeaseCountsThePrefixesOfItsOwnUpdate) {
  EXPECT_THAT(Report({.prefixes = {Single("a")}, .retains_all = true}), Stored(1));
}

TEST_P(PrefixIndexContractTest, LeaseNeedsAnEntryOfTheReplicaInTheScope) {
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}});
  const ApplyResult result = Report({.retains_all = true});
  EXPECT_TRUE(result.applied);
  EXPECT_THAT(result, Dropped(DropReason::kLeaseRefused, 1));
  Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Ago(absl::Minutes(5))), SeenAt(Now())));
}

TEST_P(PrefixIndexContractTest, LeaseNeedsAScheme) {
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(Report({.hash_scheme = "", .retains_all = true}), Dropped(DropReason::kLeaseRefused, 1));
}

TEST_P(PrefixIndexContractTest, LeaseEndsWithTheLastEntry) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a"), Single("b")}});
  Report({.retains_all = true});
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a"});
  EXPECT_THAT(Holders("b"), ElementsAre(SeenAt(Now())));
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "b"});
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("c")}});
  EXPECT_THAT(Holders("c"), ElementsAre(SeenAt(Ago(absl::Minutes(9)))));
}

TEST_P(PrefixIndexContractTest, LeaseEndsWhenAnUpdateEvictsTheLastEntryAndStoresAnew) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.retains_all = true});
  Report({.stamped_at = Ago(absl::Minutes(9)), .evicted_hashes = {"a"}, .prefixes = {Single("b")}});
  EXPECT_THAT(Holders("b"), ElementsAre(SeenAt(Ago(absl::Minutes(9)))));
}

TEST_P(PrefixIndexContractTest, LeaseEndsWithAClearThatIsNotEarlier) {
  const absl::Time leased = Ago(absl::Minutes(5));
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.prefixes = {Single("later")}});
  Report({.hash_scheme = "sglang", .stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a"), Single("b")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("later")}});
  Report({.stamped_at = leased, .retains_all = true});
  Report({.hash_scheme = "sglang", .stamped_at = leased, .retains_all = true});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = leased});
  // Unstamped messages pass the fence, but carry no old time; a TTL later the fence is gone.
  clock_.Advance(kTtl);
  const absl::Time old = leased - absl::Minutes(1);
  Report({.stamped_at = old, .prefixes = {Single("c")}});
  Report({.hash_scheme = "sglang", .stamped_at = old, .prefixes = {Single("c")}});
  EXPECT_THAT(Holders("c"), ElementsAre(SeenAt(old)));
  EXPECT_THAT(Holders("c", "", "sglang"), ElementsAre(SeenAt(old)));
}

TEST_P(PrefixIndexContractTest, LeaseSurvivesAnEarlierClear) {
  const absl::Time leased = Ago(absl::Minutes(5));
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("gone")}});
  Report({.stamped_at = Ago(absl::Minutes(7)), .prefixes = {Single("kept")}});
  Report({.stamped_at = leased, .retains_all = true});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(8))});
  EXPECT_THAT(Held({"gone", "kept"}), ElementsAre("kept"));
  EXPECT_THAT(Holders("kept"), ElementsAre(SeenAt(leased)));
}

TEST_P(PrefixIndexContractTest, EvictionsAndClearsCompareTheEntrysOwnTime) {
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a"), Single("b"), Single("c")}});
  Report({.retains_all = true});
  Publish({.type = CacheEventType::kPrefixEvicted, .prefix_hash = "a", .stamped_at = Ago(absl::Minutes(5))});
  EXPECT_THAT(Held({"a"}), IsEmpty());
  Report({.stamped_at = Ago(absl::Minutes(5)), .evicted_hashes = {"b"}});
  EXPECT_THAT(Held({"b"}), IsEmpty());
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Ago(absl::Minutes(5))});
  EXPECT_THAT(Held({"c"}), IsEmpty());
}

TEST_P(PrefixIndexContractTest, LeaseRevivesWhatIsDeadButNotFreed) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl);
  EXPECT_THAT(LiveHolders("a"), IsEmpty());
  Report({.retains_all = true});
  EXPECT_THAT(LiveHolders("a"), ElementsAre(SeenAt(Now())));
  EXPECT_EQ(Sweep(), 0u);
}

TEST_P(PrefixIndexContractTest, LeaseHoldsOffExpiry) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl - absl::Seconds(1));
  Report({.retains_all = true});
  clock_.Advance(kTtl - absl::Seconds(1));
  EXPECT_EQ(Sweep(), 0u);
  EXPECT_THAT(LiveHolders("a"), SizeIs(1));
  clock_.Advance(absl::Seconds(1));
  EXPECT_EQ(Sweep(), 1u);
}

// --- Expiry --------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, EntryDiesWhenItsAgeReachesTheTtl) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl - absl::Microseconds(1));
  EXPECT_EQ(Sweep(), 0u);
  EXPECT_THAT(LiveHolders("a"), SizeIs(1));
  clock_.Advance(absl::Microseconds(1));
  EXPECT_THAT(LiveHolders("a"), IsEmpty());
  EXPECT_THAT(MatchChain({"a"}, {16}), IsEmpty());
  EXPECT_EQ(Sweep(), 1u);
  EXPECT_EQ(index().Stats().entries, 0);
}

TEST_P(PrefixIndexContractTest, DeadEntriesArePresentUntilFreed) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl * 2);
  EXPECT_THAT(Present(), ElementsAre("r0"));
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kScopeKnown);
  EXPECT_EQ(index().GetState("t", "m").total_prefixes, 1);
  EXPECT_EQ(index().Stats().entries, 1);
  Sweep();
  EXPECT_THAT(Present(), IsEmpty());
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kIndexEmpty);
  EXPECT_EQ(index().GetState("t", "m").total_prefixes, 0);
}

TEST_P(PrefixIndexContractTest, RefreshedEntryLivesOn) {
  Report({.prefixes = {Blocks({"a", "b"})}});
  clock_.Advance(kTtl / 2);
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl / 2);
  EXPECT_EQ(Sweep(), 1u);
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("a"));
}

TEST_P(PrefixIndexContractTest, TtlIsTheTenantsOwn) {
  SetTtl("t2", absl::Minutes(1));
  Report({.prefixes = {Single("a")}});
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Sweep(), 1u);
  EXPECT_THAT(Held({"a"}), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, ShortenedTtlActsAtTheNextSweep) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ(Sweep(), 0u);
  SetTtl("t", absl::Minutes(2));
  EXPECT_EQ(Sweep(), 1u);
}

TEST_P(PrefixIndexContractTest, LengthenedTtlSparesWhatWouldHaveDied) {
  Report({.prefixes = {Single("a")}});
  clock_.Advance(kTtl);
  SetTtl("t", kTtl * 2);
  EXPECT_EQ(Sweep(), 0u);
  clock_.Advance(kTtl);
  EXPECT_EQ(Sweep(), 1u);
}

TEST_P(PrefixIndexContractTest, EntryReportedWithAnOldTimeDiesByThatTime) {
  Report({.prefixes = {Single("a")}});
  Report({.stamped_at = Ago(kTtl - absl::Minutes(1)), .prefixes = {Single("a")}});
  clock_.Advance(absl::Minutes(1));
  EXPECT_EQ(Sweep(), 1u);
}

TEST_P(PrefixIndexContractTest, SweepCountsEntriesByTheTenantsAlgorithm) {
  SetAlgorithm("t2", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Blocks({"a", "b"})}});
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  clock_.Advance(kTtl);
  EXPECT_EQ(Sweep(), 3u);
  EXPECT_THAT(index().Stats().expired, ElementsAre(2, 1));
}

TEST_P(PrefixIndexContractTest, SweepCountsEntriesByTheAlgorithmInForce) {
  Report({.prefixes = {Single("a")}});
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  clock_.Advance(kTtl);
  EXPECT_EQ(Sweep(), 1u);
  EXPECT_THAT(index().Stats().expired, ElementsAre(0, 1));
}

TEST_P(PrefixIndexContractTest, StatsDieByTheirLastSeen) {
  Report({.replica_id = "r0", .stats = OwnedStats{}});
  Report({.replica_id = "r1", .stats = OwnedStats{}});
  clock_.Advance(kTtl - absl::Minutes(1));
  Publish({.type = CacheEventType::kReplicaUpdated, .replica_id = "r1"});
  clock_.Advance(absl::Minutes(1));
  EXPECT_THAT(Rows(), SizeIs(2));  // dead, not yet freed
  EXPECT_EQ(Sweep(), 0u);          // no entry among them
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r1")));
}

TEST_P(PrefixIndexContractTest, SweepFreesFences) {
  options_.max_idle_replicas = 1;
  Report({.prefixes = {Single("a")}});
  Publish({.type = CacheEventType::kAllCleared, .stamped_at = Now()});
  EXPECT_THAT(Report({.replica_id = "r1", .stats = OwnedStats{}}), Dropped(DropReason::kReplicaLimit, 1));
  clock_.Advance(kTtl);
  Sweep();
  EXPECT_THAT(Report({.replica_id = "r1", .stats = OwnedStats{}}), Stored(0));
}

// --- The cap -------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, CapIsNotExceeded) {
  options_.max_entries = 3;
  Report({.prefixes = {Blocks({"a", "b", "c"})}});
  EXPECT_EQ(index().Stats().entries, 3);
  Report({.prefixes = {Blocks({"d", "e"})}});
  EXPECT_EQ(index().Stats().entries, 3);
  EXPECT_THAT(index().Stats().evicted_for_cap, ElementsAre(2, 0));
}

TEST_P(PrefixIndexContractTest, NoCapKeepsAll) {
  options_.max_entries = 0;
  for (int i = 0; i < 100; ++i) Report({.prefixes = {Single(std::to_string(i))}});
  EXPECT_EQ(index().Stats().entries, 100);
}

TEST_P(PrefixIndexContractTest, CapEvictsTheOldestReportFirst) {
  options_.max_entries = 2;
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("b")}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("a", "c"));
}

TEST_P(PrefixIndexContractTest, ArrivalOlderThanAllElseIsItselfEvicted) {
  options_.max_entries = 2;
  Report({.prefixes = {Single("a"), Single("b")}});
  const ApplyResult result = Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("c")}});
  EXPECT_THAT(result, Stored(1));
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("a", "b"));
}

TEST_P(PrefixIndexContractTest, CapCountsEntriesOverTenantsModelsAndReplicas) {
  options_.max_entries = 3;
  Report({.stamped_at = Ago(absl::Minutes(4)), .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("a")}});
  Report({.model_id = "m2", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.tenant_id = "t2", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  EXPECT_EQ(index().Stats().entries, 3);
  EXPECT_THAT(Holders("a"), ElementsAre(HeldBy("r1")));
}

TEST_P(PrefixIndexContractTest, CapTakesTheTailOfAChainBeforeItsHead) {
  options_.max_entries = 3;
  Report({.prefixes = {Blocks({"a", "b", "c", "d", "e"})}});
  EXPECT_THAT(Held({"a", "b", "c", "d", "e"}), ElementsAre("a", "b", "c"));
}

TEST_P(PrefixIndexContractTest, CapTakesTheTailOfARefreshedChainBeforeItsHead) {
  options_.max_entries = 4;
  Report({.prefixes = {Single("d"), Single("c"), Single("b"), Single("a")}});
  Report({.prefixes = {Blocks({"a", "b", "c", "d"})}});
  Report({.prefixes = {Single("x"), Single("y")}});
  EXPECT_THAT(Held({"a", "b", "c", "d", "x", "y"}), ElementsAre("a", "b", "x", "y"));
}

TEST_P(PrefixIndexContractTest, DepthIsThatOfTheLastReport) {
  options_.max_entries = 3;
  Report({.prefixes = {Blocks({"a", "b", "c"})}});
  Report({.prefixes = {Single("c")}});
  Report({.prefixes = {Single("d")}});
  EXPECT_THAT(Held({"a", "b", "c", "d"}), ElementsAre("a", "c", "d"));
}

TEST_P(PrefixIndexContractTest, CapHonoursLeases) {
  options_.max_entries = 2;
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("b")}});
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(1)), .retains_all = true});
  Report({.replica_id = "r2", .prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("a", "c"));
}

TEST_P(PrefixIndexContractTest, LeaseEndsWhenTheCapTakesTheLastEntry) {
  options_.max_entries = 1;
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(5)), .retains_all = true});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(4)), .prefixes = {Single("b")}});
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("b"));
  Publish({.type = CacheEventType::kAllCleared, .replica_id = "r1"});
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), ElementsAre(SeenAt(Ago(absl::Minutes(9)))));
}

TEST_P(PrefixIndexContractTest, LfuEvictsTheLeastUsedFirstAndTheOlderAmongEquals) {
  options_.max_entries = 3;
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.stamped_at = Ago(absl::Minutes(5)), .prefixes = {Single("used")}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("newer")}});
  Report({.stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("older")}});
  CreditHash("used");
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(Held({"used", "newer", "older", "a"}), ElementsAre("used", "newer", "a"));
}

TEST_P(PrefixIndexContractTest, LruEntriesCountAsNeverUsed) {
  options_.max_entries = 2;
  SetAlgorithm("t2", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Single("a")}});
  CreditHash("a", 5);
  Report({.tenant_id = "t2", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("b")}});
  index().Read({"t2", "m", "vllm"}, [&](const ScopeView& view) {
    std::vector<ReplicaMatch> matches;
    view.MatchHash("", BlockHash("b"), absl::InfinitePast(), &matches);
    view.CreditHash("", BlockHash("b"), matches);
  });
  clock_.Advance(absl::Seconds(1));
  Report({.prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "c"}), ElementsAre("c"));
  EXPECT_THAT(HoldersOf(index(), {"t2", "m", "vllm"}, "", "b"), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, RefreshKeepsTheAccessCount) {
  options_.max_entries = 2;
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Single("a")}});
  CreditHash("a");
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Blocks({"x", "a"})}});
  Report({.prefixes = {Single("b")}});
  EXPECT_THAT(Held({"x", "a", "b"}), ElementsAre("a", "b"));
}

TEST_P(PrefixIndexContractTest, RemovedEntryStartsCountingAtZero) {
  options_.max_entries = 2;
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Single("a")}});
  CreditHash("a", 3);
  Report({.evicted_hashes = {"a"}, .prefixes = {Single("a")}});
  clock_.Advance(absl::Seconds(1));
  Report({.prefixes = {Single("b")}});
  clock_.Advance(absl::Seconds(1));
  Report({.prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("b", "c"));
}

TEST_P(PrefixIndexContractTest, ChangedAlgorithmActsAtTheNextEvictionAndKeepsCounts) {
  options_.max_entries = 2;
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("b")}});
  CreditHash("a");
  SetAlgorithm("t", EvictionAlgorithm::kLru);
  EXPECT_EQ(index().Stats().entries, 2);
  Report({.prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("b", "c"));
  CreditHash("b");
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  Report({.prefixes = {Single("d")}});
  EXPECT_THAT(Held({"b", "c", "d"}), ::testing::Contains("b"));
}

TEST_P(PrefixIndexContractTest, CapEvictionsAreCountedByTheTenantsAlgorithm) {
  options_.max_entries = 1;
  SetAlgorithm("t2", EvictionAlgorithm::kLfu);
  Report({.stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("a")}});
  Report({.tenant_id = "t2", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("b")}});
  EXPECT_THAT(index().Stats().evicted_for_cap, ElementsAre(1, 1));
}

TEST_P(PrefixIndexContractTest, EventsEvictNothing) {
  options_.max_entries = 1;
  SetQuota("t", std::nullopt);
  Report({.prefixes = {Single("a")}});
  SetQuota("t", 0);
  Publish({.type = CacheEventType::kReplicaUpdated});
  EXPECT_THAT(Held({"a"}), SizeIs(1));
}

// --- Quotas --------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, QuotaTakesTheTenantsOldestPrefixesAndNoOneElses) {
  SetQuota("t", 2);
  Report({.tenant_id = "t2", .stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("z")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  Report({.model_id = "m2", .stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("b")}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "c"}), ElementsAre("a", "c"));
  EXPECT_THAT(HoldersOf(index(), {"t", "m2", "vllm"}, "", "b"), IsEmpty());
  EXPECT_THAT(HoldersOf(index(), {"t2", "m", "vllm"}, "", "z"), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, QuotaCountsPrefixesNotHolders) {
  SetQuota("t", 1);
  Report({.replica_id = "r0", .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), SizeIs(2));
}

TEST_P(PrefixIndexContractTest, QuotaCountsOnePrefixPerPartition) {
  SetQuota("t", 1);
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.adapter_id = "lora", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  EXPECT_THAT(Holders("a"), IsEmpty());
  EXPECT_THAT(Holders("a", "lora"), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, QuotaTakesAPrefixWithAllItsHolders) {
  SetQuota("t", 1);
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(3)), .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.prefixes = {Single("b")}});
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("b"));
  EXPECT_EQ(index().Stats().entries, 1);
}

TEST_P(PrefixIndexContractTest, PrefixIsAsOldAsItsFreshestHolder) {
  SetQuota("t", 2);
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("b")}});
  Report({.prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("a", "c"));
}

TEST_P(PrefixIndexContractTest, QuotaHonoursLeases) {
  SetQuota("t", 2);
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.replica_id = "r0", .stamped_at = Ago(absl::Minutes(1)), .retains_all = true});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("b")}});
  Report({.replica_id = "r1", .prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a", "b", "c"}), ElementsAre("a", "c"));
}

TEST_P(PrefixIndexContractTest, QuotaTakesTheDeepestOfEquallyOldPrefixes) {
  SetQuota("t", 2);
  Report({.prefixes = {Blocks({"a", "b", "c", "d"})}});
  EXPECT_THAT(Held({"a", "b", "c", "d"}), ElementsAre("a", "b"));
}

TEST_P(PrefixIndexContractTest, QuotaIgnoresAccessCounts) {
  SetAlgorithm("t", EvictionAlgorithm::kLfu);
  SetQuota("t", 1);
  Report({.stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  CreditHash("a", 5);
  Report({.prefixes = {Single("b")}});
  EXPECT_THAT(Held({"a", "b"}), ElementsAre("b"));
}

TEST_P(PrefixIndexContractTest, QuotaOfZeroAdmitsNothing) {
  SetQuota("t", 0);
  const ApplyResult result = Report({.prefixes = {Single("a")}, .stats = OwnedStats{}});
  EXPECT_TRUE(result.applied);
  EXPECT_EQ(index().Stats().entries, 0);
  EXPECT_THAT(Rows(), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, ChangedQuotaActsAtTheTenantsNextReport) {
  Report({.prefixes = {Single("a"), Single("b"), Single("c")}});
  SetQuota("t", 1);
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  EXPECT_THAT(Held({"a", "b", "c"}), SizeIs(3));
  Report({.model_id = "m2"});
  EXPECT_THAT(Held({"a", "b", "c"}), SizeIs(1));
}

TEST_P(PrefixIndexContractTest, QuotaGoesBeforeTheCap) {
  options_.max_entries = 2;
  SetQuota("t2", 1);
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {Single("a")}});
  Report({.tenant_id = "t2", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("b")}});
  Report({.tenant_id = "t2", .prefixes = {Single("c")}});
  EXPECT_THAT(Held({"a"}), SizeIs(1));
  EXPECT_THAT(HoldersOf(index(), {"t2", "m", "vllm"}, "", "b"), IsEmpty());
  EXPECT_THAT(index().Stats().evicted_for_cap, ElementsAre(0, 0));
}

TEST_P(PrefixIndexContractTest, QuotaEvictionsAreCountedInPrefixesByTenant) {
  SetQuota("t", 1);
  SetQuota("silent", 1);
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(2)), .prefixes = {Single("a")}});
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a"), Single("b"), Single("c")}});
  Report({.tenant_id = "unlimited", .prefixes = {Single("a")}});
  std::vector<std::pair<std::string, int64_t>> tenants;
  index().ForEachQuotaTenant(
      [&](std::string_view tenant_id, int64_t evicted) { tenants.emplace_back(tenant_id, evicted); });
  EXPECT_THAT(tenants, UnorderedElementsAre(Pair("t", 2), Pair("silent", 0)));
}

// --- Matching ------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, ExactMatchGivesEveryHolderWithItsOwnValues) {
  OwnedPrefix cold = Single("a", 20);
  cold.tier = 2;
  Report({.prefixes = {Single("a", 10)}});
  Report({.replica_id = "r1", .stamped_at = Ago(absl::Minutes(1)), .prefixes = {cold}});
  EXPECT_THAT(
      Holders("a"),
      ElementsAre(
          Match{.replica_id = "r0", .blocks = 1, .tokens = 10, .last_seen = Now(), .tier = Tier::kT1},
          Match{.replica_id = "r1", .blocks = 1, .tokens = 20, .last_seen = Ago(absl::Minutes(1)), .tier = Tier::kT2}));
}

TEST_P(PrefixIndexContractTest, ExpiredThroughIsExcluded) {
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {Single("a")}});
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "vllm"}, "", "a", Ago(absl::Minutes(1))), IsEmpty());
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "vllm"}, "", "a", Ago(absl::Minutes(1)) - absl::Microseconds(1)),
              SizeIs(1));
}

TEST_P(PrefixIndexContractTest, ChainMatchGivesEachReplicaItsLeadingRun) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b", "c", "d"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"a", "b"})}});
  Report({.replica_id = "r2", .prefixes = {Blocks({"a"})}});
  Report({.replica_id = "r3", .prefixes = {Blocks({"x", "b", "c"})}});
  EXPECT_THAT(MatchChain({"a", "b", "c", "d", "e"}, {64, 64, 64, 64, 64}),
              ElementsAre(IsMatch("r0", 4, 256), IsMatch("r1", 2, 128), IsMatch("r2", 1, 64)));
}

TEST_P(PrefixIndexContractTest, ReplicaThatDropsOutIsOutForGood) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b", "c"})}});
  Report({.replica_id = "r1", .prefixes = {Single("a"), Single("c")}});
  EXPECT_THAT(MatchChain({"a", "b", "c"}, {1, 2, 4}), ElementsAre(IsMatch("r0", 3, 7), IsMatch("r1", 1, 1)));
}

TEST_P(PrefixIndexContractTest, BlocksReportedOneByOneMatchLikeAChain) {
  for (const char* hash : {"c", "a", "d", "b"}) Report({.prefixes = {Single(hash, 1000)}});
  EXPECT_THAT(MatchChain({"a", "b", "c", "d"}, {1, 2, 3, 4}), ElementsAre(IsMatch("r0", 4, 10)));
}

TEST_P(PrefixIndexContractTest, ChainMayStartAnywhereInAReportedOne) {
  Report({.prefixes = {Blocks({"a", "b", "c", "d"})}});
  EXPECT_THAT(MatchChain({"b", "c"}, {5, 5}), ElementsAre(IsMatch("r0", 2, 10)));
  EXPECT_THAT(MatchChain({"d", "a"}, {5, 5}), ElementsAre(IsMatch("r0", 2, 10)));
}

TEST_P(PrefixIndexContractTest, ChainMatchCountsTheRequestsTokens) {
  Report({.prefixes = {Blocks({"a", "b"}, {16, 16})}});
  EXPECT_THAT(MatchChain({"a", "b"}, {100, 11}), ElementsAre(IsMatch("r0", 2, 111)));
}

TEST_P(PrefixIndexContractTest, ChainMatchTakesOldestTimeAndColdestTierOfTheRunOnly) {
  OwnedPrefix t2 = Single("a");
  OwnedPrefix t1 = Single("b");
  OwnedPrefix t3 = Single("c");
  t2.tier = 2;
  t3.tier = 3;
  Report({.stamped_at = Ago(absl::Minutes(1)), .prefixes = {t2}});
  Report({.stamped_at = Ago(absl::Minutes(3)), .prefixes = {t1}});
  Report({.stamped_at = Ago(absl::Minutes(9)), .prefixes = {t3}});
  EXPECT_THAT(MatchChain({"a", "b"}, {1, 1}), ElementsAre(AllOf(SeenAt(Ago(absl::Minutes(3))), HasTier(Tier::kT2))));
  EXPECT_THAT(MatchChain({"a", "b", "c"}, {1, 1, 1}),
              ElementsAre(AllOf(SeenAt(Ago(absl::Minutes(9))), HasTier(Tier::kT3))));
}

TEST_P(PrefixIndexContractTest, DeadBlockEndsTheRun) {
  Report({.prefixes = {Blocks({"a", "b", "c"})}});
  clock_.Advance(kTtl);
  Report({.prefixes = {Single("a"), Single("c")}});
  EXPECT_THAT(MatchChain({"a", "b", "c"}, {1, 1, 1}), ElementsAre(IsMatch("r0", 1, 1)));
}

TEST_P(PrefixIndexContractTest, EvictedBlockEndsTheRunUntilItIsReportedAgain) {
  Report({.prefixes = {Blocks({"a", "b", "c"})}});
  Report({.evicted_hashes = {"b"}});
  EXPECT_THAT(MatchChain({"a", "b", "c"}, {1, 1, 1}), ElementsAre(IsMatch("r0", 1, 1)));
  EXPECT_THAT(Holders("c"), ElementsAre(HasTokens(48)));
  Report({.prefixes = {Single("b")}});
  EXPECT_THAT(MatchChain({"a", "b", "c"}, {1, 1, 1}), ElementsAre(IsMatch("r0", 3, 3)));
}

TEST_P(PrefixIndexContractTest, RunOfZeroTokensIsMatched) {
  Report({.prefixes = {Blocks({"a", "b"})}});
  EXPECT_THAT(MatchChain({"a", "b"}, {0, 0}), ElementsAre(IsMatch("r0", 2, 0)));
}

TEST_P(PrefixIndexContractTest, HashTwiceInTheRequestCountsTwice) {
  Report({.prefixes = {Blocks({"a", "b"})}});
  EXPECT_THAT(MatchChain({"a", "a", "b"}, {1, 2, 4}), ElementsAre(IsMatch("r0", 3, 7)));
}

TEST_P(PrefixIndexContractTest, EmptyChainAndUnknownScopeMatchNothing) {
  Report({.prefixes = {Single("a")}});
  EXPECT_THAT(MatchChain({}, {}), IsEmpty());
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "other"}, "", "a"), IsEmpty());
  EXPECT_THAT(HoldersOf(index(), {"t", "m", "vllm"}, "other", "a"), IsEmpty());
}

TEST_P(PrefixIndexContractTest, MatchersReplaceWhatTheVectorHeld) {
  Report({.prefixes = {Single("a")}});
  index().Read({"t", "m", "vllm"}, [](const ScopeView& view) {
    std::vector<ReplicaMatch> matches(3);
    view.MatchHash("", BlockHash("a"), absl::InfinitePast(), &matches);
    EXPECT_EQ(matches.size(), 1u);
    view.MatchHash("", BlockHash("unknown"), absl::InfinitePast(), &matches);
    EXPECT_TRUE(matches.empty());
    matches.resize(3);
    view.MatchChain("", Chain(), absl::InfinitePast(), &matches);
    EXPECT_TRUE(matches.empty());
  });
}

TEST_P(PrefixIndexContractTest, MatchCarriesTheStatsOfItsReplica) {
  Report({.prefixes = {Single("a")}, .stats = OwnedStats{.pressure = 0.5f}});
  Report({.replica_id = "r1", .prefixes = {Single("b")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  Report({.model_id = "m2", .prefixes = {Single("a")}});
  const auto pressure = [&](const ScopeKey& key, std::string_view hash) {
    float found = -1;
    index().Read(key, [&](const ScopeView& view) {
      std::vector<ReplicaMatch> matches;
      view.MatchHash("", BlockHash(hash), absl::InfinitePast(), &matches);
      ASSERT_THAT(matches, SizeIs(1));
      if (matches[0].stats != nullptr) found = matches[0].stats->pressure;
      view.MatchChain("", Chain(BlockHashSpan({&hash, 1}), 16), absl::InfinitePast(), &matches);
      ASSERT_THAT(matches, SizeIs(1));
      EXPECT_EQ(matches[0].stats != nullptr, found >= 0);
    });
    return found;
  };
  EXPECT_EQ(pressure({"t", "m", "vllm"}, "a"), 0.5f);
  EXPECT_EQ(pressure({"t", "m", "sglang"}, "a"), 0.5f);
  EXPECT_EQ(pressure({"t", "m", "vllm"}, "b"), -1);
  EXPECT_EQ(pressure({"t", "m2", "vllm"}, "a"), -1);
}

// --- Access counts -------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, PrefixIsHotFromTheThresholdOn) {
  options_.hot_threshold = 3;
  Report({.prefixes = {Single("a"), Single("b")}});
  CreditHash("a", 2);
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 0);
  CreditHash("a");
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 1);
}

TEST_P(PrefixIndexContractTest, PrefixIsHotByAnyOneHolder) {
  options_.hot_threshold = 2;
  Report({.replica_id = "r0", .prefixes = {Single("a")}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}});
  MatchChain({"a"}, {16}, {"r0"});
  MatchChain({"a"}, {16}, {"r1"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 0);
  MatchChain({"a"}, {16}, {"r1"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 1);
}

TEST_P(PrefixIndexContractTest, CreditIsForTheMatchedRunAlone) {
  options_.hot_threshold = 1;
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b", "c"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"a", "c"})}});
  MatchChain({"a", "b", "x", "c"}, {16, 16, 16, 16}, {"r0"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 2);
}

TEST_P(PrefixIndexContractTest, BlocksOfZeroTokensEarnNothing) {
  options_.hot_threshold = 1;
  Report({.prefixes = {Blocks({"a", "b", "c"}), Single("zero", 0)}});
  MatchChain({"a", "b", "c"}, {16, 0, 16}, {"r0"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 2);
  CreditHash("zero");
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 2);
}

TEST_P(PrefixIndexContractTest, HashTwiceInAChainEarnsOncePerLookup) {
  options_.hot_threshold = 2;
  Report({.prefixes = {Blocks({"a", "b"})}});
  MatchChain({"a", "b", "a"}, {16, 16, 16}, {"r0"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 0);
  MatchChain({"a", "b", "a"}, {0, 16, 16}, {"r0"});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 2);
}

TEST_P(PrefixIndexContractTest, LookupsWithoutCreditChangeNothing) {
  options_.hot_threshold = 1;
  Report({.prefixes = {Blocks({"a", "b"})}});
  MatchChain({"a", "b"}, {16, 16});
  EXPECT_EQ(index().GetState("t", "m").hot_prefixes, 0);
}

// --- Views ---------------------------------------------------------------------------------------------------------

TEST_P(PrefixIndexContractTest, PresentReplicasAreListedBytewise) {
  for (const char* replica : {"r10", "r2", "R1", "\xff", "r1"}) {
    Report({.replica_id = replica, .prefixes = {Single("a")}});
  }
  EXPECT_THAT(Present(), ElementsAre("R1", "r1", "r10", "r2", "\xff"));
}

TEST_P(PrefixIndexContractTest, ReplicaIsPresentUnderAnyAdapterOfTheScope) {
  Report({.adapter_id = "lora", .prefixes = {Single("a")}, .stats = OwnedStats{}});
  EXPECT_THAT(Present(), ElementsAre("r0"));
  EXPECT_THAT(Present("sglang"), IsEmpty());
  index().Read({"t", "m", "vllm"}, [](const ScopeView& view) {
    EXPECT_TRUE(view.HasReplica("r0"));
    EXPECT_FALSE(view.HasReplica("r1"));
  });
}

TEST_P(PrefixIndexContractTest, MatchesSayWhereTheirReplicasStandByName) {
  const auto expect_right_places = [&] {
    index().Read({"t", "m", "vllm"}, [&](const ScopeView& view) {
      std::vector<ReplicaMatch> matches;
      view.MatchHash("", BlockHash("a"), absl::InfinitePast(), &matches);
      EXPECT_EQ(matches.size(), view.ReplicaCount());
      for (const ReplicaMatch& match : matches) EXPECT_EQ(view.ReplicaAt(match.name_order), match.replica_id);
    });
  };
  for (const char* replica_id : {"r2", "r1", "r10", "r3", "R"}) {
    Report({.replica_id = replica_id, .prefixes = {Single("a")}});
    expect_right_places();
  }
  for (const char* replica_id : {"r1", "r3", "R"}) {
    Report({.replica_id = replica_id, .evicted_hashes = {"a"}});
    expect_right_places();
  }
  Report({.replica_id = "r0", .prefixes = {Single("a")}});
  expect_right_places();
}

TEST_P(PrefixIndexContractTest, ReplicaLeavesTheScopeWithItsLastEntry) {
  Report({.prefixes = {Single("a")}, .stats = OwnedStats{}});
  Report({.adapter_id = "lora", .prefixes = {Single("a")}});
  Report({.evicted_hashes = {"a"}});
  EXPECT_THAT(Present(), ElementsAre("r0"));
  Report({.adapter_id = "lora", .evicted_hashes = {"a"}});
  EXPECT_THAT(Present(), IsEmpty());
}

TEST_P(PrefixIndexContractTest, StatsRowsTellWhoIsPresentInTheScope) {
  Report({.replica_id = "r0", .prefixes = {Single("a")}, .stats = OwnedStats{}});
  Report({.replica_id = "r1", .hash_scheme = "sglang", .prefixes = {Single("a")}, .stats = OwnedStats{}});
  Report({.replica_id = "r2", .prefixes = {Single("a")}});
  Report({.replica_id = "r3", .model_id = "m2", .stats = OwnedStats{}});
  std::vector<std::pair<std::string, bool>> rows;
  index().Read({"t", "m", "vllm"}, [&](const ScopeView& view) {
    view.ForEachStats([&](std::string_view replica_id, const ReplicaStats&, bool present) {
      rows.emplace_back(replica_id, present);
    });
  });
  EXPECT_THAT(rows, UnorderedElementsAre(Pair("r0", true), Pair("r1", false)));
}

TEST_P(PrefixIndexContractTest, StatsAreReadableInAnUnknownScope) {
  Report({.stats = OwnedStats{}});
  int rows = 0;
  index().Read({"t", "m", "vllm"}, [&](const ScopeView& view) {
    EXPECT_EQ(view.ReplicaCount(), 0u);
    view.ForEachStats([&](std::string_view, const ReplicaStats&, bool present) {
      ++rows;
      EXPECT_FALSE(present);
    });
  });
  EXPECT_EQ(rows, 1);
}

TEST_P(PrefixIndexContractTest, KnownNamesTheOutermostUnknownKey) {
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kIndexEmpty);
  Report({.prefixes = {Single("a")}});
  EXPECT_EQ(Known({"t2", "m", "vllm"}), KnownKeys::kUnknownTenant);
  EXPECT_EQ(Known({"t", "m2", "vllm"}), KnownKeys::kUnknownModel);
  EXPECT_EQ(Known({"t", "m", "sglang"}), KnownKeys::kUnknownHashScheme);
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kScopeKnown);
}

TEST_P(PrefixIndexContractTest, StatsAloneMakeNothingKnown) {
  Report({.stats = OwnedStats{}});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kIndexEmpty);
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kUnknownTenant);
  Report({.model_id = "m2", .prefixes = {Single("a")}});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kUnknownModel);
}

TEST_P(PrefixIndexContractTest, KeysAreForgottenWithTheirLastPrefix) {
  Report({.prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  Report({.model_id = "m2", .prefixes = {Single("a")}});
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  Report({.evicted_hashes = {"a"}});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kUnknownHashScheme);
  Publish({.type = CacheEventType::kAllCleared});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kUnknownModel);
  Publish({.type = CacheEventType::kAllCleared, .model_id = "m2"});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kUnknownTenant);
  Publish({.type = CacheEventType::kAllCleared, .tenant_id = "t2"});
  EXPECT_EQ(Known({"t", "m", "vllm"}), KnownKeys::kIndexEmpty);
}

TEST_P(PrefixIndexContractTest, StateListsRowsByReplica) {
  for (const char* replica : {"r2", "r10", "r1"}) Report({.replica_id = replica, .stats = OwnedStats{}});
  EXPECT_THAT(Rows(), ElementsAre(IsRowOf("r1"), IsRowOf("r10"), IsRowOf("r2")));
}

TEST_P(PrefixIndexContractTest, StateCountsDistinctPrefixesOverSchemesAndAdapters) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"a", "b"})}});
  Report({.adapter_id = "lora", .prefixes = {Single("a")}});
  Report({.hash_scheme = "sglang", .prefixes = {Single("a")}});
  Report({.model_id = "m2", .prefixes = {Single("a")}});
  EXPECT_EQ(index().GetState("t", "m").total_prefixes, 4);
  EXPECT_EQ(index().GetState("unknown", "m").total_prefixes, 0);
}

TEST_P(PrefixIndexContractTest, StatsCountEntriesAndDistinctPrefixes) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"a", "c"})}});
  Report({.tenant_id = "t2", .prefixes = {Single("a")}});
  EXPECT_EQ(index().Stats().entries, 5);
  EXPECT_EQ(index().Stats().prefixes, 4);
  Publish({.type = CacheEventType::kAllCleared});
  EXPECT_EQ(index().Stats().entries, 3);
  EXPECT_EQ(index().Stats().prefixes, 3);
}

TEST_P(PrefixIndexContractTest, ModelIsHeldByAnEntryOrAStatsRow) {
  EXPECT_FALSE(index().HoldsModel("m"));
  Report({.prefixes = {Single("a")}});
  EXPECT_TRUE(index().HoldsModel("m"));
  Report({.tenant_id = "t2", .stats = OwnedStats{}});
  Report({.evicted_hashes = {"a"}});
  EXPECT_TRUE(index().HoldsModel("m"));
  Publish({.type = CacheEventType::kAllCleared, .tenant_id = "t2"});
  EXPECT_FALSE(index().HoldsModel("m"));
}

TEST_P(PrefixIndexContractTest, ModelsAreCountedOverAllTenants) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"a", "b"})}, .stats = OwnedStats{}});
  Report({.replica_id = "r1", .prefixes = {Single("a")}, .stats = OwnedStats{}});
  clock_.Advance(absl::Minutes(1));
  Report({.tenant_id = "t2", .prefixes = {Single("a")}, .stats = OwnedStats{}});
  const absl::Time last = Now();
  clock_.Advance(absl::Minutes(1));
  Report({.model_id = "m2", .stats = OwnedStats{}});
  Report({.model_id = "untouched"});
  Publish({.type = CacheEventType::kReplicaUpdated});
  std::vector<std::pair<std::string, ModelStats>> models;
  index().ForEachModel(
      [&](std::string_view model_id, const ModelStats& stats) { models.emplace_back(model_id, stats); });
  EXPECT_THAT(models,
              UnorderedElementsAre(Pair("m", AllOf(Field(&ModelStats::prefixes, 3), Field(&ModelStats::stats_rows, 3),
                                                   Field(&ModelStats::last_applied, last))),
                                   Pair("m2", AllOf(Field(&ModelStats::prefixes, 0), Field(&ModelStats::stats_rows, 1),
                                                    Field(&ModelStats::last_applied, Now())))));
}

// --- The engine alone ----------------------------------------------------------------------------------------------

TEST(ShardedIndexTest, MemoryCapEvictsTheOldestFirst) {
  FakeRetention retention;
  FakeClock clock;
  auto report = [&](PrefixIndex& index, int i) {
    OwnedPrefix chain;
    chain.tokens_per_block = 16;
    for (uint64_t block = 0; block < 64; ++block)
      chain.block_hashes_u64.push_back((static_cast<uint64_t>(i) << 32) + block);
    clock.Advance(absl::Seconds(1));
    Apply(index, {.prefixes = {chain}}, clock.Now());
  };
  auto unbounded = CreateShardedIndex({}, &retention).value();
  for (int i = 0; i < 100; ++i) report(*unbounded, i);
  const int64_t bound = unbounded->Stats().memory_bytes / 2;

  auto bounded = CreateShardedIndex({.max_memory_bytes = bound}, &retention).value();
  for (int i = 0; i < 100; ++i) {
    report(*bounded, i);
    ASSERT_LE(bounded->Stats().memory_bytes, bound);
    ASSERT_THAT(bounded->CheckInvariants(), IsOk());
  }
  const IndexStats stats = bounded->Stats();
  EXPECT_EQ(stats.entries + stats.evicted_for_memory[0], 6400);
  EXPECT_GT(stats.evicted_for_memory[0], 0);
  EXPECT_GT(stats.entries, 1600);
  EXPECT_EQ(stats.evicted_for_cap[0], 0);
  // What is left are the latest reports, but for the tail of the oldest among them.
  const ScopeKey scope = {"t", "m", "vllm"};
  for (int64_t left = 0; left < stats.entries; ++left) {
    const uint64_t chain = static_cast<uint64_t>(99 - left / 64);
    if (left / 64 == stats.entries / 64) break;
    ASSERT_THAT(HoldersOf(*bounded, scope, "", BytesOf((chain << 32) + static_cast<uint64_t>(left % 64))), SizeIs(1));
  }
}

TEST(ShardedIndexTest, MemoryReturnsWithWhatIsFreed) {
  FakeRetention retention;
  FakeClock clock;
  auto index = CreateShardedIndex({}, &retention).value();
  const int64_t empty = index->Stats().memory_bytes;
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 1000; ++i) {
      Apply(
          *index,
          {.replica_id = "r" + std::to_string(i % 10), .prefixes = {Single(std::string(40, 'x') + std::to_string(i))}},
          clock.Now());
    }
    EXPECT_GT(index->Stats().memory_bytes, empty + 40'000);
    clock.Advance(kTtl);
    EXPECT_EQ(index->Sweep(clock.Now()), 1000u);
    EXPECT_LE(index->Stats().memory_bytes, empty + 64'000);
    EXPECT_THAT(index->CheckInvariants(), IsOk());
  }
}

TEST(ShardedIndexTest, EmptiedIndexAccountsForNothing) {
  FakeRetention retention;
  FakeClock clock;
  auto index = CreateShardedIndex({}, &retention).value();
  const auto replica = [](int i) { return "r" + std::to_string(i); };
  for (int i = 0; i < 10; ++i) {
    Apply(*index,
          {.replica_id = replica(i),
           .adapter_id = "lora",
           .prefixes = {Blocks({"a", "b"}), Packed({1, 2}, 16)},
           .stats = OwnedStats{.client_version = "v1"}},
          clock.Now());
  }
  EXPECT_GT(index->Stats().memory_bytes, 0);
  for (int i = 0; i < 10; ++i) {
    Apply(*index, OwnedEvent{.type = CacheEventType::kAllCleared, .replica_id = replica(i)}, clock.Now());
  }
  EXPECT_EQ(index->Stats().memory_bytes, 0);
}

TEST(ShardedIndexTest, OptionsOutOfRangeAreRefused) {
  FakeRetention retention;
  const auto code = [&](const IndexOptions& options) {
    return CreateShardedIndex(options, &retention).status().code();
  };
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(code({.max_entries = -1}), kInvalid);
  EXPECT_EQ(code({.max_memory_bytes = -1}), kInvalid);
  EXPECT_EQ(code({.hot_threshold = 0}), kInvalid);
  EXPECT_EQ(code({.max_idle_replicas = 0}), kInvalid);
  for (int32_t shards : {0, -1, 3, 2048}) EXPECT_EQ(code({.shard_count = shards}), kInvalid) << shards;
  for (int32_t shards : {1, 1024}) EXPECT_EQ(code({.shard_count = shards}), absl::StatusCode::kOk) << shards;
}

}  // namespace
}  // namespace icache::testing
