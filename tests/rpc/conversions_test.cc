#include "icache/rpc/conversions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace icache {
namespace {

namespace wire = ::inferencecache::v1alpha1;

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kMinInt64 = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxInt64 = std::numeric_limits<int64_t>::max();

struct StampCase {
  const char* name;
  int64_t timestamp_us;
  std::optional<absl::Time> stamp;
};

class StampFromWireTest : public ::testing::TestWithParam<StampCase> {};

TEST_P(StampFromWireTest, NamesTheTime) { EXPECT_EQ(StampFromWire(GetParam().timestamp_us), GetParam().stamp); }

INSTANTIATE_TEST_SUITE_P(
    All, StampFromWireTest,
    ::testing::Values(StampCase{"ZeroIsUnstamped", 0, std::nullopt},  // Source: contract/wire.md "Rules of the wire"
                      StampCase{"OneMicrosecond", 1, absl::UnixEpoch() + absl::Microseconds(1)},
                      StampCase{"Today", 1'700'000'000'000'001, absl::FromUnixMicros(1'700'000'000'000'001)},
                      StampCase{"FarFuture", kMaxInt64, absl::FromUnixMicros(kMaxInt64)},
                      StampCase{"Negative", -1, absl::UnixEpoch()},
                      StampCase{"Smallest", kMinInt64, absl::UnixEpoch()}),
    [](const auto& row) { return row.param.name; });

TEST(LookupRequestViewTest, EmptyMessageIsTheDefaultRequest) {
  LookupRequestView view;
  const LookupRequest& request = view.Read(wire::LookupRouteRequest(), absl::InfiniteFuture());
  EXPECT_EQ(request.model_id, "");
  EXPECT_THAT(request.chain.block_hashes, IsEmpty());
  EXPECT_THAT(request.token_ids, IsEmpty());
  EXPECT_THAT(request.candidate_replica_ids, IsEmpty());
  EXPECT_EQ(request.ttft_ms, 0);
  EXPECT_EQ(request.deadline, absl::InfiniteFuture());
}

TEST(LookupRequestViewTest, EveryFieldArrives) {
  wire::LookupRouteRequest message;
  message.set_model_id("model");
  message.set_tenant_id("tenant");
  message.set_hash_scheme("scheme");
  message.set_adapter_id("adapter");
  message.set_prefix_hash(std::string("\0\xff", 2));
  message.set_prefix_token_count(-7);
  message.add_block_hashes(std::string("a\0", 2));
  message.add_block_hashes("");
  message.add_block_token_counts(std::numeric_limits<int32_t>::min());
  message.add_token_ids(std::numeric_limits<uint32_t>::max());
  message.set_prompt_text("text");
  message.mutable_slo()->set_ttft_ms(50);
  message.add_candidate_replica_ids("r1");
  message.add_candidate_replica_ids("r2");
  message.set_max_replicas(-3);
  message.add_block_hashes_u64(std::numeric_limits<uint64_t>::max());
  message.set_tokens_per_block(16);
  const absl::Time deadline = absl::FromUnixSeconds(5);

  LookupRequestView view;
  const LookupRequest& request = view.Read(message, deadline);

  EXPECT_EQ(request.model_id, "model");
  EXPECT_EQ(request.tenant_id, "tenant");
  EXPECT_EQ(request.hash_scheme, "scheme");
  EXPECT_EQ(request.adapter_id, "adapter");
  EXPECT_EQ(request.prefix_hash, std::string_view("\0\xff", 2));
  EXPECT_EQ(request.prefix_token_count, -7);
  EXPECT_THAT(request.chain.block_hashes, ElementsAre(std::string_view("a\0", 2), ""));
  EXPECT_THAT(request.chain.block_token_counts, ElementsAre(std::numeric_limits<int32_t>::min()));
  EXPECT_THAT(request.token_ids, ElementsAre(std::numeric_limits<uint32_t>::max()));
  EXPECT_EQ(request.prompt_text, "text");
  EXPECT_EQ(request.ttft_ms, 50);
  EXPECT_THAT(request.candidate_replica_ids, ElementsAre("r1", "r2"));
  EXPECT_EQ(request.max_replicas, -3);
  EXPECT_THAT(request.chain.block_hashes_u64, ElementsAre(std::numeric_limits<uint64_t>::max()));
  EXPECT_EQ(request.chain.tokens_per_block, 16);
  EXPECT_EQ(request.deadline, deadline);
}

