#include "icache/rpc/rpc_server.h"

#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/time/clock.h"
#include "icache/base/status_macros.h"
#include "rpc/call_queue.h"
#include "rpc/door.h"
#include "rpc/health.h"
#include "rpc/listener.h"
#include "rpc/methods.h"
#include "rpc/observer_streams.h"
#include "rpc/rpc_service.h"
#include "rpc/streams.h"
#include "rpc/tls_credentials.h"

namespace icache {

namespace wire = ::inferencecache::v1alpha1;

namespace {

// Calls posted at a time. More of them cost more than they save: each is touched in turn. Lookups come in bursts, the
// other methods now and then.
constexpr size_t kPostedLookups = 16;
constexpr size_t kPostedOthers = 2;

// The reflection service of gRPC has a thread for every stream.
constexpr int kMaxReflectionThreads = 8;

// What a new connection has for its TLS handshake and its first frames.
constexpr absl::Duration kHandshakeTimeout = absl::Seconds(20);

// How long clients have to close their connections once the server has told them that it goes and all is answered.
constexpr absl::Duration kHangUpTime = absl::Milliseconds(100);

// For an operation whose end needs no action.
class IgnoredCompletion final : public Completion {
 public:
  void OnCompletion(bool /*ok*/) override {}
};

int ToMilliseconds(absl::Duration duration) {
  return static_cast<int>(std::clamp<int64_t>(absl::ToInt64Milliseconds(duration), 0, std::numeric_limits<int>::max()));
}

void SetArguments(const RpcOptions& options, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota quota("icached");
  quota.Resize(options.max_buffer_bytes);
  quota.SetMaxThreads(kMaxReflectionThreads);
  builder->SetResourceQuota(quota);
  builder->SetMaxReceiveMessageSize(
      static_cast<int>(std::min<size_t>(options.max_message_bytes, std::numeric_limits<int>::max())));
  // A small compressed message may unpack to any size, and gRPC unpacks before it measures.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);  // two servers on one port would each miss half the calls
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_calls_per_connection);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
  builder->AddChannelArgument(GRPC_ARG_MAX_CHANNEL_TRACE_EVENT_MEMORY_PER_NODE, 0);

  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, ToMilliseconds(options.keepalive_time));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, ToMilliseconds(options.keepalive_timeout));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // A tenth less than promised: pings sent at exactly the interval arrive a little early as often as late.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                              ToMilliseconds(options.min_ping_interval * 0.9));
  if (options.max_connection_age > absl::ZeroDuration()) {
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS, ToMilliseconds(options.max_connection_age));
    builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_GRACE_MS, ToMilliseconds(options.max_connection_age_grace));
  }
}

}  // namespace

class RpcServer::Impl {
 public:
  Impl(const RpcOptions& options, const RpcBackend& backend) : options_(options), backend_(backend) {}
  ~Impl() { Shutdown(absl::ZeroDuration()); }

  absl::Status Start();
  void SetServing(bool serving);
  void Shutdown(absl::Duration grace);

  const std::vector<std::string>& addresses() const { return addresses_; }

 private:
  void AddLookupQueue(const std::string& name, grpc::ServerBuilder* builder);
  void AddIngestQueue(const std::string& name, grpc::ServerBuilder* builder);

  const RpcOptions options_;
  const RpcBackend backend_;
  const size_t max_unsent_bytes_ =
      options_.max_unsent_bytes / static_cast<size_t>(options_.lookup_threads + options_.ingest_threads);  // a queue
  const size_t max_waiting_ =
      std::max<size_t>(options_.max_lookups_in_flight / static_cast<size_t>(options_.lookup_threads), 1);  // likewise
  RpcService service_;
  OpsService ops_service_;
  HealthService health_service_;
  ServingState serving_;
  StreamLimit lookup_streams_{options_.max_lookup_streams};
  StreamLimit report_streams_{options_.max_report_streams};
  StreamLimit event_streams_{options_.max_event_streams};
  StreamLimit metric_streams_{options_.max_metric_streams};
  StreamLimit watch_streams_{options_.max_watch_streams};
  std::vector<std::unique_ptr<Doors>> doors_;                       // one per queue
  std::vector<std::unique_ptr<LookupRouteMethod>> stream_lookups_;  // one per lookup queue
  std::vector<std::unique_ptr<UpdateSink>> sinks_;                  // one per ingest queue
  std::vector<std::unique_ptr<CallQueue>> queues_;
  IgnoredCompletion shutdown_begun_;
  Listener listener_{backend_.connection_observer};
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;  // null before Start() and after Shutdown()
  std::vector<std::string> addresses_;
};

absl::Status RpcServer::Impl::Start() {
  if (options_.addresses.empty()) return absl::InvalidArgumentError("no gRPC address to listen on");
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();

  grpc::ServerBuilder builder;
  SetArguments(options_, &builder);
  if (backend_.tls != nullptr) {
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, ToMilliseconds(kHandshakeTimeout));
  }
  for (const std::string& address : options_.addresses) {
    ASSIGN_OR_RETURN(addresses_.emplace_back(), listener_.Add(address));
  }
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      backend_.tls != nullptr ? RotatingTlsCredentials(backend_.tls) : grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  builder.RegisterService(&ops_service_);
  builder.RegisterService(&health_service_);
  for (int i = 0; i < options_.lookup_threads; ++i) AddLookupQueue("lookup-" + std::to_string(i), &builder);
  for (int i = 0; i < options_.ingest_threads; ++i) AddIngestQueue("ingest-" + std::to_string(i), &builder);

  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::InternalError("gRPC does not start");
  for (const auto& queue : queues_) queue->Start();
  listener_.Start([this](int listening_fd, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listening_fd;
    connection.fd = fd;
    acceptor_->HandleNewConnection(&connection);
  });
  return absl::OkStatus();
}

