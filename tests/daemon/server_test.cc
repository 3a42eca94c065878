#include "icache/daemon/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "icache/telemetry/logging.h"
#include "tests/daemon/daemon_testing.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::HasSubstr;

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() {
    options_.grpc_addresses = {"127.0.0.1:0"};
    options_.http_address = "127.0.0.1:0";
  }

  void StartServer() {
    auto server = Server::Start(options_, &logger_);
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
    stub_ = ConnectTo(server_->grpc_addresses()[0]);
  }

  HttpAnswer Get(const std::string& path) { return HttpGet(server_->http_port(), path); }

  grpc::Status Report(const wire::CacheStateUpdate& update) {
    grpc::ClientContext context;
    wire::Ack ack;
    const auto stream = stub_->ReportCacheState(&context, &ack);
    stream->Write(update);
    stream->WritesDone();
    return stream->Finish();
  }

  static wire::CacheStateUpdate OneEntry() {
    wire::CacheStateUpdate update;
    update.set_replica_id("r0");
    update.set_model_id("model");
    update.set_tenant_id("tenant");
    update.set_hash_scheme("scheme");
    update.add_prefixes()->set_prefix_hash("hash");
    return update;
  }

  DaemonOptions options_;
  NullLogger logger_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<wire::InferenceCache::Stub> stub_;
};

TEST_F(ServerTest, IsReadyAndServesOnceStarted) {
  StartServer();
  EXPECT_TRUE(server_->IsReady());
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 200);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("inferencecache_server_up 1"));
  EXPECT_EQ(Reason(stub_.get()), "NO_HINT");
}

TEST_F(ServerTest, ServesButIsNotReadyWhileItWarmsUp) {
  options_.warm_up = absl::InfiniteDuration();
  StartServer();
  EXPECT_FALSE(server_->IsReady());
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_THAT(Get("/metrics").body, HasSubstr("inferencecache_server_up 0"));
  EXPECT_EQ(Reason(stub_.get()), "NO_HINT");
}

TEST_F(ServerTest, IsReadyAfterTheWarmUp) {
  options_.warm_up = absl::Milliseconds(1);
  StartServer();
  EXPECT_TRUE(Eventually([this] { return Get("/readyz").status == 200; }));
}

TEST_F(ServerTest, ServesButIsNotReadyWhileItDrains) {
  StartServer();
  server_->Drain();
  EXPECT_FALSE(server_->IsReady());
  EXPECT_EQ(Get("/healthz").status, 200);
  EXPECT_EQ(Get("/readyz").status, 503);
  EXPECT_EQ(Reason(stub_.get()), "NO_HINT");
}

TEST_F(ServerTest, DrainEndsTheWarmUpForGood) {
  options_.warm_up = absl::Milliseconds(1);
  StartServer();
  server_->Drain();
  EXPECT_FALSE(server_->IsReady());
}

TEST_F(ServerTest, ServesNothingAfterShutdown) {
  StartServer();
  const int http_port = server_->http_port();
  server_->Shutdown(absl::ZeroDuration());
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(HttpGet(http_port, "/healthz").status, 0);
  EXPECT_EQ(Reason(stub_.get()), "ERROR");
}

TEST_F(ServerTest, BadPoliciesRefuseTheStart) {
  const TempFile policies("bad-policies");
  policies.Write(kBadPolicy);
  options_.policy_path = policies.path();
  EXPECT_THAT(Server::Start(options_, &logger_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(policies.path())));
}

TEST_F(ServerTest, OptionOutOfRangeRefusesTheStart) {
  options_.index.shard_count = 3;
  EXPECT_THAT(Server::Start(options_, &logger_), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(ServerTest, TakenGrpcPortIsNamed) {
  StartServer();
  options_.grpc_addresses = server_->grpc_addresses();
  EXPECT_THAT(Server::Start(options_, &logger_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options_.grpc_addresses[0])));
}

TEST_F(ServerTest, TakenHttpPortIsNamed) {
  StartServer();
  options_.http_address = "127.0.0.1:" + std::to_string(server_->http_port());
  EXPECT_THAT(Server::Start(options_, &logger_),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options_.http_address)));
}

