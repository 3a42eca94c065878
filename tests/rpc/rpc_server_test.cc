#include "icache/rpc/rpc_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "grpc/health/v1/health.grpc.pb.h"
#include "inferencecache/ops/v1alpha1/ops.grpc.pb.h"
#include "tests/rpc/rpc_fixture.h"

namespace icache::testing {

namespace health = ::grpc::health::v1;
namespace ops = ::inferencecache::ops::v1alpha1;

namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class RpcServerTest : public RpcFixture {};

// ---------------------------------------------------------------------------------------------- unary calls

TEST_F(RpcServerTest, LookupFindsWhatWasReported) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "hash")).ok());
  grpc::ClientContext context;
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stub_->LookupRoute(&context, Lookup("hash"), &response).ok());
  EXPECT_EQ(response.reason_code(), "PREFIX_MATCH");
  ASSERT_EQ(response.replica_scores_size(), 1);
  EXPECT_EQ(response.replica_scores(0).replica_id(), "r0");
  EXPECT_EQ(response.replica_scores(0).matched_tokens(), 16);
  EXPECT_GE(response.lookup_latency_us(), 0);
}

TEST_F(RpcServerTest, EachCallIsToldWithItsIds) {
  StartServer();
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", std::string(200, 'i'));
  context.AddMetadata("traceparent", "00-1-2-01");
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stub_->LookupRoute(&context, Lookup("a"), &response).ok());
  EXPECT_EQ(calls_.calls(), "LookupRoute|" + std::string(kMaxCallIdBytes, 'i') + "|00-1-2-01|tenant|model|NO_HINT||\n");
}

TEST_F(RpcServerTest, EachUpdateAndEachRefusalIsToldToo) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "a")).ok());
  std::string response;
  ASSERT_FALSE(CallRaw("/inferencecache.v1alpha1.InferenceCache/PublishEvent", "\xFF", &response).ok());
  EXPECT_THAT(calls_.calls(), AllOf(HasSubstr("ReportCacheState|||tenant|model|||\n"),
                                    ::testing::ContainsRegex("PublishEvent\\|\\|\\|\\|\\|\\|.+\\|\n")));
}