TEST(LookupRequestViewTest, HashesAreViewsOfTheMessage) {
  wire::LookupRouteRequest message;
  message.add_block_hashes("hash");
  LookupRequestView view;
  const LookupRequest& request = view.Read(message, absl::InfiniteFuture());
  EXPECT_EQ(request.chain.block_hashes[0].data(), message.block_hashes(0).data());
}

TEST(LookupRequestViewTest, NothingOfAnEarlierRequestRemains) {
  wire::LookupRouteRequest full;
  full.set_model_id("model");
  full.add_block_hashes("hash");
  full.add_candidate_replica_ids("r1");
  full.set_max_replicas(3);
  LookupRequestView view;
  view.Read(full, absl::UnixEpoch());
  const LookupRequest& request = view.Read(wire::LookupRouteRequest(), absl::InfiniteFuture());
  EXPECT_EQ(request.model_id, "");
  EXPECT_THAT(request.chain.block_hashes, IsEmpty());
  EXPECT_THAT(request.candidate_replica_ids, IsEmpty());
  EXPECT_EQ(request.max_replicas, 0);
}

TEST(LookupRequestViewTest, ReadsOnAfterItsBuffersWereFreed) {
  wire::LookupRouteRequest message;
  for (int i = 0; i < 1000; ++i) message.add_block_hashes("hash");
  LookupRequestView view;
  view.Read(message, absl::InfiniteFuture());
  view.Trim(/*max_bytes=*/0);
  EXPECT_THAT(view.Read(message, absl::InfiniteFuture()).chain.block_hashes, SizeIs(1000));
}

TEST(StateUpdateViewTest, EveryFieldArrives) {
  wire::CacheStateUpdate message;
  message.set_replica_id("replica");
  message.set_model_id("model");
  message.set_tenant_id("tenant");
  message.set_hash_scheme("scheme");
  message.set_adapter_id("adapter");
  message.set_timestamp_us(42);
  message.set_retains_all(true);
  message.set_clear(true);
  message.add_evicted_hashes("gone");
  message.add_evicted_hashes_u64(7);
  wire::PrefixEntry* entry = message.add_prefixes();
  entry->set_prefix_hash("prefix");
  entry->set_token_count(-1);
  entry->add_block_hashes("b0");
  entry->add_block_token_counts(16);
  entry->set_tier(static_cast<wire::CacheTier>(-9));
  entry->set_adapter_id("other");
  entry->add_block_hashes_u64(8);
  entry->set_tokens_per_block(32);
  message.mutable_stats()->set_replica_id("ignored");
  message.mutable_stats()->set_cache_memory_bytes(kMinInt64);
  message.mutable_stats()->set_hit_rate(std::numeric_limits<float>::infinity());
  message.mutable_stats()->set_pressure(0.5F);
  message.mutable_stats()->set_client_version("v1");
  message.mutable_stats()->set_t2_hit_tokens(1);
  message.mutable_stats()->set_t2_query_tokens(2);

  StateUpdateView view;
  const StateUpdate& update = view.Read(message);

  EXPECT_EQ(update.replica_id, "replica");
  EXPECT_EQ(update.model_id, "model");
  EXPECT_EQ(update.tenant_id, "tenant");
  EXPECT_EQ(update.hash_scheme, "scheme");
  EXPECT_EQ(update.adapter_id, "adapter");
  EXPECT_EQ(update.stamped_at, absl::FromUnixMicros(42));
  EXPECT_TRUE(update.retains_all);
  EXPECT_TRUE(update.clear);
  EXPECT_THAT(update.evicted_hashes, ElementsAre("gone"));
  EXPECT_THAT(update.evicted_hashes_u64, ElementsAre(7));
  ASSERT_THAT(update.prefixes, SizeIs(1));
  const PrefixReport& prefix = update.prefixes[0];
  EXPECT_EQ(prefix.prefix_hash, "prefix");
  EXPECT_EQ(prefix.token_count, -1);
  EXPECT_THAT(prefix.chain.block_hashes, ElementsAre("b0"));
  EXPECT_THAT(prefix.chain.block_token_counts, ElementsAre(16));
  EXPECT_EQ(prefix.tier, -9);
  EXPECT_EQ(prefix.adapter_id, "other");
  EXPECT_THAT(prefix.chain.block_hashes_u64, ElementsAre(8));
  EXPECT_EQ(prefix.chain.tokens_per_block, 32);
  ASSERT_TRUE(update.stats.has_value());
  EXPECT_EQ(update.stats->cache_memory_bytes, kMinInt64);
  EXPECT_TRUE(std::isinf(update.stats->hit_rate));
  EXPECT_EQ(update.stats->pressure, 0.5F);
  EXPECT_EQ(update.stats->client_version, "v1");
  EXPECT_EQ(update.stats->t2_hit_tokens, 1);
  EXPECT_EQ(update.stats->t2_query_tokens, 2);
}

