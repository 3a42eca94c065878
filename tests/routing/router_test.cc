// The ten steps of contract/lookup.md in their order, against an index whose answers are written by hand.
#include "icache/routing/router.h"

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "icache/fingerprint/fingerprint.h"
#include "routing/affinity.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_index.h"

namespace icache {
namespace {

using ::icache::testing::FakeClock;
using ::icache::testing::FakeIndex;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr absl::Duration kDefaultTtl = absl::Minutes(30);

class RecordingObserver final : public LookupObserver {
 public:
  struct Outcome {
    std::string model_id;
    bool model_held;
    ReasonCode reason;
    bool hint_used;
    absl::Duration latency;
    int32_t matched_tokens;
  };

  void OnLookup(const LookupOutcome& outcome) override {
    outcomes.push_back({.model_id = std::string(outcome.model_id),
                        .model_held = outcome.model_held,
                        .reason = outcome.reason,
                        .hint_used = outcome.hint_used,
                        .latency = outcome.latency,
                        .matched_tokens = outcome.matched_tokens});
  }

  std::vector<Outcome> outcomes;
};

// A scope with replicas r0 to r3. `request_` starts with the three keys, an adapter and an exact hash.
class RouterTest : public ::testing::Test {
 protected:
  RouterTest() {
    request_.tenant_id = "tenant";
    request_.model_id = "model";
    request_.hash_scheme = "scheme";
    request_.adapter_id = "lora";
    request_.prefix_hash = "hash";
    request_.prefix_token_count = 128;
    index_.replicas = {"r0", "r1", "r2", "r3"};
    received_at_ = clock_.Now();
  }

  void AskForChain() {
    request_.chain.block_hashes = chain_hashes_;
    request_.chain.block_token_counts = chain_counts_;
  }

  void Hold(std::string replica_id, int32_t matched_tokens, absl::Duration age = absl::ZeroDuration()) {
    index_.holders.push_back(
        {.replica_id = std::move(replica_id), .matched_tokens = matched_tokens, .last_seen = clock_.Now() - age});
  }

  void Warm(const std::string& replica_id, float hit_rate) {
    ReplicaStats& stats = index_.stats[replica_id];
    stats.hit_rate = hit_rate;
    stats.last_seen = stats.reported = clock_.Now();
  }

  // Looks up under `policy_`.
  ReasonCode Lookup() { return LookupWith(&clock_); }
  ReasonCode LookupWith(const Clock* clock) {
    auto set = std::make_shared<PolicySet>();
    set->AddPolicy("tenant", policy_);
    policies_.Publish(std::move(set));
    latency_ =
        Router(options_, &index_, &policies_, clock, &observer_).Lookup(request_, received_at_, &scratch_, &answer_);
    return answer_.reason;
  }

  std::vector<std::string> RowNames() const {
    std::vector<std::string> names;
    for (const ReplicaScore& row : answer_.rows) names.emplace_back(row.replica_id);
    return names;
  }

  // Whom affinity picks for the seed of an exact hash among `replicas`.
  static std::string PickFor(std::string_view hash, const std::vector<std::string>& replicas) {
    SeedHasher hasher;
    const auto seed_hash = hasher.Hash({.kind = KeyKind::kExact, .hash = BlockHash(hash), .chain = {}, .tokens = 0});
    return replicas[*seed_hash % replicas.size()];
  }
  static std::string PickFor(const Chain& chain, const std::vector<std::string>& replicas) {
    SeedHasher hasher;
    const auto seed_hash = hasher.Hash({.kind = KeyKind::kChain, .hash = {}, .chain = chain, .tokens = 0});
    return replicas[*seed_hash % replicas.size()];
  }

  const std::vector<std::string_view> chain_hashes_ = {"b0", "b1"};
  const std::vector<int32_t> chain_counts_ = {64, 64};

  FakeClock clock_;
  FakeIndex index_;
  PolicyStore policies_{kDefaultTtl};
  RecordingObserver observer_;
  LookupScratch scratch_;

  RouterOptions options_;
  CachePolicy policy_;
  LookupRequest request_;
  absl::Time received_at_;

