// Explanations: that they say what lookups answer, whatever is held and asked, and why.
#include <gmock/gmock.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "icache/index/sharded_index.h"
#include "icache/routing/router.h"
#include "tests/index/random_observations.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/observations.h"

namespace icache {
namespace {

using ::icache::testing::Apply;
using ::icache::testing::Blocks;
using ::icache::testing::FakeClock;
using ::icache::testing::OwnedStats;
using ::icache::testing::OwnedUpdate;
using ::icache::testing::RandomObservations;
using ::icache::testing::Single;
using ::icache::testing::Universe;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Row = std::tuple<std::string, float, int32_t, float, Tier>;

std::vector<Row> RowsOf(const LookupAnswer& answer) {
  std::vector<Row> rows;
  for (const ReplicaScore& row : answer.rows) {
    rows.emplace_back(row.replica_id, row.score, row.matched_tokens, row.estimated_cache_hit_prob, row.tier);
  }
  return rows;
}

class CountingObserver final : public LookupObserver {
 public:
  void OnLookup(const LookupOutcome&) override { ++calls; }
  int calls = 0;
};

// --- What is explained is what is answered --------------------------------------------------------------------------

// Asks everything of a random index twice: for the answer and for its explanation.
class ExplainRandomTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  ExplainRandomTest()
      : universe_({.tenants = 2, .models = 2, .adapters = 2, .replicas = 6, .hashes = 24}, GetParam()),
        random_(&universe_, GetParam()),
        index_(CreateShardedIndex({.max_entries = 0, .hot_threshold = 1}, &policies_).value()) {}

  void PublishRandomPolicies() {
    auto set = std::make_shared<PolicySet>();
    for (const std::string& tenant : universe_.tenants) {
      CachePolicy policy;
      policy.eviction = random_.OneIn(2) ? EvictionAlgorithm::kLfu : EvictionAlgorithm::kLru;
      policy.minimum_prefix_tokens = random_.OneIn(4) ? 48 : 0;
      policy.minimum_matched_tokens = random_.OneIn(2) ? 0 : 32;
      policy.routing_floor_score = random_.OneIn(2) ? 0 : 10;
      policy.affinity_routing = !random_.OneIn(3);
      policy.enable_chain_matching = !random_.OneIn(4);
      policy.require_chain = policy.enable_chain_matching && random_.OneIn(8);
      policy.enable_tenant_hot = !random_.OneIn(4);
      set->AddPolicy(tenant, policy);
    }
    policies_.Publish(std::move(set));
  }

  // Makes `request_` anything that the wire can carry.
  void AskAnything() {
    request_ = LookupRequest();
    tenant_ = random_.OneIn(20) ? "" : random_.OneIn(20) ? "nobody" : random_.Any(universe_.tenants);
    model_ = random_.OneIn(20) ? "nothing" : random_.Any(universe_.models);
    scheme_ = random_.OneIn(20) ? "none" : random_.Any(universe_.schemes);
    adapter_ = random_.Any(universe_.adapters);
    request_.tenant_id = tenant_;
    request_.model_id = model_;
    request_.hash_scheme = scheme_;
    request_.adapter_id = adapter_;
    switch (random_.Below(6)) {
      case 0:
        hash_ = random_.Any(universe_.hashes);
        request_.prefix_hash = hash_;
        request_.prefix_token_count = 64;
        break;
      case 1:
        packed_ = random_.PackedHashes();
        request_.chain.block_hashes_u64 = packed_;
        request_.chain.tokens_per_block = random_.OneIn(8) ? 0 : 16;
        break;
      case 2:
        token_ids_.assign(random_.Below(40), 7);
        request_.token_ids = token_ids_;
        break;
      case 3:
        if (random_.OneIn(2)) request_.prompt_text = "Hello";
        break;
      default:
        hashes_ = random_.ChainHashes();
        hash_views_ = testing::ViewsOf(hashes_);
        counts_ = random_.Tokens(hashes_.size());
        if (random_.OneIn(10)) counts_.pop_back();
        request_.chain.block_hashes = hash_views_;
        request_.chain.block_token_counts = counts_;
    }
    candidates_.clear();
    if (random_.OneIn(3)) candidates_ = {random_.Any(universe_.replicas), random_.Any(universe_.replicas), "absent"};
    candidate_views_ = testing::ViewsOf(candidates_);
    request_.candidate_replica_ids = candidate_views_;
    request_.max_replicas = static_cast<int32_t>(random_.Below(3));
    request_.ttft_ms = random_.OneIn(3) ? 100 : 0;
  }