TEST_F(RpcServerTest, AStreamThatIsRefusedAtItsOpeningIsToldToo) {
  options_.max_lookup_streams = 0;
  options_.max_report_streams = 0;
  options_.max_event_streams = 0;
  options_.max_metric_streams = 0;
  StartServer();
  for (const char* method : {"LookupRouteStream", "ReportCacheState", "StreamCacheEvents", "StreamMetrics"}) {
    std::string response;
    EXPECT_EQ(CallRaw("/inferencecache.v1alpha1.InferenceCache/" + std::string(method), "", &response).error_code(),
              grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(calls_.calls(), HasSubstr(std::string(method) + "||||||too many open streams|\n"));
  }
}

TEST_F(RpcServerTest, AnObserverIsToldAsItComes) {
  StartServer();
  grpc::ClientContext context;
  wire::StreamEventsRequest request;
  request.set_tenant_id("tenant");
  const auto stream = stub_->StreamCacheEvents(&context, request);
  stream->WaitForInitialMetadata();
  EXPECT_EQ(calls_.calls(), "StreamCacheEvents|||tenant||||\n");
  context.TryCancel();
  stream->Finish();
}

TEST_F(RpcServerTest, RecycledMessagesCarryNothingOver) {
  StartServer();
  wire::CacheStateUpdate update = Update("r0", "hash");
  update.set_adapter_id("adapter");
  ASSERT_TRUE(Report(update).ok());
  wire::LookupRouteRequest with_adapter = Lookup("hash");
  with_adapter.set_adapter_id("adapter");
  for (int i = 0; i < 50; ++i) {  // more calls than are ever posted
    EXPECT_EQ(ReasonOf(with_adapter), "PREFIX_MATCH");
    EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
  }
}

TEST_F(RpcServerTest, LookupsNeverFailForTheirContent) {
  StartServer();
  std::vector<wire::LookupRouteRequest> requests(6);
  requests[1] = Lookup(std::string(100'000, 'x'));
  requests[2] = Lookup("hash");
  requests[2].set_block_token_counts(0, std::numeric_limits<int32_t>::min());
  requests[3] = Lookup("hash");
  for (int i = 0; i < 100'000; ++i) requests[3].add_block_hashes("");
  requests[4].set_tenant_id(std::string(1 << 20, 't'));
  requests[5] = Lookup("hash");
  requests[5].mutable_slo()->set_ttft_ms(std::numeric_limits<int32_t>::min());
  requests[5].set_max_replicas(std::numeric_limits<int32_t>::min());
  for (const wire::LookupRouteRequest& request : requests)
    EXPECT_THAT(ReasonOf(request), AnyOf("NO_HINT", "UNKNOWN_TENANT"));
}

TEST_F(RpcServerTest, TheCallersDeadlineReachesTheRouter) {
  StartServer();
  clock_.Advance(absl::Hours(24 * 365 * 100));  // the server believes that any deadline is past
  grpc::ClientContext context;
  context.set_deadline(PatienceEnds());
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stub_->LookupRoute(&context, Lookup("hash"), &response).ok());
  EXPECT_EQ(response.reason_code(), "TIMEOUT");
}

TEST_F(RpcServerTest, WithoutADeadlineThereIsNoTimeout) {
  StartServer();
  clock_.Advance(absl::Hours(24 * 365 * 100));
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcServerTest, CacheStateTellsStatsAndPrefixes) {
  StartServer();
  wire::CacheStateUpdate update = Update("r0", "hash");
  update.mutable_stats()->set_pressure(0.5F);
  ASSERT_TRUE(Report(update).ok());
  grpc::ClientContext context;
  wire::GetCacheStateRequest request;
  request.set_model_id("model");
  request.set_tenant_id("tenant");
  wire::GetCacheStateResponse response;
  ASSERT_TRUE(stub_->GetCacheState(&context, request, &response).ok());
  EXPECT_EQ(response.summary().total_prefixes(), 1);
  ASSERT_EQ(response.replicas_size(), 1);
  EXPECT_EQ(response.replicas(0).replica_id(), "r0");
  EXPECT_EQ(response.replicas(0).pressure(), 0.5F);
}

TEST_F(RpcServerTest, EventIsAppliedAndAccepted) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "hash")).ok());
  grpc::ClientContext context;
  wire::CacheEvent event;
  event.set_type(wire::CacheEvent::ALL_CLEARED);
  event.set_replica_id("r0");
  event.set_model_id("model");
  event.set_tenant_id("tenant");
  wire::Ack ack;
  ASSERT_TRUE(stub_->PublishEvent(&context, event, &ack).ok());
  EXPECT_TRUE(ack.accepted());
  EXPECT_EQ(ack.reason_code(), "");
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
  EXPECT_EQ(observer_.last_event(), CacheEventType::kAllCleared);
  EXPECT_TRUE(observer_.last_result().applied);
}

TEST_F(RpcServerTest, MalformedEventIsAccepted) {
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  ASSERT_TRUE(stub_->PublishEvent(&context, wire::CacheEvent(), &ack).ok());
  EXPECT_TRUE(ack.accepted());
  EXPECT_FALSE(observer_.last_result().applied);
}