  LookupAnswer answer_;
  absl::Duration latency_;
};

// --- Step 1: the deadline -----------------------------------------------------------------------------------------

TEST_F(RouterTest, ACallWhoseDeadlineIsPastTimesOut) {
  Hold("r0", 128);
  request_.deadline = clock_.Now();
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
  EXPECT_THAT(answer_.rows, IsEmpty());
  EXPECT_EQ(answer_.adapter_id, "");
  EXPECT_THAT(index_.scopes_read, IsEmpty());
}

TEST_F(RouterTest, ThePolicysBudgetCountsFromTheArrival) {
  Hold("r0", 128);
  policy_.lookup_timeout_ms = 10;
  clock_.Advance(absl::Milliseconds(10) - absl::Microseconds(1));
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  clock_.Advance(absl::Microseconds(1));
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
}

TEST_F(RouterTest, ABudgetOfZeroOrLessIsNone) {
  Hold("r0", 128);
  clock_.Advance(absl::Minutes(1));
  for (int64_t timeout_ms : {0, -5}) {
    policy_.lookup_timeout_ms = timeout_ms;
    EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch) << timeout_ms;
  }
}

TEST_F(RouterTest, TheEarlierOfBothDeadlinesHolds) {
  Hold("r0", 128);
  clock_.Advance(absl::Milliseconds(50));
  policy_.lookup_timeout_ms = 1000;
  request_.deadline = received_at_ + absl::Milliseconds(20);
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
  policy_.lookup_timeout_ms = 20;
  request_.deadline = received_at_ + absl::Seconds(1);
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
}

TEST_F(RouterTest, TheDeadlineComesBeforeRequireChain) {
  policy_.require_chain = true;
  request_.deadline = clock_.Now();
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
}

TEST_F(RouterTest, ADeadlineThatPassesDuringTheMatchTimesOut) {
  Hold("r0", 128);
  policy_.eviction = EvictionAlgorithm::kLfu;
  policy_.lookup_timeout_ms = 10;
  index_.on_match = [this] { clock_.Advance(absl::Milliseconds(10)); };
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
  EXPECT_THAT(answer_.rows, IsEmpty());
  EXPECT_EQ(answer_.adapter_id, "lora");  // the index was consulted
  EXPECT_THAT(index_.credits, IsEmpty());
}

// Stands still for some looks, then jumps an hour ahead.
class JumpingClock final : public Clock {
 public:
  JumpingClock(absl::Time start, int looks_before_jump) : start_(start), looks_left_(looks_before_jump) {}
  absl::Time Now() const override { return looks_left_-- > 0 ? start_ : start_ + absl::Hours(1); }
  bool jumped() const { return looks_left_ < 0; }

