// Bridge: the whole of icache-bridge as an object: the daemons' links, a worker for each engine, and the HTTP
// endpoints.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/daemon_set.h"
#include "bridge/engine_worker.h"
#include "bridge/event_socket.h"
#include "bridge/options.h"
#include "icache/http/http_server.h"
#include "icache/telemetry/logging.h"

namespace icache {

class Bridge {
 public:
  // Listens and subscribes before it returns. `logger` is not owned and must outlive it. Errors:
  // Unavailable for an address that cannot be listened on or a socket that cannot be opened.
  static absl::StatusOr<std::unique_ptr<Bridge>> Start(const BridgeOptions& options, Logger* logger);
  // Shuts down without grace.
  ~Bridge();
  Bridge(const Bridge&) = delete;
  Bridge& operator=(const Bridge&) = delete;

  int http_port() const { return http_->port(); }
  // The page of /metrics; docs/engines.md lists its series.
  std::string Metrics() const;
  // OK while every engine's events are in sync and a daemon takes them.
  absl::Status Ready() const;

  // Sends what is known, and the clears that are asked for, for at most `grace`, and stops. Idempotent.
  void Shutdown(absl::Duration grace);

 private:
  Bridge(const BridgeOptions& options, Logger* logger);

  const BridgeOptions options_;
  Logger* const logger_;
  EventContext context_;
  DaemonSet daemons_;
  std::vector<std::unique_ptr<EngineWorker>> workers_;  // fixed once started
  std::unique_ptr<HttpServer> http_;
  bool stopped_ = false;
};

}  // namespace icache
