// The real icached when it asks callers who they are.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inferencecache/ops/v1alpha1/ops.grpc.pb.h"
#include "tests/config/temp_folder.h"
#include "tests/daemon/daemon_testing.h"
#include "tests/integration/icached_process.h"
#include "tests/integration/secure_client.h"
#include "tests/telemetry/page_reader.h"
#include "tests/testing/certificates.h"

namespace icache::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Optional;

constexpr char kGateway[] = "gateway-token-0123456789";
constexpr char kBridge[] = "bridge-token-0123456789";
constexpr char kBound[] = "bound-token-0123456789";
constexpr char kOperator[] = "operator-token-0123456789";
constexpr char kBoundOperator[] = "bound-operator-token-0123456789";
constexpr char kNew[] = "new-gateway-token-0123456789";

constexpr grpc::StatusCode kUnknown = grpc::StatusCode::UNAUTHENTICATED;
constexpr grpc::StatusCode kDenied = grpc::StatusCode::PERMISSION_DENIED;

// With a grant to the certificate of engine.test, if `certificates`.
std::string Grants(const std::string& gateway_token, bool certificates = false) {
  return "name: gateway\nroles: [lookup]\ntokens: [" + gateway_token + "]\n---\n" +
         "name: bridge\nroles: [observe]\ntokens: [" + kBridge + "]\n" +
         (certificates ? "certificate_names: [engine.test]\n" : "") + "---\n" +
         "name: bound\nroles: [lookup, observe]\ntenants: [tenant]\ntokens: [" + kBound + "]\n---\n" +
         "name: bound-operator\nroles: [admin]\ntenants: [tenant]\ntokens: [" + kBoundOperator + "]\n---\n" +
         "name: operator\nroles: [admin]\ntokens: [" + kOperator + "]\n";
}

class AccessTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}, bool certificates = false) {
    WriteGrants(Grants(kGateway, certificates));
    flags.insert(flags.end(), {"--access-path", folder_ / "grants.yaml", "--log-level", "debug"});
    icached_ = std::make_unique<IcachedProcess>(std::move(flags));
    ASSERT_TRUE(icached_->ready()) << icached_->output();
  }
  void WriteGrants(const std::string& text) {
    const std::string draft = folder_.Write("draft", text);
    std::filesystem::rename(draft, folder_ / "grants.yaml");
  }

  void TearDown() override {
    if (icached_ == nullptr) return;
    EXPECT_EQ(icached_->Terminate(), 0) << icached_->output();
    EXPECT_THAT(icached_->output(), Not(HasSubstr("-token-")));
  }

  SecureClient As(const std::string& token) {
    return SecureClient(icached_->grpc_address(), ClientIdentity{.token = token});
  }
  // What the end of a ReportCacheState stream with one update says.
  // `hash` is that of a prefix that the replica then holds; "" = none.
  static grpc::Status Report(SecureClient client, const std::string& tenant, const std::string& hash = "") {
    grpc::ClientContext context;
    client.Prepare(&context);
    wire::Ack ack;
    const auto stream = client.stub()->ReportCacheState(&context, &ack);
    wire::CacheStateUpdate update;
    update.set_replica_id("r0");
    update.set_model_id("model");
    update.set_tenant_id(tenant);
    update.set_hash_scheme("scheme");
    if (!hash.empty()) {
      wire::PrefixEntry* const entry = update.add_prefixes();
      entry->set_prefix_hash(hash);
      entry->set_token_count(16);
    }
    stream->Write(update);
    stream->WritesDone();
    return stream->Finish();
  }
  // How an observer's stream ends that is cancelled once it stands open; OK when it does stand open.
  static grpc::Status WatchEvents(SecureClient client, const std::string& tenant) {
    grpc::ClientContext context;
    client.Prepare(&context);
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    wire::StreamEventsRequest request;
    request.set_tenant_id(tenant);
    const auto stream = client.stub()->StreamCacheEvents(&context, request);
    wire::CacheEvent event;
    while (stream->Read(&event)) {
    }
    const grpc::Status status = stream->Finish();
    return status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ? grpc::Status::OK : status;
  }
  int HttpStatus(const std::string& path, const std::string& authorization = "") {
    httplib::Client client("127.0.0.1", icached_->http_port());
    const httplib::Headers headers =
        authorization.empty() ? httplib::Headers() : httplib::Headers{{"Authorization", authorization}};
    const auto result = client.Get(path.c_str(), headers);
    return result ? result->status : 0;
  }
  PageReader Metrics() { return PageReader(HttpGet(icached_->http_port(), "/metrics").body); }

  const TempFolder folder_;
  std::unique_ptr<IcachedProcess> icached_;
};

