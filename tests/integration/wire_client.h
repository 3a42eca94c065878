// WireClient: one client of a running daemon, on a connection of its own. Its typed calls must succeed; calls with raw
// bytes say what came of them.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"
#include "tests/testing/raw_call.h"

namespace icache::testing {

namespace wire = ::inferencecache::v1alpha1;

// How long a call may take before it fails the test.
inline constexpr std::chrono::seconds kCallPatience(120);

// The full name of a method of the service.
inline std::string MethodName(const std::string& method) { return "/inferencecache.v1alpha1.InferenceCache/" + method; }

// Thread-compatible.
class WireClient {
 public:
  explicit WireClient(const std::string& address) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    channel_ = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
    // Not every attempt succeeds in gRPC 1.51: it reads connect()'s errno after calls that may have changed it.
    EXPECT_TRUE(channel_->WaitForConnected(std::chrono::system_clock::now() + kCallPatience));
    stub_ = wire::InferenceCache::NewStub(channel_);
  }

  wire::InferenceCache::Stub* stub() { return stub_.get(); }

  wire::LookupRouteResponse Lookup(const wire::LookupRouteRequest& request) {
    return Call(&wire::InferenceCache::Stub::LookupRoute, request, wire::LookupRouteResponse());
  }
  wire::GetCacheStateResponse GetState(const std::string& tenant, const std::string& model) {
    wire::GetCacheStateRequest request;
    request.set_tenant_id(tenant);
    request.set_model_id(model);
    return Call(&wire::InferenceCache::Stub::GetCacheState, request, wire::GetCacheStateResponse());
  }
  std::string RenderTemplate(const wire::RenderTemplateRequest& request) {
    return Call(&wire::InferenceCache::Stub::RenderTemplate, request, wire::RenderTemplateResponse()).reason_code();
  }
  std::string LookupPdRoute(const wire::LookupPDRouteRequest& request) {
    return Call(&wire::InferenceCache::Stub::LookupPDRoute, request, wire::LookupPDRouteResponse()).reason_code();
  }
  void Publish(const wire::CacheEvent& event) {
    ExpectAccepted(Call(&wire::InferenceCache::Stub::PublishEvent, event, wire::Ack()));
  }

  // Reports on one stream of its own, closed in order.
  void Report(const std::vector<wire::CacheStateUpdate>& updates) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    wire::Ack ack;
    const auto stream = stub_->ReportCacheState(&context, &ack);
    for (const wire::CacheStateUpdate& update : updates) EXPECT_TRUE(stream->Write(update));
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    ExpectAccepted(ack);
  }

  // One message and a half-close, answered by one message: a unary call, or a client stream of that one message.
  grpc::Status CallRaw(const std::string& full_method, const std::string& message, std::string* answer = nullptr) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    return RawCall(channel_, &context, full_method, message, answer);
  }

  // Whether the health service says SERVING for the whole server.
  bool IsHealthy() {
    std::string answer;
    return CallRaw("/grpc.health.v1.Health/Check", "", &answer).ok() && answer == "\x08\x01";
  }

 private:
  template <typename Request, typename Response>
  Response Call(grpc::Status (wire::InferenceCache::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                const Request& request, Response response) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_code() << " " << status.error_message();
    return response;
  }
  static void ExpectAccepted(const wire::Ack& ack) {
    EXPECT_TRUE(ack.accepted());
    EXPECT_EQ(ack.reason_code(), "");
  }

  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::InferenceCache::Stub> stub_;
};

}  // namespace icache::testing
