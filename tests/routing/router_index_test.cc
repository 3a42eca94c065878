// The router over the real index: that the two agree on what a question and its answer mean.
#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "icache/index/sharded_index.h"
#include "icache/routing/router.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/observations.h"

namespace icache {
namespace {

using ::icache::testing::Apply;
using ::icache::testing::Blocks;
using ::icache::testing::FakeClock;
using ::icache::testing::OwnedPrefix;
using ::icache::testing::OwnedStats;
using ::icache::testing::OwnedUpdate;
using ::icache::testing::Packed;
using ::icache::testing::Single;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class RouterIndexTest : public ::testing::Test {
 protected:
  RouterIndexTest() : index_(CreateShardedIndex({.hot_threshold = 1}, &policies_).value()) {
    request_.tenant_id = "t";
    request_.model_id = "m";
    request_.hash_scheme = "vllm";
  }

  void Report(const std::string& replica_id, std::vector<OwnedPrefix> prefixes) {
    Apply(*index_, OwnedUpdate{.replica_id = replica_id, .prefixes = std::move(prefixes)}, clock_.Now());
  }

  void AskForChain(std::vector<std::string_view> hashes, int32_t tokens_each) {
    hashes_ = std::move(hashes);
    counts_.assign(hashes_.size(), tokens_each);
    request_.chain.block_hashes = hashes_;
    request_.chain.block_token_counts = counts_;
  }

  // Looks up under `policy_`.
  ReasonCode Lookup() {
    auto set = std::make_shared<PolicySet>();
    set->AddPolicy("t", policy_);
    policies_.Publish(std::move(set));
    Router({}, index_.get(), &policies_, &clock_, /*observer=*/nullptr)
        .Lookup(request_, clock_.Now(), &scratch_, &answer_);
    return answer_.reason;
  }

  std::vector<std::string> RowNames() const {
    std::vector<std::string> names;
    for (const ReplicaScore& row : answer_.rows) names.emplace_back(row.replica_id);
    return names;
  }

  int64_t HotPrefixes() const { return index_->GetState("t", "m").hot_prefixes; }

  FakeClock clock_;
  PolicyStore policies_{absl::Minutes(30)};
  const std::unique_ptr<PrefixIndex> index_;
  CachePolicy policy_;
  LookupRequest request_;
  std::vector<std::string_view> hashes_;
  std::vector<int32_t> counts_;
  LookupScratch scratch_;
  LookupAnswer answer_;
};

TEST_F(RouterIndexTest, RanksThreeReplicasAsTheWorkedExampleDoes) {
  // contract/lookup.md: "r0 holds b1..b4, r1 b1..b2, r2 b1, 64 tokens each: scores 170.7, 42.7, 0".
  policy_.minimum_matched_tokens = 0;
  Report("r0", {Blocks({"b1", "b2", "b3", "b4"}, {64, 64, 64, 64})});
  Report("r1", {Blocks({"b1", "b2"}, {64, 64})});
  Report("r2", {Blocks({"b1"}, {64})});
  AskForChain({"b1", "b2", "b3", "b4"}, 64);
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  ASSERT_THAT(RowNames(), ElementsAre("r0", "r1", "r2"));
  EXPECT_NEAR(answer_.rows[0].score, 170.667, 1e-2);
  EXPECT_NEAR(answer_.rows[1].score, 42.667, 1e-2);
  EXPECT_EQ(answer_.rows[2].score, 0);
  EXPECT_EQ(answer_.rows[0].matched_tokens, 256);
}

TEST_F(RouterIndexTest, PackedAndSpelledHashesAreOneKey) {
  Report("r0", {Packed({0x3030303030303031, 0x3030303030303032}, 64)});
  Report("r1", {Single("other")});
  AskForChain({"00000001", "00000002"}, 64);
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_THAT(RowNames(), ElementsAre("r0"));
}

TEST_F(RouterIndexTest, ARepeatedHashCountsAtEachPlaceAndIsCreditedOnce) {
  policy_.eviction = EvictionAlgorithm::kLfu;
  Report("r0", {Single("a", 64)});
  Report("r1", {Single("other")});
  AskForChain({"a", "a", "a"}, 64);
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_EQ(answer_.rows[0].matched_tokens, 192);
  EXPECT_EQ(HotPrefixes(), 1);
}

TEST_F(RouterIndexTest, OnlyDeliveredRowsAreCredited) {
  Report("r0", {Single("a", 64)});
  Report("r1", {Single("b", 64)});
  request_.prefix_hash = "a";
  policy_.eviction = EvictionAlgorithm::kLru;
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  policy_.eviction = EvictionAlgorithm::kLfu;
  policy_.routing_floor_score = 1000;
  ASSERT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_EQ(HotPrefixes(), 0);
  policy_.routing_floor_score = 0;
  ASSERT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  EXPECT_EQ(HotPrefixes(), 1);
}

TEST_F(RouterIndexTest, EntriesDieAtTheTtlButTheirReplicaStaysPresent) {
  Report("r0", {Single("a", 64)});
  Report("r1", {Single("b", 64)});
  request_.prefix_hash = "a";
  clock_.Advance(absl::Minutes(30) - absl::Microseconds(1));
  policy_.routing_floor_score = 0;
  EXPECT_EQ(Lookup(), ReasonCode::kPrefixMatch);
  clock_.Advance(absl::Microseconds(1));
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterIndexTest, AdaptersAreApart) {
  Report("r0", {Single("a", 64)});
  Report("r1", {Single("b", 64)});
  request_.prefix_hash = "a";
  request_.adapter_id = "lora";
  EXPECT_EQ(Lookup(), ReasonCode::kAffinityHint);
}

TEST_F(RouterIndexTest, FreshStatsMakeAReplicaTenantHot) {
  // contract/lookup.md: "hit_rate 0.8, stats 30 s old, pressure 0.1, no prefix: TENANT_HOT 0.648".
  Apply(*index_,
        OwnedUpdate{.stamped_at = clock_.Now() - absl::Seconds(30),
                    .prefixes = {Single("other")},
                    .stats = OwnedStats{.hit_rate = 0.8f, .pressure = 0.1f}},
        clock_.Now());
  request_.prefix_hash = "a";
  ASSERT_EQ(Lookup(), ReasonCode::kTenantHot);
  EXPECT_NEAR(answer_.rows[0].score, 0.648, 1e-5);
}

TEST_F(RouterIndexTest, MissesNameTheUnknownKey) {
  request_.prefix_hash = "a";
  EXPECT_EQ(Lookup(), ReasonCode::kNoHint);  // an empty index knows no key
  Report("r0", {Single("other")});
  request_.hash_scheme = "sglang";
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownHashScheme);
  request_.model_id = "m2";
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownModel);
  request_.tenant_id = "t2";
  EXPECT_EQ(Lookup(), ReasonCode::kUnknownTenant);
  EXPECT_THAT(answer_.rows, IsEmpty());
}

TEST_F(RouterIndexTest, ThePickFollowsTheBytewiseOrderOfNames) {
  // SHA-256("abc") begins 0xba7816bf8f01cfea, which is 2 modulo 4.
  for (const char* replica : {"r2", "r10", "R9", "r1"}) Report(replica, {Single("other")});
  request_.prefix_hash = "abc";
  ASSERT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre("r10"));
  const std::vector<std::string_view> candidates = {"r1", "r2", "elsewhere"};
  request_.candidate_replica_ids = candidates;
  ASSERT_EQ(Lookup(), ReasonCode::kAffinityHint);
  EXPECT_THAT(RowNames(), ElementsAre("r1"));
}

}  // namespace
}  // namespace icache