TEST_F(AccessTest, LookupsTakeTheRoleLookup) {
  Start();
  EXPECT_TRUE(As(kGateway).Lookup().ok());
  EXPECT_EQ(As("").Lookup().error_code(), kUnknown);
  EXPECT_EQ(As("wrong-token-0123456789").Lookup().error_code(), kUnknown);
  EXPECT_EQ(As(kBridge).Lookup().error_code(), kDenied);
  EXPECT_EQ(As(kOperator).Lookup().error_code(), kDenied);
  using Stub = wire::InferenceCache::Stub;
  const auto states = [&](const char* token) {
    return As(token).Call(&Stub::GetCacheState, wire::GetCacheStateRequest(), wire::GetCacheStateResponse());
  };
  EXPECT_TRUE(states(kGateway).ok());
  EXPECT_EQ(states(kBridge).error_code(), kDenied);
  EXPECT_EQ(As(kBridge)
                .Call(&Stub::RenderTemplate, wire::RenderTemplateRequest(), wire::RenderTemplateResponse())
                .error_code(),
            kDenied);
  EXPECT_EQ(
      As(kBridge).Call(&Stub::LookupPDRoute, wire::LookupPDRouteRequest(), wire::LookupPDRouteResponse()).error_code(),
      kDenied);
}

TEST_F(AccessTest, ObservationsTakeTheRoleObserve) {
  Start();
  EXPECT_TRUE(Report(As(kBridge), "tenant").ok());
  EXPECT_EQ(Report(As(kGateway), "tenant").error_code(), kDenied);
  EXPECT_EQ(Report(As(""), "tenant").error_code(), kUnknown);
  wire::CacheEvent event;
  using Stub = wire::InferenceCache::Stub;
  EXPECT_TRUE(As(kBridge).Call(&Stub::PublishEvent, event, wire::Ack()).ok());
  EXPECT_EQ(As(kGateway).Call(&Stub::PublishEvent, event, wire::Ack()).error_code(), kDenied);
}

TEST_F(AccessTest, ATokenBoundToATenantIsRefusedForAnyOther) {
  Start();
  EXPECT_TRUE(As(kBound).Lookup("tenant").ok());
  EXPECT_EQ(As(kBound).Lookup("other").error_code(), kDenied);
  EXPECT_EQ(As(kBound).Lookup("").error_code(), kDenied);
  EXPECT_TRUE(Report(As(kBound), "tenant").ok());
  EXPECT_EQ(Report(As(kBound), "other").error_code(), kDenied);
}

TEST_F(AccessTest, AStreamIsRefusedAtItsFirstRequestForAnotherTenant) {
  Start();
  SecureClient client = As(kBound);
  grpc::ClientContext context;
  client.Prepare(&context);
  const auto stream = client.stub()->LookupRouteStream(&context);
  wire::LookupRouteRequest request;
  wire::LookupRouteResponse response;
  request.set_tenant_id("tenant");
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));
  request.set_tenant_id("other");
  stream->Write(request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), kDenied);
}

TEST_F(AccessTest, ObserversTakeTheRoleAdmin) {
  Start();
  EXPECT_TRUE(WatchEvents(As(kOperator), "").ok());
  EXPECT_TRUE(WatchEvents(As(kBoundOperator), "tenant").ok());
  EXPECT_EQ(WatchEvents(As(kBoundOperator), "").error_code(), kDenied);
  EXPECT_EQ(WatchEvents(As(kGateway), "tenant").error_code(), kDenied);
}