TEST_F(RpcServerTest, ExplainsWhatALookupAnswers) {
  options_.version = "1.2.3";
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "hash")).ok());
  grpc::ClientContext lookup_context;
  wire::LookupRouteResponse answer;
  ASSERT_TRUE(stub_->LookupRoute(&lookup_context, Lookup("hash"), &answer).ok());
  grpc::ClientContext context;
  ops::ExplainRouteResponse explanation;
  ASSERT_TRUE(ops::Ops::NewStub(channel_)->ExplainRoute(&context, Lookup("hash"), &explanation).ok());
  answer.set_lookup_latency_us(explanation.answer().lookup_latency_us());
  EXPECT_EQ(explanation.answer().SerializeAsString(), answer.SerializeAsString());
  EXPECT_EQ(explanation.daemon().version(), "1.2.3");
  EXPECT_EQ(explanation.input().kind(), ops::Input::CHAIN);
  EXPECT_EQ(explanation.scope().replicas_present(), 1);
  ASSERT_EQ(explanation.matches_size(), 1);
  EXPECT_EQ(explanation.matches(0).outcome(), ops::RETURNED);
  EXPECT_EQ(explanation.matches(0).pressure_source(), ops::Match::NO_STATS);
}

TEST_F(RpcServerTest, AnExplanationNamesWhatExists) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "hash")).ok());
  wire::LookupRouteRequest request = Lookup("hash");
  request.set_model_id("other");
  grpc::ClientContext context;
  ops::ExplainRouteResponse explanation;
  ASSERT_TRUE(ops::Ops::NewStub(channel_)->ExplainRoute(&context, request, &explanation).ok());
  EXPECT_EQ(explanation.answer().reason_code(), "UNKNOWN_MODEL");
  EXPECT_TRUE(explanation.scope().tenant_known());
  EXPECT_FALSE(explanation.scope().model_known());
  ASSERT_EQ(explanation.scope().models_size(), 1);
  EXPECT_EQ(explanation.scope().models(0), "model");
}

TEST_F(RpcServerTest, NoTemplateIsFound) {
  StartServer();
  grpc::ClientContext context;
  wire::RenderTemplateResponse response;
  ASSERT_TRUE(stub_->RenderTemplate(&context, wire::RenderTemplateRequest(), &response).ok());
  EXPECT_EQ(response.reason_code(), "TEMPLATE_NOT_FOUND");
}

TEST_F(RpcServerTest, PdRouteHasNoHint) {
  StartServer();
  grpc::ClientContext context;
  wire::LookupPDRouteResponse response;
  ASSERT_TRUE(stub_->LookupPDRoute(&context, wire::LookupPDRouteRequest(), &response).ok());
  EXPECT_EQ(response.reason_code(), "NO_HINT");
}

// ---------------------------------------------------------------------------------------------- bad messages