void RpcServer::Impl::AddLookupQueue(const std::string& name, grpc::ServerBuilder* builder) {
  const size_t max_bytes = options_.max_recycled_message_bytes;
  Doors* const doors = doors_.emplace_back(std::make_unique<Doors>(backend_)).get();
  auto queue = std::make_unique<CallQueue>(name, builder->AddCompletionQueue(), max_unsent_bytes_, max_waiting_);
  queue->AddUnary(CallsOf(&service_, &RpcService::RequestLookupRoute),
                  std::make_unique<LookupRouteMethod>(&doors->lookup, backend_, max_bytes), kPostedLookups);
  stream_lookups_.push_back(std::make_unique<LookupRouteMethod>(&doors->lookup, backend_, max_bytes));
  queue->AddStreams(
      [this, doors, cq = queue->queue(), lookup = stream_lookups_.back().get()](StreamPool* pool) {
        return std::make_unique<LookupStream>(pool, &service_, cq, &doors->lookup, lookup);
      },
      &lookup_streams_);
  queue->AddUnary(CallsOf(&service_, &RpcService::RequestRenderTemplate),
                  std::make_unique<RenderTemplateMethod>(&doors->lookup, backend_.clock, max_bytes), kPostedOthers);
  queue->AddUnary(CallsOf(&service_, &RpcService::RequestLookupPDRoute),
                  std::make_unique<LookupPDRouteMethod>(&doors->lookup, backend_.clock, max_bytes), kPostedOthers);
  queue->AddUnary(CallsOf(&health_service_, &HealthService::RequestCheck),
                  std::make_unique<HealthCheckMethod>(&serving_, max_bytes), kPostedOthers);
  queue->AddStreams(
      [this, cq = queue->queue()](StreamPool* pool) {
        return std::make_unique<HealthWatchStream>(pool, CallsOf(&health_service_, &HealthService::RequestWatch), cq,
                                                   &serving_);
      },
      &watch_streams_);
  queues_.push_back(std::move(queue));
}

void RpcServer::Impl::AddIngestQueue(const std::string& name, grpc::ServerBuilder* builder) {
  const size_t max_bytes = options_.max_recycled_message_bytes;
  Doors* const doors = doors_.emplace_back(std::make_unique<Doors>(backend_)).get();
  // Connections are not shared out to it: a lookup on one of its own would have to wake another thread.
  auto queue = std::make_unique<CallQueue>(name, builder->AddCompletionQueue(/*is_frequently_polled=*/false),
                                           max_unsent_bytes_, max_waiting_);
  queue->AddUnary(CallsOf(&service_, &RpcService::RequestPublishEvent),
                  std::make_unique<PublishEventMethod>(&doors->observe, backend_, max_bytes), kPostedOthers);
  queue->AddUnary(CallsOf(&service_, &RpcService::RequestGetCacheState),
                  std::make_unique<GetCacheStateMethod>(&doors->lookup, backend_, max_bytes), kPostedOthers);
  queue->AddUnary(CallsOf(&ops_service_, &OpsService::RequestExplainRoute),
                  std::make_unique<ExplainRouteMethod>(&doors->admin, backend_, options_.version, max_bytes),
                  kPostedOthers);

  sinks_.push_back(std::make_unique<UpdateSink>(&doors->observe, backend_, max_bytes));
  queue->AddStreams([this, cq = queue->queue(), sink = sinks_.back().get()](
                        StreamPool* pool) { return std::make_unique<ReportStream>(pool, &service_, cq, sink); },
                    &report_streams_);
  queue->AddStreams(
      [this, doors, cq = queue->queue()](StreamPool* pool) {
        return std::make_unique<EventStream>(pool, CallsOf(&service_, &RpcService::RequestStreamCacheEvents), cq,
                                             &doors->admin, backend_.events);
      },
      &event_streams_);
  queue->AddStreams(
      [this, doors, cq = queue->queue()](StreamPool* pool) {
        return std::make_unique<MetricStream>(pool, CallsOf(&service_, &RpcService::RequestStreamMetrics), cq,
                                              &doors->admin, backend_);
      },
      &metric_streams_);
  queues_.push_back(std::move(queue));
}

void RpcServer::Impl::SetServing(bool serving) {
  if (server_ == nullptr) return;
  serving_.Set(serving);
  for (const auto& queue : queues_) queue->Wake();
}

void RpcServer::Impl::Shutdown(absl::Duration grace) {
  if (server_ == nullptr) return;
  SetServing(false);
  listener_.Stop();
  for (const auto& queue : queues_) queue->Drain();

  // grpc::Server::Shutdown() alone would wait for clients to close their connections, which idle ones may not do for
  // long. So it begins beneath; what was taken is answered; and then clients have a moment to hang up.
  const absl::Time grace_ends = absl::Now() + grace;
  grpc_server_shutdown_and_notify(server_->c_server(), queues_[0]->queue()->cq(), shutdown_begun_.tag());
  for (const auto& queue : queues_) queue->AwaitQuiet(grace_ends);
  server_->Shutdown(absl::ToChronoTime(std::min(grace_ends, absl::Now() + kHangUpTime)));
  for (const auto& queue : queues_) queue->Stop();
  server_.reset();
}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcOptions& options, const RpcBackend& backend) {
  auto impl = std::make_unique<Impl>(options, backend);
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<RpcServer>(new RpcServer(std::move(impl)));
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RpcServer::~RpcServer() = default;

const std::vector<std::string>& RpcServer::addresses() const { return impl_->addresses(); }
void RpcServer::SetServing(bool serving) { impl_->SetServing(serving); }
void RpcServer::Shutdown(absl::Duration grace) { impl_->Shutdown(grace); }

}  // namespace icache