 private:
  const absl::Time start_;
  mutable int looks_left_;
};

TEST_F(RouterTest, ALateAnswerIsATimeoutWithoutRowsOrCreditWhereverTheTimeWent) {
  Hold("r0", 128);
  policy_.eviction = EvictionAlgorithm::kLfu;
  request_.deadline = clock_.Now() + absl::Minutes(1);
  int timeouts = 0;
  for (int looks = 0;; ++looks) {
    index_.credits.clear();
    const JumpingClock clock(clock_.Now(), looks);
    const ReasonCode reason = LookupWith(&clock);
    if (reason == ReasonCode::kTimeout) {
      ++timeouts;
      EXPECT_THAT(answer_.rows, IsEmpty()) << looks;
      EXPECT_THAT(index_.credits, IsEmpty()) << looks;
      continue;
    }
    EXPECT_EQ(reason, ReasonCode::kPrefixMatch);
    EXPECT_THAT(answer_.rows, SizeIs(1)) << looks;
    EXPECT_THAT(index_.credits, SizeIs(1)) << looks;
    if (!clock.jumped()) break;
  }
  EXPECT_EQ(timeouts, 4);  // at the start, before the index, after the ranking, before the answer
}

TEST_F(RouterTest, AMissAlsoTimesOutBeforeTheAnswer) {
  request_.deadline = clock_.Now() + absl::Minutes(1);
  const JumpingClock clock(clock_.Now(), /*looks_before_jump=*/3);
  EXPECT_EQ(LookupWith(&clock), ReasonCode::kTimeout);
  EXPECT_THAT(answer_.rows, IsEmpty());
}

// --- Step 2: requireChain -----------------------------------------------------------------------------------------

TEST_F(RouterTest, RequireChainRefusesOtherInputsBeforeTheIndex) {
  Hold("r0", 128);
  policy_.require_chain = true;
  EXPECT_EQ(Lookup(), ReasonCode::kPolicyRequiresChain);
  EXPECT_THAT(answer_.rows, IsEmpty());
  EXPECT_EQ(answer_.adapter_id, "");
  EXPECT_THAT(index_.scopes_read, IsEmpty());
}

TEST_F(RouterTest, RequireChainLetsChainsPass) {
  Hold("r0", 128);
  policy_.require_chain = true;
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
}

TEST_F(RouterTest, RequireChainRefusesUnequalArraysAndTokenIds) {
  policy_.require_chain = true;
  request_.chain.block_hashes = chain_hashes_;
  EXPECT_EQ(Lookup(), ReasonCode::kPolicyRequiresChain);
  request_.chain = {};
  request_.prefix_hash = "";
  const std::vector<uint32_t> token_ids(64);
  request_.token_ids = token_ids;
  EXPECT_EQ(Lookup(), ReasonCode::kPolicyRequiresChain);
}

TEST_F(RouterTest, AMalformedChainPassesRequireChainAndEndsAsMalformed) {
  policy_.require_chain = true;
  const std::vector<uint64_t> packed = {1};
  request_.chain.block_hashes_u64 = packed;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
}

TEST_F(RouterTest, RequireChainComesBeforeEmptyKeys) {
  policy_.require_chain = true;
  request_.model_id = "";
  EXPECT_EQ(Lookup(), ReasonCode::kPolicyRequiresChain);
}

// --- Step 3: the input --------------------------------------------------------------------------------------------

TEST_F(RouterTest, UnusableInputIsNoHintWithoutTheIndex) {
  Hold("r0", 128);
  request_.chain.block_hashes = chain_hashes_;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_THAT(answer_.rows, IsEmpty());
  EXPECT_EQ(answer_.adapter_id, "");
  EXPECT_THAT(index_.scopes_read, IsEmpty());
}

TEST_F(RouterTest, UnusableInputComesBeforeEmptyKeys) {
  request_.chain.block_hashes = chain_hashes_;
  request_.hash_scheme = "";
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_EQ(answer_.adapter_id, "");
}

TEST_F(RouterTest, AnExactHashIsMatchedInItsPartition) {
  Hold("r0", 128);
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(index_.scopes_read, ElementsAre("tenant/model/scheme"));
  ASSERT_THAT(index_.questions, SizeIs(1));
  EXPECT_FALSE(index_.questions[0].is_chain);
  EXPECT_EQ(index_.questions[0].adapter_id, "lora");
  EXPECT_THAT(index_.questions[0].hashes, ElementsAre("hash"));
  EXPECT_EQ(index_.questions[0].expired_through, clock_.Now() - kDefaultTtl);
}

TEST_F(RouterTest, AChainIsMatchedWithTheRequestsCounts) {
  Hold("r0", 128);
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  ASSERT_THAT(index_.questions, SizeIs(1));
  EXPECT_TRUE(index_.questions[0].is_chain);
  EXPECT_THAT(index_.questions[0].hashes, ElementsAre("b0", "b1"));
  EXPECT_THAT(index_.questions[0].tokens, ElementsAre(64, 64));
}

TEST_F(RouterTest, ThePolicysTtlRulesTheMatch) {
  policy_.eviction_ttl = absl::Minutes(10);
  Hold("r0", 128, absl::Minutes(5));
  Hold("r1", 128, absl::Minutes(10));
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_EQ(index_.questions.at(0).expired_through, clock_.Now() - absl::Minutes(10));
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
  EXPECT_FLOAT_EQ(answer_.rows[0].estimated_cache_hit_prob, 0.5f);
}

TEST_F(RouterTest, NoInputAsksTheMatcherNothing) {
  request_.prefix_hash = "";
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_THAT(index_.questions, IsEmpty());
  EXPECT_THAT(index_.scopes_read, SizeIs(1));
  EXPECT_EQ(answer_.adapter_id, "lora");
}

// --- Step 4: minimumPrefixTokens and the keys ---------------------------------------------------------------------

TEST_F(RouterTest, AShortRequestWithoutAffinityEndsAtOnce) {
  Hold("r0", 128);
  policy_.minimum_prefix_tokens = 129;
  policy_.affinity_routing = false;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_EQ(answer_.adapter_id, "");
  EXPECT_THAT(index_.scopes_read, IsEmpty());
}

TEST_F(RouterTest, AShortRequestWithAffinityKeepsOnlyThePick) {
  Hold("r0", 128);
  policy_.minimum_prefix_tokens = 129;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre(PickFor("hash", index_.replicas)));
}

