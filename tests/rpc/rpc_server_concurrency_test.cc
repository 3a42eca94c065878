#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rpc/rpc_fixture.h"

namespace icache::testing {
namespace {

class RpcServerConcurrencyTest : public RpcFixture {};

constexpr char kToken[] = "token-of-a-gateway";

std::shared_ptr<const AccessRules> RulesThatGrantLookups() {
  auto rules = std::make_shared<AccessRules>();
  Grant grant;
  grant.roles[static_cast<size_t>(Role::kLookup)] = true;
  rules->AddToken(kToken, rules->AddGrant(std::move(grant)));
  return rules;
}

// Every kind of call from several clients at once, on several queues, while the server shuts down under them.
TEST_F(RpcServerConcurrencyTest, SurvivesMixedCallsUntilAndThroughShutdown) {
  options_.lookup_threads = 2;
  options_.ingest_threads = 2;
  StartServer();
  constexpr int kClients = 3;
  constexpr int kRoundsBeforeShutdown = 30;
  std::atomic<int> rounds = 0;
  std::atomic<bool> stop = false;

  const auto run = [&](int client) {
    const auto stub = wire::InferenceCache::NewStub(Connect(server_->addresses()[0]));
    const std::string replica = "r" + std::to_string(client);
    grpc::ClientContext observer_context;
    const auto observer = stub->StreamMetrics(&observer_context, wire::StreamMetricsRequest());
    for (int i = 0; !stop; ++i) {
      const std::string hash = "hash" + std::to_string(i % 10);
      grpc::ClientContext report_context;
      wire::Ack ack;
      const auto report = stub->ReportCacheState(&report_context, &ack);
      report->Write(Update(replica, hash));
      grpc::ClientContext lookup_context;
      wire::LookupRouteResponse response;
      if (!stub->LookupRoute(&lookup_context, Lookup(hash), &response).ok()) stop = true;
      grpc::ClientContext event_context;
      wire::CacheEvent event;
      event.set_replica_id(replica);
      stub->PublishEvent(&event_context, event, &ack);
      grpc::ClientContext state_context;
      wire::GetCacheStateResponse state;
      stub->GetCacheState(&state_context, wire::GetCacheStateRequest(), &state);
      if (i % 3 == 0) {
        report_context.TryCancel();
      } else {
        report->WritesDone();
      }
      report->Finish();
      ++rounds;
    }
    observer_context.TryCancel();
    observer->Finish();
  };

  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) clients.emplace_back(run, client);
  while (rounds < kRoundsBeforeShutdown && !stop) std::this_thread::yield();
  EXPECT_FALSE(stop) << "a lookup failed while the server ran";
  server_->Shutdown(absl::Seconds(4));
  for (std::thread& client : clients) client.join();
  EXPECT_THAT(index_.CheckInvariants(), IsOk());
}

TEST_F(RpcServerConcurrencyTest, GrantsAreReplacedUnderCallsAndWithdrawnOnEveryQueue) {
  options_.lookup_threads = 2;
  grants_.Publish(RulesThatGrantLookups());
  StartServer();
  constexpr int kClients = 4;
  constexpr int kRounds = 50;
  std::atomic<int> busy = kClients;
  std::atomic<bool> withdrawn = false;

  const auto run = [&] {
    const auto stub = wire::InferenceCache::NewStub(Connect(server_->addresses()[0]));
    const auto lookup = [&] {
      grpc::ClientContext context;
      context.AddMetadata("authorization", std::string("Bearer ") + kToken);
      wire::LookupRouteResponse response;
      return stub->LookupRoute(&context, Lookup("hash"), &response).error_code();
    };
    for (int i = 0; i < kRounds; ++i) EXPECT_EQ(lookup(), grpc::StatusCode::OK);
    --busy;
    while (!withdrawn) std::this_thread::yield();
    EXPECT_EQ(lookup(), grpc::StatusCode::UNAUTHENTICATED);
  };

  std::vector<std::thread> clients;
  for (int client = 0; client < kClients; ++client) clients.emplace_back(run);
  while (busy > 0) grants_.Publish(RulesThatGrantLookups());
  grants_.Publish(std::make_shared<const AccessRules>());
  withdrawn = true;
  for (std::thread& client : clients) client.join();
}

}  // namespace
}  // namespace icache::testing