TEST_F(AccessTest, ExplanationsNameOtherTenantsToThoseWhoMayAskForAll) {
  Start();
  ASSERT_TRUE(Report(As(kBridge), "other", "hash").ok());
  const auto tenants_told_to = [this](const char* token) {
    SecureClient client = As(token);
    grpc::ClientContext context;
    client.Prepare(&context);
    wire::LookupRouteRequest request;
    request.set_tenant_id("tenant");
    ::inferencecache::ops::v1alpha1::ExplainRouteResponse response;
    const auto stub = ::inferencecache::ops::v1alpha1::Ops::NewStub(client.channel());
    EXPECT_TRUE(stub->ExplainRoute(&context, request, &response).ok());
    EXPECT_FALSE(response.scope().tenant_known());
    return std::vector<std::string>(response.scope().tenants().begin(), response.scope().tenants().end());
  };
  EXPECT_THAT(tenants_told_to(kOperator), ElementsAre("other"));
  EXPECT_THAT(tenants_told_to(kBoundOperator), IsEmpty());
}

TEST_F(AccessTest, ARequestThatIsRefusedForItsTenantPinsNoMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP()
      << "a sanitizer keeps memory of its own, and protobuf's library cannot measure the messages that it lays out";
#endif
  Start({"--grpc-lookup-threads", "1"});
  std::string unknown_fields;  // 3 bytes each, and much more in memory
  for (int i = 0; i < 1'000'000; ++i) unknown_fields.append("\xfa\x3e\0", 3);
  const auto send = [&](auto method, auto request, auto response) {
    request.set_tenant_id("other");
    request.GetReflection()->MutableUnknownFields(&request)->ParseFromString(unknown_fields);
    EXPECT_EQ(As(kBound).Call(method, request, response).error_code(), kDenied);
  };
  const int64_t before = icached_->RssBytes();
  using Stub = wire::InferenceCache::Stub;
  send(&Stub::LookupRoute, wire::LookupRouteRequest(), wire::LookupRouteResponse());
  send(&Stub::LookupPDRoute, wire::LookupPDRouteRequest(), wire::LookupPDRouteResponse());
  send(&Stub::RenderTemplate, wire::RenderTemplateRequest(), wire::RenderTemplateResponse());
  send(&Stub::GetCacheState, wire::GetCacheStateRequest(), wire::GetCacheStateResponse());
  // What one request unpacks to, on each of the two threads that have read one, not once for each method.
  EXPECT_LT(icached_->RssBytes() - before, 180 << 20);
}

TEST_F(AccessTest, HttpPathsButThreeTakeTheRoleAdminForAllTenants) {
  Start();
  for (const char* const path : {"/healthz", "/readyz", "/metrics"}) EXPECT_EQ(HttpStatus(path), 200) << path;
  EXPECT_EQ(HttpStatus("/other"), 401);
  EXPECT_EQ(HttpStatus("/other", std::string("Bearer ") + kGateway), 403);
  EXPECT_EQ(HttpStatus("/other", std::string("Bearer ") + kBoundOperator), 403);
  EXPECT_EQ(HttpStatus("/other", std::string("Bearer ") + kOperator), 404);
}

TEST_F(AccessTest, DebugPagesTakeTheRoleAdminAndTellNoSecret) {
  Start();
  for (const std::string path : {"/debug/config", "/debug/policies", "/debug/index"}) {
    EXPECT_EQ(HttpStatus(path), 401) << path;
    EXPECT_EQ(HttpStatus(path, std::string("Bearer ") + kGateway), 403) << path;
    httplib::Client client("127.0.0.1", icached_->http_port());
    const auto answer = client.Get(path.c_str(), {{"Authorization", std::string("Bearer ") + kOperator}});
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 200) << path;
    for (const char* const secret : {kGateway, kBoundOperator, kOperator}) {
      EXPECT_EQ(answer->body.find(secret), std::string::npos) << path;
    }
  }
}

TEST_F(AccessTest, AReplacedTokenIsTakenUpAndTheOldOneEndsItsStreams) {
  Start();
  SecureClient old_gateway = As(kGateway);
  grpc::ClientContext context;
  old_gateway.Prepare(&context);
  const auto stream = old_gateway.stub()->LookupRouteStream(&context);
  wire::LookupRouteRequest request;
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stream->Write(request));
  ASSERT_TRUE(stream->Read(&response));

  WriteGrants(Grants(kNew));
  EXPECT_TRUE(Eventually([&] { return As(kNew).Lookup().ok(); }));
  EXPECT_EQ(old_gateway.Lookup().error_code(), kUnknown);
  stream->Write(request);
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), kUnknown);
}