  int64_t HotPrefixes() const {
    int64_t hot = 0;
    for (const std::string& tenant : universe_.tenants) {
      for (const std::string& model : universe_.models) hot += index_->GetState(tenant, model).hot_prefixes;
    }
    return hot;
  }

  const Universe universe_;
  RandomObservations random_;
  FakeClock clock_;
  PolicyStore policies_{absl::Minutes(3)};
  const std::unique_ptr<PrefixIndex> index_;
  LookupRequest request_;
  std::string tenant_, model_, scheme_, adapter_, hash_;
  std::vector<std::string> hashes_, candidates_;
  std::vector<std::string_view> hash_views_, candidate_views_;
  std::vector<uint64_t> packed_;
  std::vector<uint32_t> token_ids_;
  std::vector<int32_t> counts_;
};

TEST_P(ExplainRandomTest, ExplainsTheAnswerThatALookupGives) {
  const char* const steps = std::getenv("ICACHE_RANDOM_STEPS");
  CountingObserver observer;
  const Router router({}, index_.get(), &policies_, &clock_, &observer);
  LookupScratch scratch;
  LookupAnswer answer;
  Explanation explanation;
  std::map<ReasonCode, int> reasons;
  std::map<RowOutcome, int> outcomes;
  for (int step = 0; step < (steps == nullptr ? 20'000 : std::atoi(steps)); ++step) {
    if (step % 50 == 0) PublishRandomPolicies();
    clock_.Advance(absl::Milliseconds(static_cast<int64_t>(random_.Below(2000))));
    if (random_.OneIn(2)) Apply(*index_, random_.Update(clock_.Now()), clock_.Now());
    AskAnything();
    const bool watched = random_.OneIn(50);
    const int64_t hot = watched ? HotPrefixes() : 0;
    const int calls = observer.calls;
    router.Explain(request_, clock_.Now(), &scratch, &explanation);
    ASSERT_EQ(observer.calls, calls) << "an explanation was counted as a lookup";
    if (watched) {
      ASSERT_EQ(HotPrefixes(), hot) << "an explanation has earned credit";
    }
    router.Lookup(request_, clock_.Now(), &scratch, &answer);

    ASSERT_EQ(explanation.answer.reason, answer.reason);
    ASSERT_EQ(RowsOf(explanation.answer), RowsOf(answer));
    ASSERT_EQ(explanation.answer.adapter_id, answer.adapter_id);
    ASSERT_FALSE(explanation.because.empty());
    ++reasons[answer.reason];

    // The rows told as returned are the answer's, and their factors make up their scores.
    std::vector<std::string> returned;
    for (const MatchExplanation& row : explanation.matches) {
      ++outcomes[row.outcome];
      if (row.outcome == RowOutcome::kReturned) returned.push_back(row.replica_id);
      if (row.k == 0) continue;  // not ranked
      ASSERT_EQ(row.score, static_cast<float>(row.matched_tokens) * row.freshness * row.pressure_factor * row.slo_bias *
                               row.distinguishing_power);
    }
    if (explanation.tenant_hot.has_value()) {
      for (const WarmExplanation& row : explanation.tenant_hot->replicas) {
        if (row.warm && row.outcome == RowOutcome::kReturned) returned.push_back(row.replica_id);
      }
    }
    if (explanation.affinity.has_value() && !explanation.affinity->replica_id.empty()) {
      returned.push_back(explanation.affinity->replica_id);
    }
    std::vector<std::string> delivered;
    for (const ReplicaScore& row : answer.rows) delivered.emplace_back(row.replica_id);
    ASSERT_EQ(returned, delivered);
  }
  // The run has been through all of it.
  for (const ReasonCode reason :
       {ReasonCode::kPrefixMatch, ReasonCode::kTenantHot, ReasonCode::kAffinityHint, ReasonCode::kNoHint,
        ReasonCode::kPolicyRequiresChain, ReasonCode::kUnknownTenant, ReasonCode::kUnknownModel}) {
    EXPECT_GT(reasons[reason], 0) << ReasonCodeName(reason);
  }
  for (const RowOutcome outcome :
       {RowOutcome::kReturned, RowOutcome::kExpired, RowOutcome::kNoTokens, RowOutcome::kNoCandidate,
        RowOutcome::kBelowMinimumPrefixTokens, RowOutcome::kBelowMinimumMatchedTokens,
        RowOutcome::kBelowRoutingFloorScore, RowOutcome::kBeyondMaxReplicas}) {
    EXPECT_GT(outcomes[outcome], 0) << static_cast<int>(outcome);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExplainRandomTest, ::testing::Values(1, 2, 3));

// --- What it says ---------------------------------------------------------------------------------------------------

class ExplainTest : public ::testing::Test {
 protected:
  ExplainTest() : index_(CreateShardedIndex({}, &policies_).value()) {
    request_.tenant_id = "t";
    request_.model_id = "m";
    request_.hash_scheme = "vllm";
    policy_.minimum_matched_tokens = 0;
    policy_.routing_floor_score = 0;
  }

  void Report(OwnedUpdate update) { Apply(*index_, update, clock_.Now()); }

  void AskForChain(std::vector<std::string_view> hashes) {
    hashes_ = std::move(hashes);
    counts_.assign(hashes_.size(), 16);
    request_.chain.block_hashes = hashes_;
    request_.chain.block_token_counts = counts_;
  }

  const Explanation& Explain() {
    auto set = std::make_shared<PolicySet>();
    set->AddPolicy("t", policy_, "policies.yaml:4:7");
    policies_.Publish(std::move(set));
    Router({}, index_.get(), &policies_, &clock_, /*observer=*/nullptr)
        .Explain(request_, clock_.Now(), &scratch_, &explanation_);
    return explanation_;
  }

  FakeClock clock_;
  PolicyStore policies_{absl::Minutes(30)};
  const std::unique_ptr<PrefixIndex> index_;
  CachePolicy policy_;
  LookupRequest request_;
  std::vector<std::string_view> hashes_;
  std::vector<int32_t> counts_;
  LookupScratch scratch_;
  Explanation explanation_;
};

TEST_F(ExplainTest, TellsAtWhichBlockAReplicaDropsOut) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0", "b1", "b2"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"b0"})}});
  AskForChain({"b0", "b1", "b2"});
  Explain();
  ASSERT_EQ(explanation_.matches.size(), 2u);
  EXPECT_EQ(explanation_.matches[0].matched_blocks, 3u);
  EXPECT_EQ(explanation_.matches[1].matched_blocks, 1u);
  EXPECT_EQ(explanation_.input.kind, InputKind::kChain);
  EXPECT_EQ(explanation_.input.blocks, 3u);
  EXPECT_EQ(explanation_.input.tokens, 48);
}

TEST_F(ExplainTest, TellsWhatHasExpiredButIsNotFreed) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0", "b1"})}});
  clock_.Advance(absl::Minutes(31));
  AskForChain({"b0", "b1"});
  Explain();
  ASSERT_EQ(explanation_.matches.size(), 1u);
  EXPECT_EQ(explanation_.matches[0].outcome, RowOutcome::kExpired);
  EXPECT_EQ(explanation_.matches[0].matched_blocks, 0u);
  EXPECT_EQ(explanation_.matches[0].blocks_ignoring_age, 2u);
  EXPECT_EQ(explanation_.matches[0].age, absl::Minutes(31));
}

TEST_F(ExplainTest, TellsALeaseFromAnEntry) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"b0"})}});
  clock_.Advance(absl::Minutes(10));
  Report({.replica_id = "r1", .retains_all = true});
  AskForChain({"b0"});
  Explain();
  ASSERT_EQ(explanation_.matches.size(), 2u);
  EXPECT_EQ(explanation_.matches[0].age, absl::Minutes(10));
  EXPECT_EQ(explanation_.matches[0].age_source, AgeSource::kEntry);
  EXPECT_EQ(explanation_.matches[1].age, absl::ZeroDuration());
  EXPECT_EQ(explanation_.matches[1].age_source, AgeSource::kLease);
}

