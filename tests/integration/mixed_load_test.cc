// Every method at once, from many clients, over a small index that expires and evicts all the time, while the policies
// change under it. Each client's operations are drawn from a seed of its own; how the clients interleave is free.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "icache/daemon/server.h"
#include "icache/telemetry/logging.h"
#include "tests/config/temp_folder.h"
#include "tests/daemon/daemon_testing.h"
#include "tests/integration/wire_client.h"
#include "tests/telemetry/page_reader.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::AnyOf;
using ::testing::IsEmpty;

constexpr int kClients = 16;
constexpr int kOperationsPerClient = 500;
constexpr int64_t kMaxEntries = 300;

constexpr const char* kTenants[] = {"steady", "lfu", "quota", "strict", "exact", "hurried", "fleeting", ""};
constexpr const char* kModels[] = {"m0", "m1", ""};
constexpr const char* kSchemes[] = {"vllm", "sglang", ""};
constexpr const char* kAdapters[] = {"", "", "lora"};

// Leaves every tenant but one to other policies; in force again at the end.
constexpr char kSteadyPolicy[] = R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: steady, namespace: steady}
spec: {minimumMatchedTokens: 0, routingFloorScore: "0", affinityRouting: Disabled}
)";

// What the file beside it holds in turn. Some are refused.
constexpr const char* kPolicySets[] = {
    R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: lfu, namespace: lfu}
spec: {eviction: LFU, minimumMatchedTokens: 0, routingFloorScore: "0"}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: quota}
spec: {tenantID: quota, quota: {maxIndexEntries: 20}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: strict, namespace: strict}
spec: {strategy: {requireChain: true}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: exact, namespace: exact}
spec: {minimumPrefixTokens: 8, strategy: {enableChainMatching: false}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: hurried, namespace: hurried}
spec: {lookupTimeoutMs: 1}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: fleeting, namespace: fleeting}
spec: {eviction: LFU, evictionTTL: 20ms, minimumMatchedTokens: 0}
)", "kind: [CachePolicy\n",
    R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: lfu, namespace: lfu}
spec: {eviction: LRU, evictionTTL: 50ms}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: quota}
spec: {tenantID: quota, quota: {maxIndexEntries: 0}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: fleeting}
spec: {tenantID: fleeting, quota: {maxIndexEntries: 5}}
)",
    R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: a, namespace: strict}
spec: {strategy: {requireChain: true, enableChainMatching: false}}
)", "",
};

// One client: a connection, a seed, and everything that a client can do.
class LoadClient {
 public:
  LoadClient(const std::string& address, int seed)
      : client_(address), random_(seed), replica_("r" + std::to_string(seed)) {}

  void Run(int operations) {
    for (int i = 0; i < operations; ++i) Step();
    Close(&events_);
    Close(&metrics_);
  }

  int64_t lookups() const { return lookups_; }

 private:
  template <typename Message>
  struct Observer {
    std::unique_ptr<grpc::ClientContext> context;
    std::unique_ptr<grpc::ClientReader<Message>> stream;  // null while closed
  };