TEST_F(RouterTest, AShortRequestGetsNoTenantHotEither) {
  Warm("r0", 0.9f);
  policy_.minimum_prefix_tokens = 129;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterTest, AShortRequestIsStillDiagnosed) {
  index_.known = KnownKeys::kUnknownModel;
  policy_.minimum_prefix_tokens = 129;
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownModel);
}

TEST_F(RouterTest, AnEmptyKeyIsNoHintWithTheAdapter) {
  Hold("r0", 128);
  for (std::string_view LookupRequest::*key :
       {&LookupRequest::tenant_id, &LookupRequest::model_id, &LookupRequest::hash_scheme}) {
    const LookupRequest original = request_;
    request_.*key = "";
    EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
    EXPECT_EQ(answer_.adapter_id, "lora");
    EXPECT_THAT(answer_.rows, IsEmpty());
    request_ = original;
  }
  EXPECT_THAT(index_.scopes_read, IsEmpty());
}

TEST_F(RouterTest, TheGateComesBeforeEmptyKeys) {
  policy_.minimum_prefix_tokens = 129;
  policy_.affinity_routing = false;
  request_.model_id = "";
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_EQ(answer_.adapter_id, "");
}

// --- Step 5: the match --------------------------------------------------------------------------------------------

TEST_F(RouterTest, RowsCarryScoresBestFirst) {
  Hold("r1", 64);
  Hold("r0", 128, absl::Minutes(15));
  index_.holders[1].tier = Tier::kT2;
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  ASSERT_THAT(RowNames(), ElementsAre("r0", "r1"));
  EXPECT_FLOAT_EQ(answer_.rows[0].score, 128 * 0.5f * 0.75f);
  EXPECT_EQ(answer_.rows[0].matched_tokens, 128);
  EXPECT_FLOAT_EQ(answer_.rows[0].estimated_cache_hit_prob, 0.5f);
  EXPECT_EQ(answer_.rows[0].tier, Tier::kT2);
  EXPECT_FLOAT_EQ(answer_.rows[1].score, 64 * 0.5f);
  EXPECT_EQ(answer_.rows[1].tier, Tier::kT1);
  EXPECT_EQ(answer_.adapter_id, "lora");
}

TEST_F(RouterTest, PressureAndTheSlosBudgetEnterTheScore) {
  Hold("r0", 100);
  Warm("r0", 0);
  index_.stats["r0"].pressure = 0.5f;
  request_.ttft_ms = 100;
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_FLOAT_EQ(answer_.rows[0].score, 100 * 0.5f * 2 * 0.75f);
}

TEST_F(RouterTest, CandidatesDropRowsButChangeNoScore) {
  Hold("r0", 128);
  Hold("r1", 128);
  const std::vector<std::string_view> candidates = {"r1", "elsewhere"};
  request_.candidate_replica_ids = candidates;
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  ASSERT_THAT(RowNames(), ElementsAre("r1"));
  EXPECT_FLOAT_EQ(answer_.rows[0].score, 64);  // k = 2 of n = 4
}

TEST_F(RouterTest, CandidatesThatEmptyTheRowsLeaveThePickAmongThem) {
  Hold("r0", 128);
  Warm("r2", 0.9f);
  index_.known = KnownKeys::kUnknownTenant;  // neither TENANT_HOT nor a diagnosis follows
  const std::vector<std::string_view> candidates = {"r2"};
  request_.candidate_replica_ids = candidates;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre("r2"));
}

TEST_F(RouterTest, CandidatesUnknownToTheScopeLeaveNoHint) {
  Hold("r0", 128);
  const std::vector<std::string_view> candidates = {"elsewhere"};
  request_.candidate_replica_ids = candidates;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_THAT(answer_.rows, IsEmpty());
}