TEST_F(RpcServerTest, OversizedRequestFailsAlone) {
  options_.max_message_bytes = 10'000;
  StartServer();
  grpc::ClientContext context;
  wire::LookupRouteResponse response;
  const grpc::Status status = stub_->LookupRoute(&context, Lookup(std::string(20'000, 'x')), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcServerTest, OversizedUpdateEndsItsStreamAfterWhatItApplied) {
  options_.max_message_bytes = 10'000;
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  stream->Write(Update("r0", "hash"));
  stream->Write(Update("r0", std::string(20'000, 'x')));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");
}

TEST_F(RpcServerTest, CompressedRequestFailsAlone) {
  StartServer();
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  wire::LookupRouteResponse response;
  const grpc::Status status = stub_->LookupRoute(&context, Lookup(std::string(1 << 20, 'x')), &response);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED) << status.error_message();
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcServerTest, UnparsableRequestFailsAlone) {
  StartServer();
  const std::string not_utf8 = "\x0a\x01\xff";  // model_id = "\xff"
  const std::string truncated = "\x0a\x7f";
  std::string response;
  for (const std::string& request : {not_utf8, truncated}) {
    EXPECT_EQ(CallRaw("/inferencecache.v1alpha1.InferenceCache/LookupRoute", request, &response).error_code(),
              grpc::StatusCode::INTERNAL);
  }
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcServerTest, UnknownMethodIsUnimplemented) {
  StartServer();
  std::string response;
  EXPECT_EQ(CallRaw("/inferencecache.v1alpha1.InferenceCache/Nothing", "", &response).error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

// ---------------------------------------------------------------------------------------------- reports

TEST_F(RpcServerTest, UpdatesAreAppliedAsTheyArrive) {
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  stream->Write(Update("r0", "hash"));
  ASSERT_TRUE(observer_.AwaitUpdates(1));
  EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");
  stream->Write(Update("r0", "second"));
  ASSERT_TRUE(observer_.AwaitUpdates(2));
  EXPECT_EQ(ReasonOf(Lookup("second")), "PREFIX_MATCH");
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(ack.accepted());
  EXPECT_EQ(ack.reason_code(), "");
}

TEST_F(RpcServerTest, EmptyReportIsAccepted) {
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(ack.accepted());
}

TEST_F(RpcServerTest, MalformedUpdateIsAcceptedAndToldToTheObserver) {
  StartServer();
  EXPECT_TRUE(Report(Update("", "hash")).ok());
  ASSERT_TRUE(observer_.AwaitUpdates(1));
  EXPECT_FALSE(observer_.last_result().applied);
  EXPECT_EQ(observer_.last_model(), "model");
}

TEST_F(RpcServerTest, CancelledReportKeepsWhatItApplied) {
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  stream->Write(Update("r0", "hash"));
  ASSERT_TRUE(observer_.AwaitUpdates(1));
  context.TryCancel();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");
}

TEST_F(RpcServerTest, ReportOfAClientThatDiesKeepsWhatItApplied) {
  StartServer();
  {
    auto channel = Connect(server_->addresses()[0]);
    auto stub = wire::InferenceCache::NewStub(channel);
    grpc::ClientContext context;
    wire::Ack ack;
    auto stream = stub->ReportCacheState(&context, &ack);
    stream->Write(Update("r0", "hash"));
    ASSERT_TRUE(observer_.AwaitUpdates(1));
  }  // the stream and its connection are dropped
  EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");
  EXPECT_TRUE(Report(Update("r1", "hash")).ok());
}

TEST_F(RpcServerTest, ALongUpdateDoesNotHoldUpLookups) {
  StartServer();
  Gate gate;
  index_.update_gate = &gate;
  std::future<grpc::Status> report = std::async(std::launch::async, [this] { return Report(Update("r0", "hash")); });
  gate.reached.WaitForNotification();
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
  gate.open.Notify();
  EXPECT_TRUE(report.get().ok());
  EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");
}

// ---------------------------------------------------------------------------------------------- lookup streams

TEST_F(RpcServerTest, ALookupStreamAnswersEveryRequestInOrder) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "held")).ok());
  grpc::ClientContext context;
  const auto stream = stub_->LookupRouteStream(&context);
  constexpr int kRequests = 100;
  for (int i = 0; i < kRequests; ++i) ASSERT_TRUE(stream->Write(Lookup(i % 3 == 0 ? "held" : "unknown")));
  wire::LookupRouteResponse response;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(stream->Read(&response));
    EXPECT_EQ(response.reason_code(), i % 3 == 0 ? "PREFIX_MATCH" : "NO_HINT") << i;
  }
  stream->WritesDone();
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(RpcServerTest, AMessageThatIsNoLookupEndsItsStreamAlone) {
  StartServer();
  std::string response;
  EXPECT_EQ(CallRaw("/inferencecache.v1alpha1.InferenceCache/LookupRouteStream", "\xff\xff", &response).error_code(),
            grpc::StatusCode::INTERNAL);
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcServerTest, OneLookupStreamTooManyIsRefused) {
  options_.max_lookup_streams = 1;
  StartServer();
  grpc::ClientContext contexts[2];
  const auto first = stub_->LookupRouteStream(&contexts[0]);
  first->Write(Lookup("hash"));
  wire::LookupRouteResponse response;
  ASSERT_TRUE(first->Read(&response));
  EXPECT_EQ(stub_->LookupRouteStream(&contexts[1])->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  first->Write(Lookup("hash"));
  EXPECT_TRUE(first->Read(&response));
}

TEST_F(RpcServerTest, ShutdownEndsAnIdleLookupStream) {
  StartServer();
  grpc::ClientContext context;
  const auto stream = stub_->LookupRouteStream(&context);
  stream->Write(Lookup("hash"));
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stream->Read(&response));
  server_->Shutdown(absl::InfiniteDuration());
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// ---------------------------------------------------------------------------------------------- report streams

TEST_F(RpcServerTest, OneReportStreamTooManyIsRefused) {
  options_.max_report_streams = 1;
  StartServer();
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  stream->Write(Update("r0", "hash"));
  ASSERT_TRUE(observer_.AwaitUpdates(1));
  EXPECT_EQ(Report(Update("r1", "hash")).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(Report(Update("r1", "hash")).ok());
}

// ---------------------------------------------------------------------------------------------- overload

class OverloadTest : public RpcFixture {
 protected:
  static constexpr int kCalls = 500;

  OverloadTest() {
    options_.lookup_threads = 1;
    options_.max_lookups_in_flight = 2;
  }

  // Repeats `round`, which sends kCalls lookups of "hash" while the first of them is held up at the gate and returns
  // how often each reason was the answer, until some of them have been shed. When a call comes to be waited for is up
  // to gRPC and the kernel, so one round may shed none.
  void RunUntilShed(const std::function<std::map<std::string, int>(Gate* gate)>& round) {
    StartServer();
    ASSERT_TRUE(Report(Update("r0", "hash")).ok());
    for (int shed = 0; shed == 0;) {
      Gate gate;
      index_.read_gate = &gate;
      std::map<std::string, int> reasons = round(&gate);
      shed = reasons["NO_HINT"];
      EXPECT_GT(reasons["PREFIX_MATCH"], 0);
      EXPECT_EQ(reasons["PREFIX_MATCH"] + shed, kCalls);
    }
    EXPECT_EQ(ReasonOf(Lookup("hash")), "PREFIX_MATCH");  // and all is well again
  }
};

TEST_F(OverloadTest, CallsBeyondTheBoundAreAnsweredNoHint) {
  RunUntilShed([this](Gate* gate) {
    struct Call {
      grpc::ClientContext context;
      wire::LookupRouteResponse response;
      grpc::Status status;
      std::unique_ptr<grpc::ClientAsyncResponseReader<wire::LookupRouteResponse>> reader;
    };
    grpc::CompletionQueue queue;
    std::vector<Call> calls(kCalls);
    for (Call& call : calls) {
      call.context.set_deadline(PatienceEnds());
      call.reader = stub_->AsyncLookupRoute(&call.context, Lookup("hash"), &queue);
      call.reader->Finish(&call.response, &call.status, &call);
    }
    gate->reached.WaitForNotification();
    gate->open.Notify();
    std::map<std::string, int> reasons;
    for (int i = 0; i < kCalls; ++i) {
      void* tag = nullptr;
      bool ok = false;
      EXPECT_TRUE(queue.Next(&tag, &ok));
      const auto* const call = static_cast<Call*>(tag);
      EXPECT_TRUE(call->status.ok()) << call->status.error_message();
      ++reasons[call->response.reason_code()];
    }
    return reasons;
  });
}

TEST_F(OverloadTest, RequestsOfStreamsToo) {
  RunUntilShed([this](Gate* gate) {
    struct Call {
      grpc::ClientContext context;
      std::unique_ptr<grpc::ClientReaderWriter<wire::LookupRouteRequest, wire::LookupRouteResponse>> stream;
    };
    std::vector<Call> calls(kCalls);
    for (Call& call : calls) {
      call.context.set_deadline(PatienceEnds());
      call.stream = stub_->LookupRouteStream(&call.context);
      EXPECT_TRUE(call.stream->Write(Lookup("hash")));
    }
    gate->reached.WaitForNotification();
    gate->open.Notify();
    std::map<std::string, int> reasons;
    for (Call& call : calls) {
      wire::LookupRouteResponse response;
      EXPECT_TRUE(call.stream->Read(&response));
      ++reasons[response.reason_code()];
      EXPECT_TRUE(call.stream->WritesDone());
      EXPECT_TRUE(call.stream->Finish().ok());
    }
    return reasons;
  });
}

// ---------------------------------------------------------------------------------------------- observers

TEST_F(RpcServerTest, OneObserverTooManyIsRefusedUntilAnotherLeaves) {
  options_.max_event_streams = 1;
  StartServer();
  // Which of two is served first is the server's to say: the other one ends by itself.
  const auto open = [this](grpc::ClientContext* context) {
    context->set_deadline(PatienceEnds());
    return stub_->StreamCacheEvents(context, wire::StreamEventsRequest());
  };
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<wire::CacheEvent>> streams[2] = {open(&contexts[0]), open(&contexts[1])};
  std::promise<int> refused;
  std::future<int> first_end = refused.get_future();
  std::atomic<bool> ended = false;
  std::vector<std::future<grpc::Status>> ends;
  for (int i = 0; i < 2; ++i) {
    ends.push_back(std::async(std::launch::async, [&, i] {
      wire::CacheEvent event;
      streams[i]->Read(&event);
      if (!ended.exchange(true)) refused.set_value(i);
      return streams[i]->Finish();
    }));
  }
  const int loser = first_end.get();
  EXPECT_EQ(ends[loser].get().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  contexts[1 - loser].TryCancel();
  EXPECT_EQ(ends[1 - loser].get().error_code(), grpc::StatusCode::CANCELLED);
}

// ---------------------------------------------------------------------------------------------- health and reflection

class RpcHealthTest : public RpcFixture {
 protected:
  // The serving status of `service` as the health protocol encodes it: 1 SERVING, 2 NOT_SERVING; 0 on an error.
  int Health(const std::string& service) {
    std::string request;
    if (!service.empty()) request = std::string("\x0a", 1) + static_cast<char>(service.size()) + service;
    std::string response;
    if (!CallRaw("/grpc.health.v1.Health/Check", request, &response).ok() || response.size() != 2) return 0;
    return response[1];
  }

  std::unique_ptr<grpc::ClientReader<health::HealthCheckResponse>> Watch(const std::string& service,
                                                                         grpc::ClientContext* context) {
    health::HealthCheckRequest request;
    request.set_service(service);
    return health::Health::NewStub(channel_)->Watch(context, request);
  }
};

TEST_F(RpcHealthTest, FollowsWhatTheServerIsTold) {
  StartServer();
  for (const char* service : {"", "inferencecache.v1alpha1.InferenceCache"}) {
    EXPECT_EQ(Health(service), 2) << service;
    server_->SetServing(true);
    EXPECT_EQ(Health(service), 1) << service;
    server_->SetServing(false);
    EXPECT_EQ(Health(service), 2) << service;
  }
}

TEST_F(RpcHealthTest, UnknownServiceIsAnError) {
  StartServer();
  server_->SetServing(true);
  EXPECT_EQ(Health("no.such.Service"), 0);
}

TEST_F(RpcHealthTest, WatchTellsEveryChange) {
  StartServer();
  for (const char* service : {"", "inferencecache.v1alpha1.InferenceCache"}) {
    server_->SetServing(false);
    grpc::ClientContext context;
    const auto watch = Watch(service, &context);
    health::HealthCheckResponse response;
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), health::HealthCheckResponse::NOT_SERVING);
    server_->SetServing(true);
    ASSERT_TRUE(watch->Read(&response));
    EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVING);
    context.TryCancel();
    EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::CANCELLED);
  }
}

TEST_F(RpcHealthTest, WatchThatIsWaitingHearsOfTheEnd) {
  StartServer();
  server_->SetServing(true);
  // A status that is an error may overtake messages that the client has not asked for yet. So the client asks before
  // the server ends, which takes a read that does not block.
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto stub = health::Health::NewStub(channel_);
  const auto watch = stub->PrepareAsyncWatch(&context, health::HealthCheckRequest(), &queue);
  const auto succeeds = [&queue] {
    void* tag;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  watch->StartCall(nullptr);
  ASSERT_TRUE(succeeds());
  health::HealthCheckResponse response;
  watch->Read(&response, nullptr);
  ASSERT_TRUE(succeeds());
  EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVING);
  watch->Read(&response, nullptr);
  server_->Shutdown(absl::InfiniteDuration());
  ASSERT_TRUE(succeeds());
  EXPECT_EQ(response.status(), health::HealthCheckResponse::NOT_SERVING);
  grpc::Status status;
  watch->Finish(&status, nullptr);
  ASSERT_TRUE(succeeds());
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcHealthTest, WatchOfAnUnknownServiceSaysSoAndStaysOpen) {
  StartServer();
  grpc::ClientContext context;
  const auto watch = Watch("no.such.Service", &context);
  health::HealthCheckResponse response;
  ASSERT_TRUE(watch->Read(&response));
  EXPECT_EQ(response.status(), health::HealthCheckResponse::SERVICE_UNKNOWN);
  server_->SetServing(true);
  server_->Shutdown(absl::InfiniteDuration());
  EXPECT_FALSE(watch->Read(&response));  // neither changed it
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

// ---------------------------------------------------------------------------------------------- shutdown

TEST_F(RpcServerTest, ShutdownEndsEveryStreamAtOnce) {
  StartServer();
  ASSERT_TRUE(Report(Update("r0", "first")).ok());  // connects
  grpc::ClientContext events_context;
  const auto events = stub_->StreamCacheEvents(&events_context, wire::StreamEventsRequest());
  grpc::ClientContext metrics_context;
  const auto metrics = stub_->StreamMetrics(&metrics_context, wire::StreamMetricsRequest());
  events->WaitForInitialMetadata();
  metrics->WaitForInitialMetadata();
  grpc::ClientContext report_context;
  wire::Ack ack;
  const auto report = stub_->ReportCacheState(&report_context, &ack);
  report->Write(Update("r0", "hash"));
  wire::CacheEvent event;
  ASSERT_TRUE(events->Read(&event));  // so all three are open

  server_->Shutdown(absl::InfiniteDuration());  // would not return if a stream were waited for

  EXPECT_EQ(report->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_FALSE(events->Read(&event));
  EXPECT_EQ(events->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
  wire::Metric metric;
  EXPECT_FALSE(metrics->Read(&metric));
  EXPECT_EQ(metrics->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(RpcServerTest, ShutdownLetsAUnaryCallFinish) {
  StartServer();
  grpc::ClientContext watch_context;
  const auto watch = health::Health::NewStub(channel_)->Watch(&watch_context, health::HealthCheckRequest());
  health::HealthCheckResponse status;
  ASSERT_TRUE(watch->Read(&status));
  Gate gate;
  index_.state_gate = &gate;
  std::future<grpc::Status> call = std::async(std::launch::async, [this] {
    grpc::ClientContext context;
    wire::GetCacheStateResponse response;
    return stub_->GetCacheState(&context, wire::GetCacheStateRequest(), &response);
  });
  gate.reached.WaitForNotification();
  std::future<void> shutdown = std::async(std::launch::async, [this] { server_->Shutdown(absl::InfiniteDuration()); });
  EXPECT_FALSE(watch->Finish().ok());  // so it has begun
  gate.open.Notify();
  EXPECT_TRUE(call.get().ok());
  shutdown.get();
}

TEST_F(RpcServerTest, ShutdownDoesNotWaitForClientsThatStayConnected) {
  StartServer();
  const std::string& address = server_->addresses()[0];
  sockaddr_in target = {};
  target.sin_family = AF_INET;
  target.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  target.sin_port = htons(std::stoi(address.substr(address.rfind(':') + 1)));
  int fds[2];
  for (int& fd : fds) {
    fd = socket(AF_INET, SOCK_STREAM, 0);
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&target), sizeof(target)), 0);
  }
  // One says nothing at all, the other opens HTTP/2 with empty SETTINGS and reads until it has the server's.
  const std::string preface("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0", 33);
  ASSERT_EQ(write(fds[1], preface.data(), preface.size()), static_cast<ssize_t>(preface.size()));
  char byte;
  ASSERT_EQ(read(fds[1], &byte, 1), 1);

  server_->Shutdown(absl::InfiniteDuration());

  for (const int fd : fds) close(fd);
}

TEST_F(RpcServerTest, ShutdownTwiceIsHarmless) {
  StartServer();
  server_->Shutdown(absl::ZeroDuration());
  server_->Shutdown(absl::ZeroDuration());
}

TEST_F(RpcServerTest, ThePortIsFreeAfterShutdown) {
  StartServer();
  options_.addresses = server_->addresses();
  server_->Shutdown(absl::ZeroDuration());
  EXPECT_THAT(StartAnother(options_), IsOk());
}

// ---------------------------------------------------------------------------------------------- addresses

TEST_F(RpcServerTest, TakenPortIsNamed) {
  StartServer();
  options_.addresses = server_->addresses();
  EXPECT_THAT(StartAnother(options_),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("cannot listen on gRPC address"), HasSubstr(options_.addresses[0]))));
}

TEST_F(RpcServerTest, OneTakenPortOfSeveralIsNamed) {
  StartServer();
  options_.addresses = {"127.0.0.1:0", server_->addresses()[0]};
  EXPECT_THAT(StartAnother(options_), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options_.addresses[1])));
}

