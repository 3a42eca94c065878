// Malformed messages, one by one. Source: contract/index.md, contract/lookup.md.
#include <cstdint>
#include <functional>
#include <limits>

#include "tests/integration/hostile_wire_fixture.h"

namespace icache::testing {
namespace {

using ::testing::IsEmpty;

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int32_t kMinInt32 = std::numeric_limits<int32_t>::min();

// A name, and what it does to a message that was well formed before.
template <typename Message>
struct Case {
  const char* name;
  std::function<void(Message*)> spoil;
};

const std::string kLongName(513, 'n');  // one byte too long
const std::string kLongHash(65, 'h');   // likewise

// Adds what is in both PrefixEntry and LookupRouteRequest.
template <typename Message>
void AddBlocks(Message* message, const std::vector<std::string>& hashes, const std::vector<int32_t>& token_counts) {
  for (const std::string& hash : hashes) message->add_block_hashes(hash);
  for (const int32_t count : token_counts) message->add_block_token_counts(count);
}
template <typename Message>
void AddPacked(Message* message, int blocks, int32_t tokens_per_block) {
  for (int i = 0; i < blocks; ++i) message->add_block_hashes_u64(i);
  message->set_tokens_per_block(tokens_per_block);
}

// Chains that no message may carry.
template <typename Message>
std::vector<Case<Message>> BadChains() {
  return {
      {"a hash without a count", [](Message* m) { AddBlocks(m, {"a"}, {}); }},
      {"a count without a hash", [](Message* m) { AddBlocks(m, {}, {16}); }},
      {"more hashes than counts",
       [](Message* m) {
         AddBlocks(m, {"a", "b"}, {16});
       }},
      {"more counts than hashes",
       [](Message* m) {
         AddBlocks(m, {"a"}, {16, 16});
       }},
      {"unequal arrays beside a single hash",
       [](Message* m) {
         AddBlocks(m, {"a", "b"}, {16});
         m->set_prefix_hash("known");
       }},
      {"an empty hash in a chain",
       [](Message* m) {
         AddBlocks(m, {"a", "", "c"}, {16, 16, 16});
       }},
      {"a chain of an empty hash", [](Message* m) { AddBlocks(m, {""}, {16}); }},
      {"an overlong hash in a chain",
       [](Message* m) {
         AddBlocks(m, {"a", kLongHash}, {16, 16});
       }},
      {"a negative count in a chain",
       [](Message* m) {
         AddBlocks(m, {"a", "b"}, {16, -1});
       }},
      {"the most negative count in a chain", [](Message* m) { AddBlocks(m, {"a"}, {kMinInt32}); }},
      {"counts that add up beyond int32",
       [](Message* m) {
         AddBlocks(m, {"a", "b"}, {kMaxInt32, 1});
       }},
      {"a packed chain without a count", [](Message* m) { AddPacked(m, 1, 0); }},
      {"a packed chain with a negative count", [](Message* m) { AddPacked(m, 1, -16); }},
      {"packed counts that add up beyond int32", [](Message* m) { AddPacked(m, 2, kMaxInt32); }},
      {"a packed chain beside counts alone",
       [](Message* m) {
         AddPacked(m, 1, 16);
         AddBlocks(m, {}, {16});
       }},
  };
}

class HostileContentTest : public HostileWireTest {};

TEST_F(HostileContentTest, ACompressedRequestIsRefusedCountedAndTold) {
  Start();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  wire::LookupRouteResponse response;
  const auto channel = grpc::CreateChannel(icached_->grpc_address(), grpc::InsecureChannelCredentials());
  const grpc::Status status =
      wire::InferenceCache::NewStub(channel)->LookupRoute(&context, Lookup(std::string(64, 'x')), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(Metric("inferencecache_compressed_requests_total"), 1);
  EXPECT_TRUE(icached_->WaitForOutput("warn compressed_request_refused"));
  ExpectServes();
}

TEST_F(HostileContentTest, MalformedUpdatesAreDroppedWhole) {
  Start();
  using Update = wire::CacheStateUpdate;
  const std::vector<Case<Update>> cases = {
      {"no replica", [](Update* u) { u->clear_replica_id(); }},
      {"no model", [](Update* u) { u->clear_model_id(); }},
      {"no tenant", [](Update* u) { u->clear_tenant_id(); }},
      {"nothing at all", [](Update* u) { u->Clear(); }},
      {"overlong replica", [](Update* u) { u->set_replica_id(kLongName); }},
      {"overlong model", [](Update* u) { u->set_model_id(kLongName); }},
      {"overlong tenant", [](Update* u) { u->set_tenant_id(kLongName); }},
      {"overlong scheme", [](Update* u) { u->set_hash_scheme(kLongName); }},
      {"overlong adapter", [](Update* u) { u->set_adapter_id(kLongName); }},
  };
  const double holdings = Holdings();
  const double bytes = IndexBytes();
  int sent = 0;
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    Update update = HostileWireTest::Update("r1", "hash");
    update.mutable_stats()->set_hit_rate(1);
    spoil(&update);
    client_->Report({update});
    EXPECT_EQ(Dropped("malformed_update"), ++sent);
    EXPECT_EQ(Holdings(), holdings);
    EXPECT_EQ(IndexBytes(), bytes);
  }
  EXPECT_THAT(client_->GetState("tenant", "model").replicas(), IsEmpty());
}

TEST_F(HostileContentTest, MalformedPrefixEntriesAreDroppedAlone) {
  Start();
  using Entry = wire::PrefixEntry;
  std::vector<Case<Entry>> cases = BadChains<Entry>();
  const std::vector<Case<Entry>> more = {
      {"no hash at all", [](Entry* e) { e->set_token_count(16); }},
      {"an overlong single hash", [](Entry* e) { e->set_prefix_hash(kLongHash); }},
      {"a single hash with a negative count",
       [](Entry* e) {
         e->set_prefix_hash("single");
         e->set_token_count(-1);
       }},
      {"an overlong adapter",
       [](Entry* e) {
         e->set_prefix_hash("single");
         e->set_adapter_id(kLongName);
       }},
      {"a good chain with an overlong single hash",
       [](Entry* e) {
         AddBlocks(e, {"a"}, {16});
         e->set_prefix_hash(kLongHash);
       }},
      {"a good chain whose single hash has a negative count",
       [](Entry* e) {
         AddBlocks(e, {"a"}, {16});
         e->set_prefix_hash("single");
         e->set_token_count(-1);
       }},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  const double holdings = Holdings();
  int sent = 0;
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    const std::string good = "good-" + std::to_string(sent);
    wire::CacheStateUpdate update = Update("r1");
    spoil(update.add_prefixes());
    update.MergeFrom([&] {
      wire::CacheStateUpdate after;
      AddBlocks(after.add_prefixes(), {good}, {16});
      return after;
    }());
    client_->Report({update});
    EXPECT_EQ(Dropped("malformed_entry"), ++sent);
    EXPECT_EQ(Holdings(), holdings + sent);
    EXPECT_EQ(client_->Lookup(Lookup(good)).reason_code(), "PREFIX_MATCH");
  }
}

TEST_F(HostileContentTest, PrefixesWithoutASchemeAreDroppedAndStatsApply) {
  Start();
  const double holdings = Holdings();
  wire::CacheStateUpdate update = Update("r1", "hash");
  update.clear_hash_scheme();
  update.mutable_stats()->set_hit_rate(0.5F);
  client_->Report({update});
  EXPECT_EQ(Dropped("missing_scheme"), 1);
  EXPECT_EQ(Holdings(), holdings);
  const wire::GetCacheStateResponse state = client_->GetState("tenant", "model");
  ASSERT_EQ(state.replicas_size(), 1);
  EXPECT_EQ(state.replicas(0).hit_rate(), 0.5F);
}

TEST_F(HostileContentTest, MalformedEvictionsAreDroppedAlone) {
  Start();
  client_->Report({Update("r1", "hash")});
  wire::CacheStateUpdate update = Update("r1");
  update.add_evicted_hashes("");
  update.add_evicted_hashes(kLongHash);
  update.add_evicted_hashes("hash");
  client_->Report({update});
  EXPECT_EQ(Dropped("malformed_eviction"), 2);
  EXPECT_EQ(client_->Lookup(Lookup("hash")).reason_code(), "NO_HINT");
}

TEST_F(HostileContentTest, LeasesWithoutSchemeOrEntryAreRefused) {
  Start();
  wire::CacheStateUpdate update = Update("r1");
  update.set_retains_all(true);
  client_->Report({update});
  EXPECT_EQ(Dropped("lease_refused"), 1);
  update.set_replica_id("r0");
  update.clear_hash_scheme();
  client_->Report({update});
  EXPECT_EQ(Dropped("lease_refused"), 2);
}

TEST_F(HostileContentTest, LateMessagesStopAtTheFence) {
  Start();
  const int64_t now = absl::ToUnixMicros(absl::Now());
  wire::CacheStateUpdate held = Update("r1", "hash");
  held.set_timestamp_us(now - 2);
  wire::CacheStateUpdate clear = Update("r1");
  clear.set_clear(true);
  clear.set_timestamp_us(now);
  wire::CacheStateUpdate late = Update("r1", "hash");
  late.set_timestamp_us(now - 1);
  client_->Report({held, clear, late});
  EXPECT_EQ(Dropped("fenced"), 1);
  EXPECT_EQ(client_->Lookup(Lookup("hash")).reason_code(), "NO_HINT");
}

TEST_F(HostileContentTest, OddTimesAreStored) {
  Start();
  const int64_t now = absl::ToUnixMicros(absl::Now());
  const double holdings = Holdings();
  const struct {
    int64_t timestamp_us;
    bool stale;
  } cases[] = {
      {std::numeric_limits<int64_t>::min(), true},
      {-1, true},
      {1, true},
      {now / 1'000, true},
      {now / 1'000'000, true},  // in milliseconds and in seconds
      {std::numeric_limits<int64_t>::max(), false},
      {now * 1'000, false},  // in nanoseconds
  };
  int sent = 0;
  int stale = 0;
  for (const auto& [timestamp_us, is_stale] : cases) {
    SCOPED_TRACE(timestamp_us);
    const std::string hash = "time-" + std::to_string(++sent);
    wire::CacheStateUpdate update = Update("r1", hash);
    update.set_timestamp_us(timestamp_us);
    update.mutable_stats()->set_hit_rate(0.5F);
    client_->Report({update});
    EXPECT_EQ(Holdings(), holdings + sent);
    EXPECT_EQ(Dropped("stale_timestamp"), stale += is_stale ? 1 : 0);
    EXPECT_EQ(client_->Lookup(Lookup(hash)).reason_code(), is_stale ? "NO_HINT" : "PREFIX_MATCH");
  }
}

TEST_F(HostileContentTest, UnknownTiersAreStoredAndToldAsUnspecified) {
  Start();
  for (const int32_t tier : {4, 99, kMaxInt32, -1, kMinInt32}) {
    SCOPED_TRACE(tier);
    wire::CacheStateUpdate update = Update("r1", "hash");
    update.mutable_prefixes(0)->set_tier(static_cast<wire::CacheTier>(tier));
    client_->Report({update});
    const wire::LookupRouteResponse answer = client_->Lookup(Lookup("hash"));
    ASSERT_EQ(answer.replica_scores_size(), 1);
    EXPECT_EQ(answer.replica_scores(0).tier(), wire::CACHE_TIER_UNSPECIFIED);
  }
}

TEST_F(HostileContentTest, StatsThatAreNoNumbersBecomeZero) {
  Start();
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
    SCOPED_TRACE(value);
    wire::CacheStateUpdate update = Update("r0");
    update.mutable_stats()->set_replica_id("ignored");
    update.mutable_stats()->set_hit_rate(value);
    update.mutable_stats()->set_pressure(value);
    client_->Report({update});
    const wire::GetCacheStateResponse state = client_->GetState("tenant", "model");
    ASSERT_EQ(state.replicas_size(), 1);
    EXPECT_EQ(state.replicas(0).replica_id(), "r0");
    EXPECT_EQ(state.replicas(0).hit_rate(), 0);
    EXPECT_EQ(state.replicas(0).pressure(), 0);
    ExpectServes();
  }
}

TEST_F(HostileContentTest, MalformedEventsAreAcceptedAndDropped) {
  Start();
  using Event = wire::CacheEvent;
  const std::vector<Case<Event>> cases = {
      {"nothing at all", [](Event* e) { e->Clear(); }},
      {"no replica", [](Event* e) { e->clear_replica_id(); }},
      {"no model", [](Event* e) { e->clear_model_id(); }},
      {"no tenant", [](Event* e) { e->clear_tenant_id(); }},
      {"an eviction without a hash", [](Event* e) { e->clear_prefix_hash(); }},
      {"an eviction of an overlong hash", [](Event* e) { e->set_prefix_hash(kLongHash); }},
  };
  int sent = 0;
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    Event event;
    event.set_type(Event::PREFIX_EVICTED);
    event.set_replica_id("r0");
    event.set_model_id("model");
    event.set_tenant_id("tenant");
    event.set_prefix_hash("known");
    spoil(&event);
    client_->Publish(event);
    EXPECT_EQ(Dropped("malformed_event"), ++sent);
    ExpectServes();
  }
}

TEST_F(HostileContentTest, EventsThatCannotRemoveChangeNothing) {
  Start();
  const double bytes = IndexBytes();
  for (const int type : {0, 1, 5, 77, kMaxInt32, kMinInt32}) {
    for (const std::string& replica : {std::string("r0"), kLongName, std::string(100'000, 'x')}) {
      SCOPED_TRACE(type);
      wire::CacheEvent event;
      event.set_type(static_cast<wire::CacheEvent::Type>(type));
      event.set_replica_id(replica);
      event.set_model_id("model");
      event.set_tenant_id("tenant");
      event.set_prefix_hash("known");
      client_->Publish(event);
    }
  }
  EXPECT_EQ(IndexBytes(), bytes);
}

TEST_F(HostileContentTest, MalformedLookupsHaveNoHint) {
  Start();
  using Request = wire::LookupRouteRequest;
  std::vector<Case<Request>> cases = BadChains<Request>();
  const std::vector<Case<Request>> more = {
      {"an overlong exact hash", [](Request* r) { r->set_prefix_hash(kLongHash); }},
      {"a chain of 65,537 blocks",
       [](Request* r) {
         for (int i = 0; i < 65'537; ++i) AddBlocks(r, {"h"}, {1});
       }},
      {"a packed chain of 65,537 blocks", [](Request* r) { AddPacked(r, 65'537, 1); }},
      {"token ids of less than a block",
       [](Request* r) {
         for (int i = 0; i < 15; ++i) r->add_token_ids(i);
       }},
      {"1,048,577 token ids",
       [](Request* r) {
         for (int i = 0; i < 1'048'577; ++i) r->add_token_ids(i);
       }},
      {"text that nothing tokenizes", [](Request* r) { r->set_prompt_text("text"); }},
      {"more than 1 MiB of text", [](Request* r) { r->set_prompt_text(std::string((1 << 20) + 1, 't')); }},
      {"a chain where chains are ignored",
       [](Request* r) {
         r->set_tenant_id("exact");
         AddBlocks(r, {"known"}, {16});
       }},
      {"a packed chain where chains are ignored",
       [](Request* r) {
         r->set_tenant_id("exact");
         AddPacked(r, 1, 16);
       }},
  };
  cases.insert(cases.end(), more.begin(), more.end());
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    Request request = Lookup();
    request.set_adapter_id("adapter");
    spoil(&request);
    const wire::LookupRouteResponse answer = client_->Lookup(request);
    EXPECT_EQ(answer.reason_code(), "NO_HINT");
    EXPECT_THAT(answer.replica_scores(), IsEmpty());
    EXPECT_EQ(answer.adapter_id(), "");  // the index was not asked
    ExpectServes();
  }
}

TEST_F(HostileContentTest, LookupsWithoutAKeyHaveNoHintAndEchoTheAdapter) {
  Start();
  using Request = wire::LookupRouteRequest;
  const std::vector<Case<Request>> cases = {
      {"no tenant", [](Request* r) { r->clear_tenant_id(); }},
      {"no model", [](Request* r) { r->clear_model_id(); }},
      {"no scheme", [](Request* r) { r->clear_hash_scheme(); }},
  };
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    Request request = Lookup("known");
    request.set_adapter_id("adapter");
    spoil(&request);
    const wire::LookupRouteResponse answer = client_->Lookup(request);
    EXPECT_EQ(answer.reason_code(), "NO_HINT");
    EXPECT_EQ(answer.adapter_id(), "adapter");
  }
}

TEST_F(HostileContentTest, ExtremeValuesBesideAGoodChainDoNoHarm) {
  Start();
  using Request = wire::LookupRouteRequest;
  const std::vector<Case<Request>> cases = {
      {"an overlong exact hash beside the chain", [](Request* r) { r->set_prefix_hash(kLongHash); }},
      {"a packed chain beside the chain", [](Request* r) { AddPacked(r, 70'000, -1); }},
      {"a count without a packed chain", [](Request* r) { r->set_tokens_per_block(kMinInt32); }},
      {"an exact count of a chain", [](Request* r) { r->set_prefix_token_count(kMinInt32); }},
      {"the fewest replicas", [](Request* r) { r->set_max_replicas(kMinInt32); }},
      {"extreme latency targets",
       [](Request* r) {
         r->mutable_slo()->set_ttft_ms(kMinInt32);
         r->mutable_slo()->set_tbt_ms(kMaxInt32);
       }},
      {"100,000 candidates",
       [](Request* r) {
         for (int i = 0; i < 100'000; ++i) r->add_candidate_replica_ids("r" + std::to_string(i));
       }},
      {"one candidate 100,000 times",
       [](Request* r) {
         for (int i = 0; i < 100'000; ++i) r->add_candidate_replica_ids("r0");
       }},
      {"text beside the chain", [](Request* r) { r->set_prompt_text(std::string(2 << 20, 't')); }},
  };
  for (const auto& [name, spoil] : cases) {
    SCOPED_TRACE(name);
    Request request = Lookup("known");
    spoil(&request);
    EXPECT_EQ(client_->Lookup(request).reason_code(), "PREFIX_MATCH");
  }
}

TEST_F(HostileContentTest, UnparsableMessagesFailAloneAndAreNoCalls) {
  Start();
  const double calls = Metrics().Sum("inferencecache_lookup_route_calls_total");
  const double holdings = Holdings();
  const std::string good = Update("r1", "hash").SerializeAsString();
  const std::string bad_endings[] = {
      "\x12\x01\xff",                                 // field 2, a string, is not UTF-8
      "\x12\x03\xed\xa0\x80",                         // nor is half of a surrogate pair
      "\x12\x7f",                                     // a string that ends too early
      "\x12\xff\xff\xff\xff\x0f",                     // one that cannot be so long
      "\xff",                                         // half a tag
      std::string("\x02\x00", 2),                     // field number 0
      "\x0e",                                         // a wire type that does not exist
      "\x0c",                                         // a group that ends without a beginning
      std::string(1'000'000, '\x0b'),                 // groups in groups in groups
      std::string("\x12") + std::string(20, '\xff'),  // a number that does not end
  };
  for (const std::string& ending : bad_endings) {
    for (const char* method : {"LookupRoute", "PublishEvent", "GetCacheState", "RenderTemplate", "LookupPDRoute"}) {
      SCOPED_TRACE(method);
      EXPECT_EQ(client_->CallRaw(MethodName(method), ending).error_code(), grpc::StatusCode::INTERNAL);
    }
    EXPECT_EQ(client_->CallRaw(MethodName("ReportCacheState"), good + ending).error_code(), grpc::StatusCode::INTERNAL);
  }
  EXPECT_EQ(Metrics().Sum("inferencecache_lookup_route_calls_total"), calls);
  EXPECT_EQ(Holdings(), holdings);
}

TEST_F(HostileContentTest, UnknownFieldsAreIgnored) {
  Start();
  const std::string unknown = "\xc2\x3e\x05hello";  // field 1000
  std::string answer;
  ASSERT_TRUE(client_->CallRaw(MethodName("LookupRoute"), Lookup("known").SerializeAsString() + unknown, &answer).ok());
  wire::LookupRouteResponse response;
  ASSERT_TRUE(response.ParseFromString(answer));
  EXPECT_EQ(response.reason_code(), "PREFIX_MATCH");
}

TEST_F(HostileContentTest, MethodsThatDoNotExistAreUnimplemented) {
  Start();
  for (const std::string& method : {MethodName("Nothing"), MethodName(""), std::string("/other.Service/LookupRoute"),
                                    "/" + std::string(4'000, 'x')}) {
    EXPECT_EQ(client_->CallRaw(method, "").error_code(), grpc::StatusCode::UNIMPLEMENTED) << method;
  }
}

}  // namespace
}  // namespace icache::testing