  int Draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }
  template <size_t n>
  std::string Pick(const char* const (&choices)[n]) {
    return choices[Draw(n)];
  }
  // One of a few blocks, so that clients meet each other's.
  std::string DrawHash() { return "block-" + std::to_string(Draw(60)); }
  int64_t DrawTimestamp() {
    const int64_t now = absl::ToUnixMicros(absl::Now());
    const int64_t choices[] = {0, now, now - Draw(100'000), now + 3'600'000'000, 1, -1};
    return choices[Draw(6)];
  }
  template <typename Message>
  void DrawKey(Message* message) {
    message->set_tenant_id(Pick(kTenants));
    message->set_model_id(Pick(kModels));
    message->set_adapter_id(Pick(kAdapters));
  }

  // A chain in either form, now and then a malformed one.
  template <typename Message>
  void DrawChain(Message* message) {
    const int blocks = 1 + Draw(12);
    if (Draw(2) == 0) {
      for (int i = 0; i < blocks; ++i) message->add_block_hashes_u64(i);
      message->set_tokens_per_block(Draw(16));  // 0 is malformed
      return;
    }
    const std::string branch = std::to_string(Draw(4)) + "/";
    for (int i = 0; i < blocks; ++i) message->add_block_hashes(branch + std::to_string(i));
    for (int i = 0; i < blocks; ++i) message->add_block_token_counts(16);
    if (Draw(10) == 0) message->add_block_token_counts(16);
  }

  void Step() {
    switch (Draw(14)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
        return Lookup();
      case 5:
      case 6:
        return Report();
      case 7:
        return BreakReport();
      case 8:
        return Publish();
      case 9:
        client_.GetState(Pick(kTenants), Pick(kModels));
        return;
      case 10:
        EXPECT_EQ(client_.RenderTemplate(wire::RenderTemplateRequest()), "TEMPLATE_NOT_FOUND");
        EXPECT_EQ(client_.LookupPdRoute(wire::LookupPDRouteRequest()), "NO_HINT");
        return;
      case 11:
        return Toggle(&events_, [this](grpc::ClientContext* context) {
          return client_.stub()->StreamCacheEvents(context, wire::StreamEventsRequest());
        });
      case 12:
        return Toggle(&metrics_, [this](grpc::ClientContext* context) {
          return client_.stub()->StreamMetrics(context, wire::StreamMetricsRequest());
        });
      default:
        EXPECT_TRUE(client_.IsHealthy());
    }
  }

  void Lookup() {
    wire::LookupRouteRequest request;
    DrawKey(&request);
    request.set_hash_scheme(Pick(kSchemes));
    switch (Draw(5)) {
      case 0:
        request.set_prefix_hash(DrawHash());
        break;
      case 1:
      case 2:
        DrawChain(&request);
        break;
      case 3:
        for (int i = Draw(100); i > 0; --i) request.add_token_ids(i);
        break;
      default:
        request.set_prompt_text(std::string(Draw(2'000), 'p'));
    }
    if (Draw(3) == 0) request.mutable_slo()->set_ttft_ms(Draw(400));
    if (Draw(4) == 0) request.add_candidate_replica_ids("r" + std::to_string(Draw(kClients)));
    request.set_max_replicas(Draw(4));
    ++lookups_;
    EXPECT_THAT(client_.Lookup(request).reason_code(),
                AnyOf("PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT", "NO_HINT", "POLICY_REQUIRES_CHAIN", "TIMEOUT",
                      "UNKNOWN_TENANT", "UNKNOWN_MODEL", "UNKNOWN_HASH_SCHEME"));
  }

  wire::CacheStateUpdate DrawUpdate() {
    wire::CacheStateUpdate update;
    DrawKey(&update);
    update.set_replica_id(Draw(20) == 0 ? "" : replica_);
    update.set_hash_scheme(Pick(kSchemes));
    update.set_timestamp_us(DrawTimestamp());
    for (int i = Draw(3); i > 0; --i) {
      wire::PrefixEntry* const entry = update.add_prefixes();
      entry->set_tier(static_cast<wire::CacheTier>(Draw(6) - 1));
      if (Draw(2) == 0) {
        DrawChain(entry);
      } else {
        entry->set_prefix_hash(DrawHash());
        entry->set_token_count(64);
      }
    }
    update.set_retains_all(Draw(4) == 0);
    update.set_clear(Draw(15) == 0);
    if (Draw(4) == 0) update.add_evicted_hashes(DrawHash());
    if (Draw(4) == 0) update.add_evicted_hashes_u64(Draw(12));
    if (Draw(3) == 0) {
      update.mutable_stats()->set_hit_rate(static_cast<float>(Draw(100)) / 100);
      update.mutable_stats()->set_pressure(static_cast<float>(Draw(100)) / 100);
    }
    return update;
  }

  void Report() {
    std::vector<wire::CacheStateUpdate> updates(Draw(5));
    for (wire::CacheStateUpdate& update : updates) update = DrawUpdate();
    client_.Report(updates);
  }

  // A stream that ends in the middle: cancelled, or by a message that cannot be parsed.
  void BreakReport() {
    if (Draw(2) == 0) {
      const std::string cut = DrawUpdate().SerializeAsString() + "\x0a\x7f";
      EXPECT_FALSE(client_.CallRaw(MethodName("ReportCacheState"), cut).ok());
      return;
    }
    grpc::ClientContext context;
    wire::Ack ack;
    const auto stream = client_.stub()->ReportCacheState(&context, &ack);
    for (int i = Draw(4); i > 0; --i) stream->Write(DrawUpdate());
    context.TryCancel();
    stream->Finish();
  }

  void Publish() {
    wire::CacheEvent event;
    DrawKey(&event);
    event.set_type(static_cast<wire::CacheEvent::Type>(Draw(7)));  // two of them unknown
    event.set_replica_id(replica_);
    event.set_prefix_hash(DrawHash());
    event.set_timestamp_us(DrawTimestamp());
    client_.Publish(event);
  }

  template <typename Message, typename Open>
  void Toggle(Observer<Message>* observer, Open open) {
    if (observer->stream != nullptr) return Close(observer);
    observer->context = std::make_unique<grpc::ClientContext>();
    observer->stream = open(observer->context.get());
  }
  template <typename Message>
  void Close(Observer<Message>* observer) {
    if (observer->stream == nullptr) return;
    observer->context->TryCancel();
    EXPECT_EQ(observer->stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
    observer->stream.reset();
  }

  WireClient client_;
  std::mt19937 random_;
  const std::string replica_;
  Observer<wire::CacheEvent> events_;
  Observer<wire::Metric> metrics_;
  int64_t lookups_ = 0;
};

class MixedLoadTest : public ::testing::Test {
 protected:
  MixedLoadTest() {
    policies_.Write("steady.yaml", kSteadyPolicy);
    DaemonOptions options;
    options.grpc_addresses = {"127.0.0.1:0"};
    options.http_address = "127.0.0.1:0";
    options.policy_path = policies_.path();
    options.policy_poll_interval = absl::Milliseconds(10);
    options.index.max_entries = kMaxEntries;
    options.index.max_idle_replicas = 10;
    options.index.hot_threshold = 2;
    options.index.shard_count = 4;
    options.sweep_interval = absl::Milliseconds(10);
    options.lookup_threads = 3;
    options.ingest_threads = 2;
    auto server = Server::Start(options, &logger_);
    if (server.ok()) server_ = *std::move(server);
  }

  std::string address() const { return server_->grpc_addresses()[0]; }
  PageReader Metrics() { return PageReader(HttpGet(server_->http_port(), "/metrics").body); }

  // Puts one set after the other in place, good and bad, reloads it, and reads the metrics, until `done`.
  void ChurnPolicies(const std::atomic<bool>& done) {
    for (int i = 0; !done; ++i) {
      policies_.Write("others.yaml", kPolicySets[i % std::size(kPolicySets)]);
      server_->Reload();
      EXPECT_THAT(Metrics().problems(), IsEmpty());
    }
  }

  const TempFolder policies_;
  NullLogger logger_;
  std::unique_ptr<Server> server_;
};

TEST_F(MixedLoadTest, AnswersEverythingAndLosesCountOfNothing) {
  ASSERT_NE(server_, nullptr);
  std::atomic<bool> done = false;
  std::thread churn([&] { ChurnPolicies(done); });
  std::vector<std::unique_ptr<LoadClient>> clients;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<LoadClient>(address(), i));
    threads.emplace_back([client = clients.back().get()] { client->Run(kOperationsPerClient); });
  }
  for (std::thread& thread : threads) thread.join();
  done = true;
  churn.join();

  int64_t lookups = 0;
  for (const auto& client : clients) lookups += client->lookups();
  const PageReader page = Metrics();
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_calls_total"), lookups);
  EXPECT_EQ(page.Sum("inferencecache_lookup_route_latency_seconds_count"), lookups);
  EXPECT_LE(page.Value("inferencecache_index_holdings"), kMaxEntries);
  EXPECT_GT(page.Sum("inferencecache_index_evictions_total"), 0);
  EXPECT_GT(page.Value("inferencecache_policy_reloads_total", {{"result", "success"}}), 0);
  EXPECT_GT(page.Value("inferencecache_policy_reloads_total", {{"result", "failure"}}), 0);
}

TEST_F(MixedLoadTest, StillKnowsWhatItIsToldAfterwards) {
  ASSERT_NE(server_, nullptr);
  LoadClient(address(), /*seed=*/1).Run(kOperationsPerClient);
  WireClient client(address());
  wire::CacheStateUpdate update;
  update.set_tenant_id("steady");
  update.set_model_id("calm");
  update.set_replica_id("r0");
  update.set_hash_scheme("vllm");
  update.add_prefixes()->set_prefix_hash("hash");
  client.Report({update});
  wire::LookupRouteRequest request;
  request.set_tenant_id("steady");
  request.set_model_id("calm");
  request.set_hash_scheme("vllm");
  request.set_prefix_hash("hash");
  EXPECT_EQ(client.Lookup(request).reason_code(), "PREFIX_MATCH");
}

TEST_F(MixedLoadTest, ShutsDownCleanlyUnderOpenStreams) {
  ASSERT_NE(server_, nullptr);
  WireClient client(address());
  grpc::ClientContext observer_context;
  const auto observer = client.stub()->StreamMetrics(&observer_context, wire::StreamMetricsRequest());
  grpc::ClientContext report_context;
  wire::Ack ack;
  const auto report = client.stub()->ReportCacheState(&report_context, &ack);
  LoadClient(address(), /*seed=*/2).Run(kOperationsPerClient);
  server_->Shutdown(absl::Seconds(4));
  wire::Metric metric;
  while (observer->Read(&metric)) {
  }
  EXPECT_EQ(observer->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(report->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace icache::testing
