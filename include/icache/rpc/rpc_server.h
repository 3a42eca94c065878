// RpcServer: the InferenceCache and Ops services over gRPC, with health and reflection.
//
// Threads: each completion queue has one thread of its own and everything posted on a queue is touched by that thread
// alone, so calls need no locks. Gateways' calls and the health service go to the lookup queues; observations
// (ReportCacheState, PublishEvent), GetCacheState, ExplainRoute and the observers' streams go to the ingest queues, so
// a long update never holds up a lookup.
//
// gRPC's types stay in src/rpc/.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/access/access_observer.h"
#include "icache/access/access_rules.h"
#include "icache/access/tls_identity.h"
#include "icache/base/clock.h"
#include "icache/base/metric_sample.h"
#include "icache/base/published.h"
#include "icache/events/event_hub.h"
#include "icache/index/ingest_observer.h"
#include "icache/index/prefix_index.h"
#include "icache/net/connection_observer.h"
#include "icache/routing/router.h"
#include "icache/rpc/call_observer.h"

namespace icache {

// All fixed at start.
struct RpcOptions {
  // "HOST:PORT" or "unix:/path"; at least one. Port 0 takes a free port. A socket file that no server listens on is
  // replaced.
  std::vector<std::string> addresses;

  std::string version;  // of the daemon, as operators are told

  int lookup_threads = 1;  // queues for unary calls, >= 1
  int ingest_threads = 1;  // queues for observations, >= 1

  // A request beyond it fails, alone. Requests must come uncompressed: gRPC unpacks before it measures.
  size_t max_message_bytes = 16 << 20;
  // Each queue reuses one request and one response object per method; one that grew beyond this is freed after its
  // call.
  size_t max_recycled_message_bytes = 256 << 10;

  // What gRPC may buffer of requests and answers, over all connections. Beyond it, it ends streams and connections.
  size_t max_buffer_bytes = size_t{1} << 30;
  // What answers that their clients do not read may hold, an equal share for each queue. Beyond it the oldest is given
  // up: its call ends with CANCELLED.
  size_t max_unsent_bytes = size_t{256} << 20;

  // Lookups that may wait for one of the queues, an equal share for each. Who comes when there are more is answered
  // NO_HINT at once.
  size_t max_lookups_in_flight = 1'024;

  // Open streams over all queues; one more is refused with RESOURCE_EXHAUSTED.
  size_t max_lookup_streams = 16'384;    // LookupRouteStream
  size_t max_report_streams = 16'384;    // ReportCacheState
  size_t max_event_streams = 4'096;      // StreamCacheEvents: each bridge has one for a tenant's model
  size_t max_metric_streams = 64;        // StreamMetrics
  size_t max_watch_streams = 1'024;      // of the health service
  int max_calls_per_connection = 4'096;  // at a time; a client's further calls wait on its side

  absl::Duration keepalive_time = absl::Hours(2);        // idle time after which the server pings
  absl::Duration keepalive_timeout = absl::Seconds(20);  // without an answer the connection is closed
  // Clients that ping more often are sent away, whether they have calls open or not.
  absl::Duration min_ping_interval = absl::Seconds(10);
  absl::Duration max_connection_age = absl::ZeroDuration();     // 0 = unlimited
  absl::Duration max_connection_age_grace = absl::Seconds(10);  // for calls in flight on an aged connection
};

// All series of the moment, in an order that stays. Called on a queue's thread.
using MetricSource = std::function<std::shared_ptr<const std::vector<MetricSample>>()>;

// What the calls end in. Nothing is owned; everything must outlive the server.
struct RpcBackend {
  const Router* router = nullptr;
  PrefixIndex* index = nullptr;
  const Clock* clock = nullptr;
  EventHub* events = nullptr;                         // what StreamCacheEvents tells
  MetricSource metrics;                               // what StreamMetrics tells
  IngestObserver* ingest_observer = nullptr;          // may be null
  const Published<TlsIdentity>* tls = nullptr;        // null = without TLS; holds a value
  const Published<AccessRules>* access = nullptr;     // null = everybody may do everything; holds a value
  AccessObserver* access_observer = nullptr;          // may be null
  CallObserver* call_observer = nullptr;              // null = nobody is told of single calls, which costs nothing
  ConnectionObserver* connection_observer = nullptr;  // may be null
};

class RpcServer {
 public:
  // Listens and serves. Errors: Unavailable, naming the address that cannot be had.
  static absl::StatusOr<std::unique_ptr<RpcServer>> Start(const RpcOptions& options, const RpcBackend& backend);

  // Shuts down without grace.
  ~RpcServer();
  RpcServer(const RpcServer&) = delete;
  RpcServer& operator=(const RpcServer&) = delete;

  // Where it listens: the options' addresses, in order, with the ports that were taken. Each is a channel target.
  const std::vector<std::string>& addresses() const;

  // What the health service says of "" and of the InferenceCache service: SERVING or NOT_SERVING. Calls are served
  // either way. NOT_SERVING at the start.
  void SetServing(bool serving);

  // Refuses new calls, ends every stream at once with UNAVAILABLE, lets the unary calls in flight finish for at most
  // `grace`, and joins the threads. Idempotent; not from several threads at once.
  void Shutdown(absl::Duration grace);

 private:
  class Impl;
  explicit RpcServer(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace icache