TEST_F(AccessTest, RefusedGrantsLeaveThoseInForce) {
  Start();
  WriteGrants("name: n\nroles: [lookup]\ntokens: [*bad-token-0123456789]\n");
  EXPECT_TRUE(Eventually([&] {
    return Metrics().Value("inferencecache_access_reloads_total", {{"result", "failure"}}).value_or(0) == 1;
  }));
  EXPECT_TRUE(As(kGateway).Lookup().ok());
}

TEST_F(AccessTest, AFileThatIsEmptyForAMomentLocksNobodyOut) {
  Start();
  WriteGrants("");
  EXPECT_TRUE(Eventually([&] {
    return Metrics().Value("inferencecache_access_reloads_total", {{"result", "failure"}}).value_or(0) == 1;
  }));
  EXPECT_TRUE(As(kGateway).Lookup().ok());
}

// A sanitizer keeps what has been freed.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
TEST_F(AccessTest, TokensAreNotInMemory) {
  Start();
  EXPECT_FALSE(icached_->MemoryHolds(kGateway));
  EXPECT_FALSE(icached_->MemoryHolds(kBoundOperator));
  EXPECT_TRUE(icached_->MemoryHolds(folder_ / "grants.yaml"));  // what is there is found
  WriteGrants(Grants(kNew));
  ASSERT_TRUE(Eventually([&] {
    return Metrics().Value("inferencecache_access_reloads_total", {{"result", "success"}}).value_or(0) == 1;
  }));
  EXPECT_FALSE(icached_->MemoryHolds(kNew));
}
#endif

TEST_F(AccessTest, RefusalsAreCounted) {
  Start();
  (void)As("").Lookup();
  (void)As(kBound).Lookup("other");
  (void)HttpStatus("/other");
  const PageReader page = Metrics();
  EXPECT_THAT(page.Value("inferencecache_calls_refused_total", {{"reason", "unauthenticated"}}), Optional(Ge(2)));
  EXPECT_THAT(page.Value("inferencecache_calls_refused_total", {{"reason", "permission_denied"}}), Optional(Ge(1)));
}

TEST_F(AccessTest, ACertificateIsGrantedWhatItsNamesAre) {
  CertificateFolder certificates;
  certificates.Sign("server");
  certificates.Sign("engine", "engine.test");
  certificates.Sign("stranger", "stranger.test");
  Start({"--grpc-tls-cert-file", certificates.Certificate("server"), "--grpc-tls-key-file", certificates.Key("server"),
         "--grpc-tls-client-ca-file", certificates.ca()},
        /*certificates=*/true);
  const auto as = [&](const std::string& name, const std::string& token = "") {
    return SecureClient(icached_->grpc_address(), ClientIdentity{.ca = certificates.ca(),
                                                                 .certificate = certificates.Certificate(name),
                                                                 .key = certificates.Key(name),
                                                                 .token = token});
  };
  EXPECT_TRUE(Report(as("engine"), "tenant").ok());
  EXPECT_EQ(as("engine").Lookup().error_code(), kDenied);
  EXPECT_EQ(as("stranger").Lookup().error_code(), kUnknown);
  EXPECT_TRUE(as("engine", kGateway).Lookup().ok());
}

TEST(OpenAccessTest, StartSaysOfEachListenerForWhomItIsOpen) {
  CertificateFolder certificates;
  certificates.Sign("server");
  IcachedProcess icached({"--grpc-tls-cert-file", certificates.Certificate("server"), "--grpc-tls-key-file",
                          certificates.Key("server"), "--grpc-tls-client-ca-file", certificates.ca()});
  ASSERT_TRUE(icached.ready());
  EXPECT_EQ(icached.Terminate(), 0);
  EXPECT_THAT(icached.output(), HasSubstr("info open_to_all_with_a_certificate listener=grpc"));
  EXPECT_THAT(icached.output(), HasSubstr("info open_to_all listener=http"));
}

TEST(OpenAccessTest, AStartThatFailsSaysNothingOfIt) {
  IcachedProcess icached({"--grpc-tls-cert-file", "missing", "--grpc-tls-key-file", "missing"});
  EXPECT_EQ(icached.Terminate(), 2);
  EXPECT_THAT(icached.output(), Not(HasSubstr("open_to_all")));
}

}  // namespace
}  // namespace icache::testing