TEST_F(ServerTest, ChangedPolicyFileIsTakenUp) {
  const TempFile policies("policies");
  policies.Write("");
  options_.policy_path = policies.path();
  options_.policy_poll_interval = absl::Milliseconds(10);
  StartServer();
  EXPECT_EQ(Reason(stub_.get()), "NO_HINT");
  policies.Write(kRequireChainPolicy);
  EXPECT_TRUE(Eventually([this] { return Reason(stub_.get()) == "POLICY_REQUIRES_CHAIN"; }));
}

TEST_F(ServerTest, ReloadIsCountedAndARefusedOneChangesNothing) {
  const TempFile policies("policies");
  policies.Write("");
  options_.policy_path = policies.path();
  options_.policy_poll_interval = absl::InfiniteDuration();
  StartServer();
  policies.Write(kRequireChainPolicy);
  server_->Reload();
  EXPECT_TRUE(Eventually([this] { return Reason(stub_.get()) == "POLICY_REQUIRES_CHAIN"; }));
  policies.Write(kBadPolicy);
  server_->Reload();
  const auto counted = [this](const char* result) {
    const std::string series = "inferencecache_policy_reloads_total{result=\"" + std::string(result) + "\"} 1\n";
    return Get("/metrics").body.find(series) != std::string::npos;
  };
  EXPECT_TRUE(Eventually([&] { return counted("failure"); }));
  EXPECT_TRUE(counted("success"));
  EXPECT_EQ(Reason(stub_.get()), "POLICY_REQUIRES_CHAIN");
  EXPECT_THAT(Get("/debug/policies").body, HasSubstr(policies.path() + ":"));
}

TEST_F(ServerTest, DebugPagesShowTheServersOwn) {
  StartServer();
  ASSERT_TRUE(Report(OneEntry()).ok());
  EXPECT_THAT(Get("/debug/config").body, HasSubstr("\"key\": \"http.address\",\n      \"value\": \"127.0.0.1:0\""));
  EXPECT_THAT(Get("/debug/policies").body, HasSubstr("\"refused\": null"));
  EXPECT_THAT(Get("/debug/index").body, HasSubstr("/debug/index?tenant=tenant&model=model&scheme=scheme\""));
  EXPECT_THAT(Get("/debug/index?tenant=tenant&model=model&scheme=scheme").body, HasSubstr("\"replica\": \"r0\""));
  const HttpAnswer bad = Get("/debug/index?limit=1001");
  EXPECT_EQ(bad.status, 400);
  EXPECT_EQ(bad.body, "limit: must be a number from 1 to 1000, got \"1001\"\n");
}

TEST_F(ServerTest, CallsAreCounted) {
  StartServer();
  ASSERT_TRUE(Report(OneEntry()).ok());
  Reason(stub_.get());
  grpc::ClientContext context;
  wire::CacheEvent event;
  event.set_type(wire::CacheEvent::REPLICA_UPDATED);
  event.set_replica_id("r0");
  event.set_model_id("model");
  event.set_tenant_id("tenant");
  wire::Ack ack;
  ASSERT_TRUE(stub_->PublishEvent(&context, event, &ack).ok());
  const std::string metrics = Get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("inferencecache_lookup_route_calls_total{"));
  EXPECT_THAT(metrics, HasSubstr("inferencecache_ingest_updates_total{model=\"model\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("inferencecache_events_total{"));
  EXPECT_THAT(metrics, HasSubstr("inferencecache_index_entries{model=\"model\"} 1"));
}

TEST_F(ServerTest, SweepsFreeWhatHasExpired) {
  options_.default_ttl = absl::Milliseconds(1);
  options_.sweep_interval = absl::Milliseconds(10);
  StartServer();
  ASSERT_TRUE(Report(OneEntry()).ok());
  EXPECT_TRUE(Eventually([this] {
    grpc::ClientContext context;
    wire::GetCacheStateRequest request;
    request.set_tenant_id("tenant");
    request.set_model_id("model");
    wire::GetCacheStateResponse state;
    return stub_->GetCacheState(&context, request, &state).ok() && state.summary().total_prefixes() == 0;
  }));
}

}  // namespace
}  // namespace icache::testing
