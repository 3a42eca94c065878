// RpcFixture: an RpcServer on a free port over a real index, and a stub that talks to it.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "icache/access/access_rules.h"
#include "icache/base/metric_sample.h"
#include "icache/base/mutex.h"
#include "icache/base/published.h"
#include "icache/events/event_hub.h"
#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"
#include "icache/rpc/rpc_server.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/raw_call.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {

namespace wire = ::inferencecache::v1alpha1;

// How long a test waits for what must happen before it gives up.
inline constexpr absl::Duration kPatience = absl::Seconds(60);
inline std::chrono::system_clock::time_point PatienceEnds() { return absl::ToChronoTime(absl::Now() + kPatience); }

// Where one call stops until the test lets it go on.
struct Gate {
  absl::Notification reached;
  absl::Notification open;

  void Pass() {
    reached.Notify();
    open.WaitForNotification();
  }
};

// A PrefixIndex that hands everything on to another. The next update, Read and GetState can be stopped at a gate.
class GatedIndex final : public PrefixIndex {
 public:
  explicit GatedIndex(std::unique_ptr<PrefixIndex> index) : index_(std::move(index)) {}

  std::atomic<Gate*> update_gate = nullptr;
  std::atomic<Gate*> state_gate = nullptr;
  mutable std::atomic<Gate*> read_gate = nullptr;

  ApplyResult ApplyUpdate(const StateUpdate& update, absl::Time now) override {
    PassOnce(&update_gate);
    return index_->ApplyUpdate(update, now);
  }
  ApplyResult ApplyEvent(const CacheEvent& event, absl::Time now) override { return index_->ApplyEvent(event, now); }
  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const override {
    PassOnce(&read_gate);
    index_->Read(key, reader);
  }
  CacheState GetState(std::string_view tenant_id, std::string_view model_id) const override {
    PassOnce(&state_gate);
    return index_->GetState(tenant_id, model_id);
  }
  size_t Sweep(absl::Time now) override { return index_->Sweep(now); }
  IndexStats Stats() const override { return index_->Stats(); }
  bool HoldsModel(std::string_view model_id) const override { return index_->HoldsModel(model_id); }
  void ForEachModel(absl::FunctionRef<void(std::string_view, const ModelStats&)> visit) const override {
    index_->ForEachModel(visit);
  }
  void ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const override {
    index_->ListHeld(tenant_id, model_id, names);
  }
  std::vector<PartitionState> ListPartitions(std::string_view tenant_id, const std::optional<PartitionName>& after,
                                             size_t limit) const override {
    return index_->ListPartitions(tenant_id, after, limit);
  }
  ScopeReplicas ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) const override {
    return index_->ListReplicas(key, after, limit);
  }
  void ForEachQuotaTenant(absl::FunctionRef<void(std::string_view, int64_t)> visit) const override {
    index_->ForEachQuotaTenant(visit);
  }
  absl::Status CheckInvariants() const override { return index_->CheckInvariants(); }

 private:
  template <typename AtomicGate>
  static void PassOnce(AtomicGate* gate) {
    if (Gate* const taken = const_cast<std::atomic<Gate*>*>(gate)->exchange(nullptr)) taken->Pass();
  }

  const std::unique_ptr<PrefixIndex> index_;
};

// Remembers what it was told.
class CountingObserver final : public IngestObserver {
 public:
  void OnUpdate(std::string_view model_id, const ApplyResult& result) override {
    MutexLock lock(&mutex_);
    ++updates_;
    last_model_ = std::string(model_id);
    last_result_ = result;
    changed_.notify_all();
  }
  void OnEvent(CacheEventType type, const ApplyResult& result) override {
    MutexLock lock(&mutex_);
    last_event_ = type;
    last_result_ = result;
  }

  // False when that many do not come.
  bool AwaitUpdates(int count) {
    const auto give_up_at = std::chrono::steady_clock::now() + absl::ToChronoSeconds(kPatience);
    MutexLock lock(&mutex_);
    while (updates_ < count) {
      if (changed_.wait_until(mutex_, give_up_at) == std::cv_status::timeout) return false;
    }
    return true;
  }
  std::string last_model() const {
    MutexLock lock(&mutex_);
    return last_model_;
  }
  CacheEventType last_event() const {
    MutexLock lock(&mutex_);
    return last_event_;
  }
  ApplyResult last_result() const {
    MutexLock lock(&mutex_);
    return last_result_;
  }

 private:
  mutable Mutex mutex_;
  std::condition_variable_any changed_;
  int updates_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_model_ ABSL_GUARDED_BY(mutex_);
  CacheEventType last_event_ ABSL_GUARDED_BY(mutex_) = CacheEventType::kUnspecified;
  ApplyResult last_result_ ABSL_GUARDED_BY(mutex_);
};