TEST(StateUpdateViewTest, AbsentStatsAndTimeStayAbsent) {
  StateUpdateView view;
  const StateUpdate& update = view.Read(wire::CacheStateUpdate());
  EXPECT_FALSE(update.stats.has_value());
  EXPECT_FALSE(update.stamped_at.has_value());
}

TEST(StateUpdateViewTest, ManyPrefixesKeepTheirOwnHashes) {
  wire::CacheStateUpdate message;
  constexpr int kPrefixes = 100;
  for (int i = 0; i < kPrefixes; ++i) {
    wire::PrefixEntry* entry = message.add_prefixes();
    for (int j = 0; j < i; ++j) entry->add_block_hashes(std::to_string(i) + "/" + std::to_string(j));
  }
  message.add_evicted_hashes("gone");
  StateUpdateView view;
  const StateUpdate& update = view.Read(message);
  ASSERT_THAT(update.prefixes, SizeIs(kPrefixes));
  for (int i = 0; i < kPrefixes; ++i) {
    const auto& hashes = update.prefixes[i].chain.block_hashes;
    ASSERT_THAT(hashes, SizeIs(i));
    for (int j = 0; j < i; ++j) EXPECT_EQ(hashes[j].data(), message.prefixes(i).block_hashes(j).data());
  }
  EXPECT_THAT(update.evicted_hashes, ElementsAre("gone"));
}

struct EventTypeCase {
  const char* name;
  int wire_type;
  CacheEventType type;
};

class CacheEventFromWireTest : public ::testing::TestWithParam<EventTypeCase> {};

TEST_P(CacheEventFromWireTest, KnowsTheType) {
  wire::CacheEvent message;
  message.set_type(static_cast<wire::CacheEvent::Type>(GetParam().wire_type));
  EXPECT_EQ(CacheEventFromWire(message).type, GetParam().type);
}

INSTANTIATE_TEST_SUITE_P(All, CacheEventFromWireTest,  // Source: contract/wire.md
                         ::testing::Values(EventTypeCase{"Unspecified", 0, CacheEventType::kUnspecified},
                                           EventTypeCase{"Added", 1, CacheEventType::kPrefixAdded},
                                           EventTypeCase{"Evicted", 2, CacheEventType::kPrefixEvicted},
                                           EventTypeCase{"Updated", 3, CacheEventType::kReplicaUpdated},
                                           EventTypeCase{"Cleared", 4, CacheEventType::kAllCleared},
                                           EventTypeCase{"Unknown", 5, CacheEventType::kUnspecified},
                                           EventTypeCase{"Negative", -1, CacheEventType::kUnspecified}),
                         [](const auto& row) { return row.param.name; });