TEST_F(ExplainTest, TellsWherePressureComesFrom) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0"})}, .stats = OwnedStats{.pressure = 0.5f}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"b0"})}});
  AskForChain({"b0"});
  Explain();
  EXPECT_EQ(explanation_.matches.at(0).pressure_source, PressureSource::kStats);
  EXPECT_EQ(explanation_.matches.at(0).pressure_factor, 0.5f);
  EXPECT_EQ(explanation_.matches.at(1).pressure_source, PressureSource::kNoStats);
  clock_.Advance(absl::Minutes(29));
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0"})}});
  clock_.Advance(absl::Minutes(2));
  EXPECT_EQ(Explain().matches.at(0).pressure_source, PressureSource::kStatsExpired);
}

TEST_F(ExplainTest, NamesWhatExistsInThePlaceOfAnUnknownKey) {
  Report({.prefixes = {Single("a")}});
  request_.prefix_hash = "a";
  request_.hash_scheme = "sglang";
  EXPECT_THAT(Explain().scope.names.names(), ElementsAre("vllm"));
  request_.model_id = "m2";
  EXPECT_THAT(Explain().scope.names.names(), ElementsAre("m"));
  request_.tenant_id = "t2";
  EXPECT_THAT(Explain().scope.names.names(), ElementsAre("t"));
  EXPECT_EQ(explanation_.because, "no prefix is held for tenant \"t2\"");
}