TEST_F(RpcServerTest, AddressThatIsNotOursIsNamed) {
  options_.addresses = {"203.0.113.1:0"};
  EXPECT_THAT(StartAnother(options_), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("203.0.113.1:0")));
}

class RpcUnixSocketTest : public RpcFixture {
 protected:
  RpcUnixSocketTest() : path_(::testing::TempDir() + "icache-" + std::to_string(getpid()) + ".sock") {
    std::remove(path_.c_str());
    options_.addresses = {"unix:" + path_};
  }
  ~RpcUnixSocketTest() override { std::remove(path_.c_str()); }

  const std::string path_;
};

TEST_F(RpcUnixSocketTest, IsServedBesideTcp) {
  options_.addresses.push_back("127.0.0.1:0");
  StartServer();
  EXPECT_EQ(server_->addresses()[0], "unix:" + path_);
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
  stub_ = wire::InferenceCache::NewStub(Connect(server_->addresses()[1]));
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcUnixSocketTest, LeftOverSocketIsReplaced) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path_.copy(address.sun_path, sizeof(address.sun_path) - 1);
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  close(fd);  // the file remains
  StartServer();
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcUnixSocketTest, SocketOfALiveServerIsLeftAlone) {
  StartServer();
  EXPECT_THAT(StartAnother(options_),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr(path_), HasSubstr("another server"))));
  EXPECT_EQ(ReasonOf(Lookup("hash")), "NO_HINT");
}

TEST_F(RpcUnixSocketTest, OrdinaryFileIsLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(StartAnother(options_), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(path_)));
  EXPECT_EQ(access(path_.c_str(), F_OK), 0);
}

TEST_F(RpcUnixSocketTest, OverlongPathIsNamed) {
  options_.addresses = {"unix:/" + std::string(200, 'x')};
  EXPECT_THAT(StartAnother(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("107 bytes")));
}

}  // namespace
}  // namespace icache::testing