TEST_F(RouterTest, CandidatesFilterBeforeTheFloors) {
  // The best row is no candidate; what is left falls under the routing floor.
  Hold("r0", 640);
  Hold("r1", 64, kDefaultTtl - absl::Seconds(1));
  AskForChain();
  policy_.affinity_routing = false;
  const std::vector<std::string_view> candidates = {"r1"};
  request_.candidate_replica_ids = candidates;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
}

// --- Step 6: TENANT_HOT -------------------------------------------------------------------------------------------

TEST_F(RouterTest, AnExactMissFallsBackToWarmReplicas) {
  Warm("r1", 0.5f);
  Warm("r3", 0.9f);
  Warm("absent", 1);
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
  ASSERT_THAT(RowNames(), ElementsAre("r3", "r1"));
  EXPECT_FLOAT_EQ(answer_.rows[0].score, 0.9f);
  EXPECT_EQ(answer_.rows[0].matched_tokens, 0);
  EXPECT_FLOAT_EQ(answer_.rows[0].estimated_cache_hit_prob, 0.9f);
  EXPECT_EQ(answer_.rows[0].tier, Tier::kUnknown);
  EXPECT_EQ(answer_.adapter_id, "lora");
}

TEST_F(RouterTest, ALookupOfNothingMayBeTenantHot) {
  request_.prefix_hash = "";
  Warm("r1", 0.5f);
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
}

TEST_F(RouterTest, AnAskedChainIsNeverTenantHot) {
  Warm("r1", 0.5f);
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterTest, AChainOfRunsWithoutTokensIsAMiss) {
  Hold("r0", 0);
  AskForChain();
  index_.known = KnownKeys::kUnknownHashScheme;  // diagnosed, hence a miss
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownHashScheme);
}

TEST_F(RouterTest, TokenIdsCountAsAChainUnlessChainMatchingIsOff) {
  Warm("r1", 0.5f);
  request_.prefix_hash = "";
  const std::vector<uint32_t> token_ids(64, 7);
  request_.token_ids = token_ids;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  policy_.enable_chain_matching = false;
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
}

TEST_F(RouterTest, ADisabledTenantHotIsNeitherToldNorDiagnosed) {
  Warm("r1", 0.5f);
  policy_.enable_tenant_hot = false;
  index_.known = KnownKeys::kUnknownTenant;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterTest, CandidatesFilterTenantHot) {
  Warm("r1", 0.5f);
  Warm("r3", 0.9f);
  const std::vector<std::string_view> one = {"r1"};
  request_.candidate_replica_ids = one;
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
  EXPECT_THAT(RowNames(), ElementsAre("r1"));
  const std::vector<std::string_view> cold = {"r0"};
  request_.candidate_replica_ids = cold;
  index_.known = KnownKeys::kUnknownTenant;  // no diagnosis follows
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
}

TEST_F(RouterTest, AnExactMatchOfNoTokensKeepsTenantHotAway) {
  Hold("r0", 0);
  Warm("r1", 0.9f);
  policy_.minimum_matched_tokens = 0;
  policy_.routing_floor_score = 0;
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
}

// --- Step 7: the diagnosis ----------------------------------------------------------------------------------------

TEST_F(RouterTest, AMissWithUnknownKeysIsDiagnosed) {
  const struct {
    KnownKeys known;
    ReasonCode reason;
  } kRows[] = {
      {KnownKeys::kUnknownTenant, ReasonCode::kUnknownTenant},
      {KnownKeys::kUnknownModel, ReasonCode::kUnknownModel},
      {KnownKeys::kUnknownHashScheme, ReasonCode::kUnknownHashScheme},
  };
  for (const auto& row : kRows) {
    index_.known = row.known;
    EXPECT_EQ(Lookup(), row.reason);
    EXPECT_THAT(answer_.rows, IsEmpty());
    EXPECT_EQ(answer_.adapter_id, "lora");
  }
}

TEST_F(RouterTest, AnEmptyIndexDiagnosesNothing) {
  index_.known = KnownKeys::kIndexEmpty;
  index_.replicas.clear();
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_EQ(answer_.adapter_id, "lora");
}

// --- Step 8: the floors -------------------------------------------------------------------------------------------

TEST_F(RouterTest, RowsBelowTheMatchedFloorAreLeftOut) {
  Hold("r0", 128);
  Hold("r1", 63);
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
  EXPECT_FLOAT_EQ(answer_.rows[0].score, 64);  // not recomputed: k = 2 of n = 4
}

