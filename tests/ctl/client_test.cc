// What callers of the client see of a server that makes calls fail.
#include "ctl/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>

#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"
#include "tests/config/temp_folder.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::HasSubstr;

// Answers every lookup with an error.
class Refusing final : public wire::InferenceCache::Service {
 public:
  grpc::Status LookupRoute(grpc::ServerContext*, const wire::LookupRouteRequest*, wire::LookupRouteResponse*) override {
    return {code, "because"};
  }

  grpc::StatusCode code = grpc::StatusCode::OK;
};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    settings_.address = "unix:" + (folder_ / "grpc.sock");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(settings_.address, grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
  }

  const TempFolder folder_;
  Settings settings_;
  Refusing service_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ClientTest, WhateverCodeEndsACallTheDaemonDidNotAnswer) {
  const auto client = Client::Create(settings_);
  ASSERT_THAT(client, IsOk());
  for (int code = 1; code <= 16; ++code) {
    service_.code = static_cast<grpc::StatusCode>(code);
    EXPECT_THAT((*client)->Lookup({}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("LookupRoute: because")))
        << code;
  }
}

TEST_F(ClientTest, TextThatIsNoUtf8IsNotSent) {
  const auto client = Client::Create(settings_);
  ASSERT_THAT(client, IsOk());
  wire::LookupRouteRequest request;
  request.add_candidate_replica_ids("\xff");
  EXPECT_THAT((*client)->Lookup(request),
              StatusIs(absl::StatusCode::kInvalidArgument, "candidate_replica_ids: must be UTF-8"));
  wire::CacheEvent event;
  event.set_prefix_hash("\xff");  // bytes
  EXPECT_THAT((*client)->Publish(event), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("PublishEvent")));
}

}  // namespace
}  // namespace icache::testing
