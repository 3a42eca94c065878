// Too much of what is allowed one by one: large messages, long chains, many replicas, and floods of names.
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/hostile_wire_fixture.h"

namespace icache::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int kLongestChain = 65'536;
constexpr int64_t kMebibyte = 1 << 20;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kFreedMemoryIsKept = true;  // for a while, by the sanitizer
#else
constexpr bool kFreedMemoryIsKept = false;
#endif

std::string BigEndian(uint64_t number) {
  std::string bytes;
  for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

// Block `i` of a chain that looks like a real engine's.
uint64_t Block(int i) { return static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15; }

template <typename Message>
void AddChainAsBytes(Message* message, int blocks) {
  for (int i = 0; i < blocks; ++i) message->add_block_hashes(BigEndian(Block(i)));
  for (int i = 0; i < blocks; ++i) message->add_block_token_counts(16);
}
template <typename Message>
void AddChainPacked(Message* message, int blocks) {
  for (int i = 0; i < blocks; ++i) message->add_block_hashes_u64(Block(i));
  message->set_tokens_per_block(16);
}

class HostileVolumeTest : public HostileWireTest {
 protected:
  // What must not grow with what clients send.
  struct Footprint {
    double index_bytes = 0;
    size_t series = 0;
    int64_t rss_bytes = 0;
  };
  Footprint Measure() {
    const PageReader page = Metrics();
    Footprint footprint;
    footprint.index_bytes = page.Value("inferencecache_index_memory_bytes").value_or(-1);
    for (const auto& [family, samples] : page.families()) {
      for (const auto& [sample, series] : samples.samples) footprint.series += series.size();
    }
    footprint.rss_bytes = icached_->RssBytes();
    return footprint;
  }
  void ExpectRssWithin(const Footprint& before, int64_t growth) {
    if (kFreedMemoryIsKept) return;
    EXPECT_LE(icached_->RssBytes(), before.rss_bytes + growth);
  }
};

// ---------------------------------------------------------------------------------------------- large messages

TEST_F(HostileVolumeTest, LookupOfFourMegabytesIsAnswered) {
  Start();
  wire::LookupRouteRequest request = Lookup();
  request.set_adapter_id("adapter");
  for (uint32_t i = 0; i < 1'048'576; ++i) request.add_token_ids((1 << 21) + i);  // 4 bytes each on the wire
  ASSERT_GT(request.ByteSizeLong(), 4'190'000);
  const wire::LookupRouteResponse answer = client_->Lookup(request);
  EXPECT_EQ(answer.reason_code(), "NO_HINT");
  EXPECT_EQ(answer.adapter_id(), "adapter");  // the index was asked
}

TEST_F(HostileVolumeTest, MessageBeyondTheLimitFailsAlone) {
  Start();
  wire::LookupRouteRequest request = Lookup("known");
  request.set_prompt_text(std::string(16 * kMebibyte, 't'));
  grpc::ClientContext context;
  wire::LookupRouteResponse answer;
  EXPECT_EQ(client_->stub()->LookupRoute(&context, request, &answer).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  ExpectServes();  // on the same channel

  wire::CacheStateUpdate update = Update("r1", "before");
  update.mutable_stats()->set_client_version(std::string(16 * kMebibyte, 'v'));
  grpc::ClientContext report_context;
  wire::Ack ack;
  const auto stream = client_->stub()->ReportCacheState(&report_context, &ack);
  stream->Write(Update("r1", "hash"));
  stream->Write(update);
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(client_->Lookup(Lookup("hash")).reason_code(), "PREFIX_MATCH");
}

TEST_F(HostileVolumeTest, MessageJustBelowTheLimitIsTaken) {
  Start();
  wire::LookupRouteRequest request = Lookup("known");
  request.set_prompt_text(std::string(16 * kMebibyte - 1'000, 't'));
  EXPECT_EQ(client_->Lookup(request).reason_code(), "PREFIX_MATCH");
}

TEST_F(HostileVolumeTest, LongestChainMatchesInBothForms) {
  Start();
  const std::function<void(wire::PrefixEntry*)> reports[] = {
      [](wire::PrefixEntry* entry) { AddChainAsBytes(entry, kLongestChain); },
      [](wire::PrefixEntry* entry) { AddChainPacked(entry, kLongestChain); },
  };
  int replica = 0;
  for (const auto& add_chain : reports) {
    wire::CacheStateUpdate update = Update("long-" + std::to_string(replica++));
    add_chain(update.add_prefixes());
    client_->Report({update});
  }
  wire::LookupRouteRequest as_bytes = Lookup();
  AddChainAsBytes(&as_bytes, kLongestChain);
  wire::LookupRouteRequest packed = Lookup();
  AddChainPacked(&packed, kLongestChain);
  for (const wire::LookupRouteRequest& request : {as_bytes, packed}) {
    const wire::LookupRouteResponse answer = client_->Lookup(request);
    EXPECT_EQ(answer.reason_code(), "PREFIX_MATCH");
    ASSERT_THAT(answer.replica_scores(), SizeIs(2));
    for (const wire::ReplicaScore& row : answer.replica_scores()) EXPECT_EQ(row.matched_tokens(), kLongestChain * 16);
  }

  AddChainAsBytes(&as_bytes, 1);
  AddChainPacked(&packed, 1);
  for (const wire::LookupRouteRequest& request : {as_bytes, packed}) {
    EXPECT_EQ(client_->Lookup(request).reason_code(), "NO_HINT");
  }
}

TEST_F(HostileVolumeTest, FiveThousandReplicasOfOnePrefixAreAllAnswered) {
  Start();
  constexpr int kReplicas = 5'000;
  std::vector<wire::CacheStateUpdate> updates;
  for (int i = 0; i < kReplicas; ++i) updates.push_back(Update("replica-" + std::to_string(i), "wide"));
  client_->Report(updates);
  wire::LookupRouteRequest request = Lookup("wide");
  EXPECT_THAT(client_->Lookup(request).replica_scores(), SizeIs(kReplicas));
  request.set_max_replicas(3);
  EXPECT_THAT(client_->Lookup(request).replica_scores(), SizeIs(3));
  request.add_candidate_replica_ids("replica-4999");
  const wire::LookupRouteResponse answer = client_->Lookup(request);
  ASSERT_THAT(answer.replica_scores(), SizeIs(1));
  EXPECT_EQ(answer.replica_scores(0).replica_id(), "replica-4999");
}

// ---------------------------------------------------------------------------------------------- floods of names

// Names of the longest kind, a new one each time: what is kept of them shows.
class Names {
 public:
  explicit Names(int seed) : random_(seed) {}
  std::string Next() {
    std::string name(512, '\0');
    for (char& c : name) c = static_cast<char>('a' + random_() % 26);
    return name;
  }

 private:
  std::minstd_rand random_;
};

// Calls `run` with 0, 1, … on as many threads.
void OnThreads(int count, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(run, i);
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostileVolumeTest, UnknownNamesInLookupsAndEventsGrowNothing) {
  Start();
  constexpr int kThreads = 4;
  // Three new names in each message.
  const auto flood = [this](int thread, int messages) {
    WireClient client(icached_->grpc_address());
    Names names(thread * 1'000 + messages);
    for (int i = 0; i < messages; ++i) {
      wire::LookupRouteRequest request = Lookup("known");
      request.set_tenant_id(names.Next());
      request.set_model_id(names.Next());
      request.add_candidate_replica_ids(names.Next());
      EXPECT_EQ(client.Lookup(request).reason_code(), "UNKNOWN_TENANT");
      wire::CacheEvent event;
      event.set_type(static_cast<wire::CacheEvent::Type>(i % 6));
      event.set_replica_id(names.Next());
      event.set_model_id(i % 7 == 0 ? "model" : names.Next());
      event.set_tenant_id(i % 7 == 0 ? "tenant" : names.Next());
      event.set_prefix_hash("known");
      if (i % 2 == 0) event.set_timestamp_us(absl::ToUnixMicros(absl::Now()));
      client.Publish(event);
    }
  };
  OnThreads(kThreads, [&](int thread) { flood(thread, 250); });
  const Footprint before = Measure();
  OnThreads(kThreads, [&](int thread) { flood(thread, 3'000); });
  const Footprint after = Measure();
  EXPECT_EQ(after.index_bytes, before.index_bytes);
  EXPECT_EQ(after.series, before.series);
  ExpectRssWithin(before, 16 * kMebibyte);
}

TEST_F(HostileVolumeTest, NewNamesInUpdatesStayWithinTheBounds) {
  Start({"--max-entries", "500", "--max-idle-replicas", "100"});
  const auto flood = [this](int seed, int messages) {
    Names names(seed);
    std::vector<wire::CacheStateUpdate> updates;
    for (int i = 0; i < messages; ++i) {
      wire::CacheStateUpdate update = Update(names.Next());
      update.set_tenant_id(names.Next());
      update.set_model_id(names.Next());
      if (i % 2 == 0) update.set_hash_scheme(names.Next());
      if (i % 3 == 0) update.set_adapter_id(names.Next());
      if (i % 5 != 0) update.add_prefixes()->set_prefix_hash("hash");
      if (i % 4 == 0) update.mutable_stats()->set_client_version(names.Next());
      updates.push_back(std::move(update));
    }
    client_->Report(updates);
  };
  flood(1, 3'000);
  const Footprint before = Measure();
  flood(2, 12'000);
  const Footprint after = Measure();
  EXPECT_LE(Holdings(), 500);
  EXPECT_LE(after.index_bytes, before.index_bytes * 1.25);
  EXPECT_LE(after.series, before.series * 1.05);
  ExpectRssWithin(before, 16 * kMebibyte);
  const PageReader page = Metrics();
  for (const auto& [family, samples] : page.families()) {
    EXPECT_LE(page.LabelValues(family, "model").size(), 1'001) << family;
  }
  client_->Report({Update("r0", "known")});  // the flood has evicted it
}

TEST_F(HostileVolumeTest, ManyNamesInOneMessageGrowNothing) {
  Start();
  const Footprint before = Measure();
  wire::LookupRouteRequest request = Lookup("known");
  Names names(1);
  for (int i = 0; i < 30'000; ++i) request.add_candidate_replica_ids(names.Next());
  for (int i = 0; i < 10; ++i) EXPECT_THAT(client_->Lookup(request).replica_scores(), IsEmpty());
  EXPECT_EQ(Measure().index_bytes, before.index_bytes);
  ExpectRssWithin(before, 100 * kMebibyte);  // one message and what is read from it, not ten
}

// ---------------------------------------------------------------------------------------------- hostile names

TEST_F(HostileVolumeTest, NamesOfAnyBytesAreKeptApartAndTheMetricsStillParse) {
  Start();
  const std::string names[] = {
      std::string("\0", 1),
      std::string("nul\0inside", 10),
      "line\nbreak",
      "carriage\r\nreturn",
      "\"quotes\"",
      "back\\slash\\",
      "\",model=\"other\"} 1\nfake_series 1\n#",
      "# HELP inferencecache_server_up",
      "{}",
      " ",
      "\t\x01\x1b[31m\x7f",
      "\xe2\x80\xae"
      "right-to-left",
      "\xd7\xa9\xd7\x9c\xd7\x95\xd7\x9d",
      "\xf0\x9f\x98\x80\xef\xbf\xbf\xef\xbb\xbf",  // beyond the first plane, no character, byte-order mark
      "e\xcc\x81",                                 // an accent apart from its letter
      "\xc3\xa9",                                  // and the same letter with it
      "other",
      "../../etc/passwd",
      "%s%n%x",
      std::string(512, 'a'),
      std::string(512, '\0'),
      "\xc3\xa9" + std::string(510, '"'),
      "a" + std::string(510, '\n') + "b",
  };
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    wire::CacheStateUpdate update = Update(name, "hash");
    update.set_model_id(name);
    update.set_tenant_id(name);
    update.set_hash_scheme(name);
    update.set_adapter_id(name);
    update.mutable_prefixes(0)->set_block_token_counts(0, 64);  // above the floor of tenants without a policy
    update.mutable_stats()->set_client_version(name);
    client_->Report({update});
    wire::LookupRouteRequest request = Lookup("hash");
    request.set_model_id(name);
    request.set_tenant_id(name);
    request.set_hash_scheme(name);
    request.set_adapter_id(name);
    request.set_block_token_counts(0, 64);
    const wire::LookupRouteResponse answer = client_->Lookup(request);
    EXPECT_EQ(answer.reason_code(), "PREFIX_MATCH");
    EXPECT_EQ(answer.adapter_id(), name);
    ASSERT_THAT(answer.replica_scores(), SizeIs(1));
    EXPECT_EQ(answer.replica_scores(0).replica_id(), name);
    EXPECT_THAT(client_->GetState(name, name).replicas(), SizeIs(1));
    EXPECT_THAT(Metrics().problems(), IsEmpty());
  }
  EXPECT_EQ(Holdings(), 1 + std::size(names));
}

TEST_F(HostileVolumeTest, HostileNameOfAQuotaTenantIsEscapedInTheMetrics) {
  Start();
  const std::string tenant = "quota \"\\ \xe2\x80\xae\n";
  for (const char* hash : {"a", "b"}) {
    wire::CacheStateUpdate update = Update("r0", hash);
    update.set_tenant_id(tenant);
    client_->Report({update});
  }
  EXPECT_EQ(
      Metrics().Value("inferencecache_tenant_evictions_total", {{"tenant_id", tenant}, {"reason", "over_entries"}}), 1);
}

}  // namespace
}  // namespace icache::testing