TEST_F(RouterTest, AMatchGivenUpForItsScoreIsReplacedByThePick) {
  for (const char* replica : {"r0", "r1", "r2", "r3"}) Hold(replica, 128);  // k = n: all scores are 0
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  ASSERT_THAT(RowNames(), ElementsAre(PickFor("hash", index_.replicas)));
  EXPECT_EQ(answer_.rows[0].score, 0);
  EXPECT_EQ(answer_.rows[0].matched_tokens, 0);
  EXPECT_EQ(answer_.rows[0].estimated_cache_hit_prob, 0);
  EXPECT_EQ(answer_.rows[0].tier, Tier::kUnknown);
}

TEST_F(RouterTest, FloorsLeaveTenantHotAlone) {
  Warm("r1", 0.5f);
  policy_.minimum_matched_tokens = 1000;
  policy_.routing_floor_score = 1000;
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
}

// --- Step 9: affinity ---------------------------------------------------------------------------------------------

TEST_F(RouterTest, AMissIsPinnedByItsHash) {
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre(PickFor("hash", index_.replicas)));
  EXPECT_EQ(answer_.adapter_id, "lora");
}

TEST_F(RouterTest, AMissedChainIsPinnedByTheWholeChain) {
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre(PickFor(Chain(BlockHashSpan(chain_hashes_), chain_counts_), index_.replicas)));
}

TEST_F(RouterTest, TokenIdsArePinnedByTheirChainOrByTheirLastBlock) {
  // Many scope sizes, so that equal picks by chance do not hide a wrong seed.
  const std::vector<uint32_t> token_ids(40, 7);
  request_.prefix_hash = "";
  request_.token_ids = token_ids;
  std::vector<uint64_t> prefixes;
  ASSERT_TRUE(FingerprintPrefixes(token_ids, 16, std::nullopt, &prefixes).ok());
  char last[kPackedHashBytes];
  StoreBigEndian64(prefixes.back(), last);
  index_.replicas.clear();
  for (char name = 'a'; name <= 'z'; ++name) {
    index_.replicas.emplace_back(1, name);
    policy_.enable_chain_matching = true;
    EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
    EXPECT_THAT(RowNames(), ElementsAre(PickFor(Chain(BlockHashSpan(prefixes), 16), index_.replicas)));
    policy_.enable_chain_matching = false;
    EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
    EXPECT_THAT(RowNames(), ElementsAre(PickFor(std::string_view(last, sizeof(last)), index_.replicas)));
  }
}

TEST_F(RouterTest, WithoutAffinityAMissIsNoHint) {
  policy_.affinity_routing = false;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_THAT(answer_.rows, IsEmpty());
  EXPECT_EQ(answer_.adapter_id, "lora");
}

TEST_F(RouterTest, AnEmptyScopeHasNobodyToPick) {
  index_.replicas.clear();
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
}

TEST_F(RouterTest, UnequalArraysThatRideAlongRuleAHintOut) {
  policy_.enable_chain_matching = false;
  request_.chain.block_hashes = chain_hashes_;
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);
  EXPECT_EQ(answer_.adapter_id, "lora");
  request_.chain.block_token_counts = chain_counts_;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterTest, UnequalArraysThatRideAlongHinderNoMatch) {
  policy_.enable_chain_matching = false;
  request_.chain.block_hashes = chain_hashes_;
  Hold("r0", 128);
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
}

// --- Step 10: the answer ------------------------------------------------------------------------------------------

TEST_F(RouterTest, MaxReplicasCutsTheRows) {
  for (const char* replica : {"r2", "r0", "r1"}) Hold(replica, 128);
  const struct {
    int32_t max_replicas;
    size_t rows;
  } kRows[] = {{0, 3}, {-1, 3}, {1, 1}, {2, 2}, {3, 3}, {1'000'000, 3}};
  for (const auto& row : kRows) {
    request_.max_replicas = row.max_replicas;
    EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
    EXPECT_THAT(answer_.rows, SizeIs(row.rows)) << row.max_replicas;
    EXPECT_EQ(answer_.rows[0].replica_id, "r0");
  }
}

TEST_F(RouterTest, MaxReplicasCutsTenantHot) {
  Warm("r1", 0.5f);
  Warm("r3", 0.9f);
  request_.max_replicas = 1;
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
  EXPECT_THAT(RowNames(), ElementsAre("r3"));
}