TEST(CacheEventFromWireTest, EveryFieldArrives) {
  wire::CacheEvent message;
  message.set_replica_id("replica");
  message.set_model_id("model");
  message.set_tenant_id("tenant");
  message.set_prefix_hash("hash");
  message.set_adapter_id("adapter");
  message.set_timestamp_us(9);
  const CacheEvent event = CacheEventFromWire(message);
  EXPECT_EQ(event.replica_id, "replica");
  EXPECT_EQ(event.model_id, "model");
  EXPECT_EQ(event.tenant_id, "tenant");
  EXPECT_EQ(event.prefix_hash, "hash");
  EXPECT_EQ(event.adapter_id, "adapter");
  EXPECT_EQ(event.stamped_at, absl::FromUnixMicros(9));
}

TEST(LookupAnswerToWireTest, RowsKeepTheirOrderAndNumbers) {
  const LookupAnswer answer = {.reason = ReasonCode::kPrefixMatch,
                               .rows = {{"r1", 2.5F, 64, 0.5F, Tier::kT2}, {"r0", 1, 32, 1, Tier::kUnknown}},
                               .adapter_id = "adapter"};
  wire::LookupRouteResponse message;
  message.add_replica_scores()->set_replica_id("of an earlier answer");
  LookupAnswerToWire(answer, absl::Microseconds(12), &message);
  ASSERT_EQ(message.replica_scores_size(), 2);
  EXPECT_EQ(message.replica_scores(0).replica_id(), "r1");
  EXPECT_EQ(message.replica_scores(0).score(), 2.5F);
  EXPECT_EQ(message.replica_scores(0).matched_tokens(), 64);
  EXPECT_EQ(message.replica_scores(0).estimated_cache_hit_prob(), 0.5F);
  EXPECT_EQ(message.replica_scores(0).tier(), wire::CACHE_TIER_T2);
  EXPECT_EQ(message.replica_scores(1).replica_id(), "r0");
  EXPECT_EQ(message.replica_scores(1).tier(), wire::CACHE_TIER_UNSPECIFIED);
  EXPECT_EQ(message.reason_code(), "PREFIX_MATCH");
  EXPECT_EQ(message.lookup_latency_us(), 12);
  EXPECT_EQ(message.adapter_id(), "adapter");
}

TEST(CacheStateToWireTest, RowsAndSummaryArrive) {
  CacheState state;
  state.replicas.push_back({.replica_id = "r0",
                            .stats = {.cache_memory_bytes = 1,
                                      .hit_rate = 0.5F,
                                      .pressure = 0.25F,
                                      .client_version = "v1",
                                      .t2_hit_tokens = 2,
                                      .t2_query_tokens = 3,
                                      .last_seen = absl::UnixEpoch(),
                                      .reported = absl::UnixEpoch()}});
  state.total_prefixes = 10;
  state.hot_prefixes = 4;
  wire::GetCacheStateResponse message;
  CacheStateToWire(state, &message);
  ASSERT_EQ(message.replicas_size(), 1);
  EXPECT_EQ(message.replicas(0).replica_id(), "r0");
  EXPECT_EQ(message.replicas(0).cache_memory_bytes(), 1);
  EXPECT_EQ(message.replicas(0).hit_rate(), 0.5F);
  EXPECT_EQ(message.replicas(0).pressure(), 0.25F);
  EXPECT_EQ(message.replicas(0).client_version(), "v1");
  EXPECT_EQ(message.replicas(0).t2_hit_tokens(), 2);
  EXPECT_EQ(message.replicas(0).t2_query_tokens(), 3);
  EXPECT_EQ(message.summary().total_prefixes(), 10);
  EXPECT_EQ(message.summary().hot_prefixes(), 4);
}

TEST(CacheStateToWireTest, AnEmptyStateHasASummary) {
  wire::GetCacheStateResponse message;
  message.add_replicas()->set_replica_id("of an earlier answer");
  CacheStateToWire(CacheState(), &message);
  EXPECT_EQ(message.replicas_size(), 0);
  EXPECT_TRUE(message.has_summary());
}

}  // namespace
}  // namespace icache