TEST_F(ExplainTest, TellsHowManyHoldThePrefixHoweverFewAreAnswered) {
  Report({.replica_id = "r0", .prefixes = {Blocks({"b0"})}});
  Report({.replica_id = "r1", .prefixes = {Blocks({"b0"})}});
  AskForChain({"b0"});
  EXPECT_EQ(Explain().because, "2 replicas hold the prefix or a leading part of it");
  request_.max_replicas = 1;
  EXPECT_EQ(Explain().because, "2 replicas hold the prefix or a leading part of it; in the answer: 1");
}

TEST_F(ExplainTest, TellsWhyAnInputCannotBeUsed) {
  AskForChain({"b0", "b1"});
  request_.chain.block_token_counts = absl::MakeConstSpan(counts_).first(1);
  EXPECT_EQ(Explain().because, "block_hashes has 2 entries, block_token_counts 1");
  EXPECT_EQ(explanation_.input.kind, InputKind::kUnusable);
  EXPECT_FALSE(explanation_.index_consulted);
  request_.chain = {};
  const std::vector<uint32_t> few_tokens(15);
  request_.token_ids = few_tokens;
  EXPECT_EQ(Explain().because, "15 token ids make no whole block of 16");
  request_.token_ids = absl::MakeConstSpan(few_tokens).first(1);
  EXPECT_EQ(Explain().because, "1 token id makes no whole block of 16");
  request_.token_ids = {};
  request_.prompt_text = "Hello";
  EXPECT_EQ(Explain().because, "the daemon has no tokenizer for prompt_text");
}

TEST_F(ExplainTest, TellsThePolicyAndWhereItStands) {
  EXPECT_EQ(Explain().policy.source, "policies.yaml:4:7");
  EXPECT_EQ(explanation_.policy.ttl, absl::Minutes(30));
  request_.tenant_id = "t2";
  EXPECT_EQ(Explain().policy.source, "");
}

TEST_F(ExplainTest, TellsWhyThereIsNoAffinity) {
  Report({.prefixes = {Single("a")}});
  request_.prefix_hash = "b";
  policy_.affinity_routing = false;
  EXPECT_THAT(Explain().because, HasSubstr("the policy disables it"));
  policy_.affinity_routing = true;
  EXPECT_EQ(Explain().affinity->replica_id, "r0");
}

TEST_F(ExplainTest, ListsABoundedNumberOfReplicas) {
  for (int i = 0; i < 300; ++i) Report({.replica_id = "r" + std::to_string(i), .prefixes = {Single("a")}});
  request_.prefix_hash = "a";
  Explain();
  EXPECT_EQ(explanation_.matches.size(), kMaxExplainedReplicas);
  EXPECT_EQ(explanation_.matches_omitted, 44u);
  EXPECT_EQ(explanation_.scope.replicas.size(), kMaxExplainedReplicas);
  EXPECT_EQ(explanation_.scope.replica_count, 300u);
}

}  // namespace
}  // namespace icache