TEST_F(RouterTest, LfuCreditGoesToTheReturnedRowsAlone) {
  policy_.eviction = EvictionAlgorithm::kLfu;
  Hold("r0", 128);
  Hold("r1", 128);
  Hold("r2", 63);  // below the matched floor
  Hold("r3", 128, absl::Minutes(10));
  const std::vector<std::string_view> candidates = {"r1", "r2", "r3"};
  request_.candidate_replica_ids = candidates;
  request_.max_replicas = 1;
  policy_.routing_floor_score = 0;
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(RowNames(), ElementsAre("r1"));
  EXPECT_THAT(index_.credited, ElementsAre("r1"));
  ASSERT_THAT(index_.credits, SizeIs(1));
  EXPECT_FALSE(index_.credits[0].is_chain);
  EXPECT_EQ(index_.credits[0].adapter_id, "lora");
  EXPECT_THAT(index_.credits[0].hashes, ElementsAre("hash"));
}

TEST_F(RouterTest, LfuCreditOfAChainNamesTheChain) {
  policy_.eviction = EvictionAlgorithm::kLfu;
  Hold("r0", 128);
  Hold("r1", 64);
  AskForChain();
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(index_.credited, UnorderedElementsAre("r0", "r1"));
  ASSERT_THAT(index_.credits, SizeIs(1));
  EXPECT_TRUE(index_.credits[0].is_chain);
  EXPECT_THAT(index_.credits[0].hashes, ElementsAre("b0", "b1"));
  EXPECT_THAT(index_.credits[0].tokens, ElementsAre(64, 64));
}

TEST_F(RouterTest, LruTenantsCountNothing) {
  Hold("r0", 128);
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(index_.credits, IsEmpty());
}

TEST_F(RouterTest, DowngradedAnswersCountNothing) {
  policy_.eviction = EvictionAlgorithm::kLfu;
  Hold("r0", 128);
  policy_.minimum_prefix_tokens = 129;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  policy_.minimum_prefix_tokens = 0;
  policy_.minimum_matched_tokens = 129;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  policy_.minimum_matched_tokens = 0;
  policy_.routing_floor_score = 1000;
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(index_.credits, IsEmpty());
}

TEST_F(RouterTest, TenantHotCountsNothing) {
  policy_.eviction = EvictionAlgorithm::kLfu;
  Warm("r0", 0.9f);
  EXPECT_EQ(Lookup(), ReasonCode::kTenantHot);
  EXPECT_THAT(index_.credits, IsEmpty());
}

TEST_F(RouterTest, AnAnswerIsReplacedWhole) {
  Hold("r0", 128);
  Hold("r1", 128);
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  index_.holders.clear();
  index_.known = KnownKeys::kUnknownTenant;
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownTenant);
  EXPECT_THAT(answer_.rows, IsEmpty());
  request_.deadline = absl::InfinitePast();
  EXPECT_EQ(Lookup(), ReasonCode::kTimeout);
  EXPECT_EQ(answer_.adapter_id, "");
}

TEST_F(RouterTest, RowsKeepTheirMemoryBetweenCalls) {
  const std::string long_name(100, 'x');
  index_.replicas = {"r0", long_name + "a", long_name + "b"};
  Hold(long_name + "a", 128);
  Hold(long_name + "b", 128);
  const auto buffers = [this] {
    std::vector<const void*> addresses;
    for (const ReplicaScore& row : answer_.rows) addresses.push_back(row.replica_id.data());
    return addresses;
  };
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  const std::vector<const void*> before = buffers();
  request_.deadline = absl::InfinitePast();
  ASSERT_EQ(Lookup(), ReasonCode::kTimeout);
  request_.deadline = absl::InfiniteFuture();
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(buffers(), ::testing::UnorderedElementsAreArray(before));
  EXPECT_THAT(RowNames(), ElementsAre(long_name + "a", long_name + "b"));
}

// --- The observer -------------------------------------------------------------------------------------------------

