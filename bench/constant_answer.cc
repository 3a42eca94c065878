// constant_answer: a server with icached's own RPC front-end whose LookupRoute parses the request and sends back one
// prepared answer. What icached costs above it is what routing costs. Serves one address with as many queues for
// lookups as icached has, one per core, until SIGTERM, LookupRouteStream too, and prints its port.
//
// Usage: constant_answer HOST:PORT ROWS
#include <grpcpp/grpcpp.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "rpc/call_queue.h"
#include "rpc/rpc_service.h"
#include "rpc/streams.h"
#include "rpc/unary_call.h"

namespace icache {
namespace {

namespace wire = ::inferencecache::v1alpha1;

class ConstantLookup final : public MessageMethod<wire::LookupRouteRequest, wire::LookupRouteResponse> {
 public:
  ConstantLookup(Door* door, int rows) : MessageMethod(door, Clock::System(), /*max_recycled_bytes=*/256 << 10) {
    answer_.set_reason_code("PREFIX_MATCH");
    for (int i = 0; i < rows; ++i) {
      wire::ReplicaScore* const row = answer_.add_replica_scores();
      row->set_replica_id("replica-" + std::to_string(i));
      row->set_score(100);
      row->set_matched_tokens(1024);
      row->set_estimated_cache_hit_prob(1);
      row->set_tier(wire::CACHE_TIER_T1);
    }
  }

 private:
  std::string_view name() const override { return "LookupRoute"; }
  void Handle(const grpc::ServerContext& /*context*/, absl::Time /*received_at*/,
              const wire::LookupRouteRequest& /*request*/, wire::LookupRouteResponse* response) override {
    *response = answer_;
    response->set_lookup_latency_us(1);
  }

  wire::LookupRouteResponse answer_;
};

int Run(const std::string& address, int rows) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  RpcService service;
  grpc::ServerBuilder builder;
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);
  int port = 0;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  StreamLimit stream_limit(1024);
  std::vector<std::unique_ptr<Door>> doors;  // one per queue, open to all
  std::vector<std::unique_ptr<ConstantLookup>> stream_lookups;
  std::vector<std::unique_ptr<CallQueue>> queues;
  for (unsigned i = 0; i < std::max(std::thread::hardware_concurrency(), 1u); ++i) {
    auto queue = std::make_unique<CallQueue>("lookup-" + std::to_string(i), builder.AddCompletionQueue(),
                                             /*max_unsent_bytes=*/64 << 20, /*max_waiting=*/1024);
    Door* const door = doors.emplace_back(std::make_unique<Door>(RpcBackend(), Role::kLookup)).get();
    queue->AddUnary(CallsOf(&service, &RpcService::RequestLookupRoute), std::make_unique<ConstantLookup>(door, rows),
                    /*posted=*/16);
    stream_lookups.push_back(std::make_unique<ConstantLookup>(door, rows));
    queue->AddStreams(
        [&, door, cq = queue->queue(), lookup = stream_lookups.back().get()](StreamPool* pool) {
          return std::make_unique<LookupStream>(pool, &service, cq, door, lookup);
        },
        &stream_limit);
    queues.push_back(std::move(queue));
  }
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) {
    std::fprintf(stderr, "constant_answer: cannot listen on %s\n", address.c_str());
    return 1;
  }
  for (const auto& queue : queues) queue->Start();
  std::printf("port %d\n", port);
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  for (const auto& queue : queues) queue->Drain();
  server->Shutdown(std::chrono::system_clock::now());
  for (const auto& queue : queues) queue->Stop();
  return 0;
}

}  // namespace
}  // namespace icache

int main(int argc, char** argv) {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (argc != 3) {
    std::fprintf(stderr, "usage: constant_answer HOST:PORT ROWS\n");
    return 2;
  }
  return icache::Run(argv[1], std::atoi(argv[2]));
}
