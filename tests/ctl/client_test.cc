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

// Answers every call with bytes that are no message, once its client is done.
class Babbling final : public grpc::CallbackGenericService {
  class Reactor final : public grpc::ServerGenericBidiReactor {
   public:
    Reactor() { StartRead(&read_); }
    void OnReadDone(bool ok) override {
      if (ok) return StartRead(&read_);
      const grpc::Slice slice("\xff");
      junk_ = grpc::ByteBuffer(&slice, 1);
      StartWriteAndFinish(&junk_, grpc::WriteOptions(), grpc::Status::OK);
    }
    void OnDone() override { delete this; }

   private:
    grpc::ByteBuffer read_, junk_;
  };
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override { return new Reactor(); }
};

class ClientTest : public ::testing::Test {
 protected:
  ClientTest() {
    settings_.address = "unix:" + (folder_ / "grpc.sock");
    settings_.timeout = "1m";
  }

  void Serve(grpc::Service* service, grpc::CallbackGenericService* others) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(settings_.address, grpc::InsecureServerCredentials());
    if (service != nullptr) builder.RegisterService(service);
    if (others != nullptr) builder.RegisterCallbackGenericService(others);
    server_ = builder.BuildAndStart();
  }

  const TempFolder folder_;
  Settings settings_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(ClientTest, WhateverCodeEndsACallTheDaemonDidNotAnswer) {
  Refusing service;
  Serve(&service, nullptr);
  const auto client = Client::Create(settings_);
  ASSERT_THAT(client, IsOk());
  for (int code = 1; code <= 16; ++code) {
    service.code = static_cast<grpc::StatusCode>(code);
    EXPECT_THAT((*client)->Lookup({}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("LookupRoute: because")))
        << code;
  }
}

TEST_F(ClientTest, AnAnswerThatIsNoMessageIsAnErrorOfTheDaemon) {
  Babbling service;
  Serve(nullptr, &service);
  const auto client = Client::Create(settings_);
  ASSERT_THAT(client, IsOk());
  EXPECT_THAT((*client)->Lookup({}), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT((*client)->Report(std::vector<wire::CacheStateUpdate>(3)), StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_THAT((*client)->Watch(
                  {}, [] {}, [](const wire::CacheEvent&) {}, [] { return false; }),
              StatusIs(absl::StatusCode::kUnavailable));
  server_->Shutdown();
}

TEST_F(ClientTest, TextThatIsNoUtf8IsNotSent) {
  Refusing service;
  Serve(&service, nullptr);
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