TEST_F(RouterTest, AMatchIsReportedWithItsTopRowAndLatency) {
  Hold("r0", 64);
  Hold("r1", 128);
  AskForChain();
  index_.on_match = [this] { clock_.Advance(absl::Microseconds(70)); };
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_EQ(latency_, absl::Microseconds(70));
  ASSERT_THAT(observer_.outcomes, SizeIs(1));
  const RecordingObserver::Outcome& outcome = observer_.outcomes[0];
  EXPECT_EQ(outcome.model_id, "model");
  EXPECT_TRUE(outcome.model_held);
  EXPECT_EQ(outcome.reason, ReasonCode::kPrefixMatch);
  EXPECT_TRUE(outcome.hint_used);
  EXPECT_EQ(outcome.latency, absl::Microseconds(70));
  EXPECT_EQ(outcome.matched_tokens, 128);
}

TEST_F(RouterTest, AClockThatStepsBackGivesNoNegativeLatency) {
  received_at_ = clock_.Now() + absl::Seconds(5);
  Lookup();
  EXPECT_EQ(latency_, absl::ZeroDuration());
}

TEST_F(RouterTest, EveryPathIsReportedOnce) {
  const std::function<void()> kPaths[] = {
      [this] { request_.deadline = absl::InfinitePast(); },
      [this] { policy_.require_chain = true; },
      [this] { request_.chain.block_hashes = chain_hashes_; },
      [this] {
        policy_.minimum_prefix_tokens = 1000;
        policy_.affinity_routing = false;
      },
      [this] { request_.model_id = ""; },
      [this] { Hold("r0", 128); },
      [this] { Warm("r0", 0.9f); },
      [this] { index_.known = KnownKeys::kUnknownTenant; },
      [this] { index_.known = KnownKeys::kUnknownModel; },
      [this] { index_.known = KnownKeys::kUnknownHashScheme; },
      [this] { policy_.affinity_routing = false; },
      [this] { index_.replicas.clear(); },
      [] {},
  };
  const LookupRequest request = request_;
  for (const auto& path : kPaths) {
    observer_.outcomes.clear();
    index_.holders.clear();
    index_.stats.clear();
    index_.known = KnownKeys::kScopeKnown;
    index_.replicas = {"r0", "r1", "r2", "r3"};
    policy_ = {};
    request_ = request;
    path();
    const ReasonCode reason = Lookup();
    ASSERT_THAT(observer_.outcomes, SizeIs(1));
    EXPECT_EQ(observer_.outcomes[0].reason, reason);
    EXPECT_EQ(observer_.outcomes[0].hint_used, !answer_.rows.empty());
    EXPECT_EQ(observer_.outcomes[0].matched_tokens, reason == ReasonCode::kPrefixMatch ? 128 : 0);
  }
}

TEST_F(RouterTest, TheIndexIsAskedForTheModelOnlyWhenTheReasonDoesNotTell) {
  Hold("r0", 128);
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  index_.holders.clear();
  ASSERT_EQ(Lookup(), ReasonCode::kAffinityHint);
  Warm("r0", 0.9f);
  ASSERT_EQ(Lookup(), ReasonCode::kTenantHot);
  index_.stats.clear();
  index_.known = KnownKeys::kUnknownHashScheme;
  ASSERT_EQ(Lookup(), ReasonCode::kUnknownHashScheme);
  EXPECT_THAT(index_.models_looked_up, IsEmpty());
  for (const RecordingObserver::Outcome& outcome : observer_.outcomes) EXPECT_TRUE(outcome.model_held);

  index_.known = KnownKeys::kUnknownTenant;
  for (bool held : {true, false}) {
    index_.holds_model = held;
    ASSERT_EQ(Lookup(), ReasonCode::kUnknownTenant);
    EXPECT_EQ(observer_.outcomes.back().model_held, held);
  }
  EXPECT_THAT(index_.models_looked_up, ElementsAre("model", "model"));
}

TEST_F(RouterTest, WorksWithoutAnObserver) {
  Hold("r0", 128);
  Router(options_, &index_, &policies_, &clock_, /*observer=*/nullptr)
      .Lookup(request_, received_at_, &scratch_, &answer_);
  EXPECT_EQ(answer_.reason, ReasonCode::kPrefixMatch);
}

TEST_F(RouterTest, ATenantWithoutAPolicyHasTheDefaults) {
  Hold("r0", 64);
  Hold("r1", 63);
  policy_.minimum_matched_tokens = 1000;  // of "tenant", not of this one
  request_.tenant_id = "other";
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
}

}  // namespace
}  // namespace icache