// Remembers each call as one line.
class CallLog final : public CallObserver {
 public:
  void OnCall(const CallRecord& call) override {
    MutexLock lock(&mutex_);
    for (const std::string_view part : {call.method, call.request_id, call.traceparent, call.tenant_id, call.model_id,
                                        call.reason_code, call.refusal}) {
      calls_.append(part).append("|");
    }
    calls_ += "\n";
  }
  std::string calls() const {
    MutexLock lock(&mutex_);
    return calls_;
  }

 private:
  mutable Mutex mutex_;
  std::string calls_ ABSL_GUARDED_BY(mutex_);
};

class RpcFixture : public ::testing::Test {
 protected:
  RpcFixture()
      : policies_(absl::Minutes(30)),
        index_(CreateShardedIndex(IndexOptions(), &policies_, &events_).value()),
        router_(RouterOptions(), &index_, &policies_, &clock_, /*observer=*/nullptr) {
    CachePolicy policy;  // without floors and fallbacks: an answer tells what the index holds
    policy.minimum_matched_tokens = 0;
    policy.routing_floor_score = 0;
    policy.affinity_routing = false;
    auto set = std::make_shared<PolicySet>();
    set->AddPolicy("tenant", policy);
    policies_.Publish(std::move(set));
    options_.addresses = {"127.0.0.1:0"};
  }

  void StartServer() {
    auto server = StartAnother(options_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    channel_ = Connect(server_->addresses()[0]);
    stub_ = wire::InferenceCache::NewStub(channel_);
  }

  absl::StatusOr<std::unique_ptr<RpcServer>> StartAnother(const RpcOptions& options) {
    return RpcServer::Start(options, {.router = &router_,
                                      .index = &index_,
                                      .clock = &clock_,
                                      .events = &events_,
                                      .metrics = [this] { return samples_; },
                                      .ingest_observer = &observer_,
                                      .access = grants_.Current() != nullptr ? &grants_ : nullptr,
                                      .call_observer = &calls_});
  }

  // A connection of its own.
  static std::shared_ptr<grpc::Channel> Connect(const std::string& address, grpc::ChannelArguments arguments = {}) {
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  }

  // An update that reports one block of 16 tokens.
  static wire::CacheStateUpdate Update(const std::string& replica, const std::string& hash) {
    wire::CacheStateUpdate update;
    update.set_replica_id(replica);
    update.set_model_id("model");
    update.set_tenant_id("tenant");
    update.set_hash_scheme("scheme");
    wire::PrefixEntry* entry = update.add_prefixes();
    entry->add_block_hashes(hash);
    entry->add_block_token_counts(16);
    return update;
  }

  // Asks for the block of Update().
  static wire::LookupRouteRequest Lookup(const std::string& hash) {
    wire::LookupRouteRequest request;
    request.set_model_id("model");
    request.set_tenant_id("tenant");
    request.set_hash_scheme("scheme");
    request.add_block_hashes(hash);
    request.add_block_token_counts(16);
    return request;
  }

  // Reports on a stream of its own.
  grpc::Status Report(const wire::CacheStateUpdate& update) {
    grpc::ClientContext context;
    wire::Ack ack;
    const auto stream = stub_->ReportCacheState(&context, &ack);
    stream->Write(update);
    stream->WritesDone();
    return stream->Finish();
  }

  // The answer's reason code, or "ERROR" with what gRPC says.
  std::string ReasonOf(const wire::LookupRouteRequest& request) {
    grpc::ClientContext context;
    wire::LookupRouteResponse response;
    const grpc::Status status = stub_->LookupRoute(&context, request, &response);
    return status.ok() ? response.reason_code() : "ERROR " + status.error_message();
  }

  // A unary call by name with raw bytes.
  grpc::Status CallRaw(const std::string& method, const std::string& request, std::string* response) {
    grpc::ClientContext context;
    return RawCall(channel_, &context, method, request, response);
  }

  static constexpr size_t kMaxQueuedEvents = 100;

  FakeClock clock_;
  PolicyStore policies_;
  EventHub events_{&clock_, kMaxQueuedEvents};
  std::shared_ptr<const std::vector<MetricSample>> samples_ = std::make_shared<std::vector<MetricSample>>();
  GatedIndex index_;
  Router router_;
  CountingObserver observer_;
  CallLog calls_;
  Published<AccessRules> grants_;  // without a value everybody may do everything
  RpcOptions options_;
  std::unique_ptr<RpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::InferenceCache::Stub> stub_;
};

}  // namespace icache::testing
