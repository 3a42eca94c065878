// Server: the whole daemon as an object. It builds the rooms in order, serves, and takes them down in reverse.
//
// Threads, all owned and joined here or by the room that has them: gRPC's queues and acceptor (rpc), one for HTTP, one
// that watches each set of files (policies, grants, TLS), one that sweeps the index, and one that waits for the warm-up
// if there is one.
//
//   policies -> index -> router -> HTTP (not ready) -> gRPC -> sweeper, policy watcher -> warm-up -> ready
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/access/access_rules.h"
#include "icache/access/tls_identity.h"
#include "icache/base/clock.h"
#include "icache/base/published.h"
#include "icache/config/daemon_options.h"
#include "icache/events/event_hub.h"

namespace icache {

class BackgroundTask;
class CallLog;
class CertificateAlarm;
class ConnectionLog;
class DebugPages;
class FileWatcher;
class HttpServer;
class Logger;
class Metrics;
class PolicyStore;
class PrefixIndex;
class Router;
class RpcServer;
enum class Listener;
struct HttpCaller;
struct PolicyReload;

// The log that `options` ask for, on standard error.
std::unique_ptr<Logger> CreateDaemonLogger(const DaemonOptions& options);

class Server {
 public:
  // Lookups are served when it returns. `logger` and `clock` are not owned and must outlive the server.
  //
  // Errors: InvalidArgument for bad policies or options, which somebody must change first; Unavailable for an address
  // that cannot be listened on, which is named.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const DaemonOptions& options, Logger* logger,
                                                       const Clock* clock = Clock::System());
  // Shuts down without grace.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Where it listens, with the ports that were taken.
  const std::vector<std::string>& grpc_addresses() const;
  int http_port() const;

  // Whether /readyz and the health service say so: from the end of the warm-up to Drain().
  bool IsReady() const { return state_ == State::kReady; }

  // Has the policies, grants and TLS files loaded as soon as can be, changed or not, on the threads that watch them. A
  // refusal is logged and counted; what is in force stays.
  void Reload();

  // Tells everybody who asks that the server is going, and serves on. Idempotent.
  void Drain();
  // Drains, ends all streams at once, lets unary calls in flight finish for at most `grace`, and stops everything.
  // Idempotent. Not from several threads at once.
  void Shutdown(absl::Duration grace);

 private:
  enum class State { kStarting, kWarmingUp, kReady, kDraining };

  Server(const DaemonOptions& options, Logger* logger, const Clock* clock);

  absl::Status StartAll();
  absl::Status StartHttp();
  absl::Status StartRpc();
  void EnterState(State state);
  void OnPolicyReload(const PolicyReload& reload);
  bool asks_callers() const { return !options_.access_path.empty(); }
  // Loads the access rules, if there are any, and keeps them in step with their files.
  absl::Status WatchCallers();
  // Says at the start for whom the listeners are open.
  void LogWhoMayCall() const;
  // Whether an HTTP client may see what is not for all.
  absl::Status AdmitHttp(const HttpCaller& caller);
  // Loads the identity of a listener, if it has TLS, and keeps it in step with its files.
  absl::StatusOr<std::unique_ptr<FileWatcher>> WatchTls(Listener listener, const TlsFiles& files,
                                                        Published<TlsIdentity>* identity);
  // Looks whether the certificates in force are valid, and how long still.
  void CheckCertificates();

  const DaemonOptions options_;
  Logger* const logger_;
  const Clock* const clock_;

  // Read by the HTTP thread; written by the owner's and, once, by the warm-up's, which never overlap.
  std::atomic<State> state_ = State::kStarting;

  // In the order they are built; each may use those above. Null until then, and the servers and tasks again after
  // Shutdown().
  Published<AccessRules> access_;    // unused when all is open
  Published<TlsIdentity> grpc_tls_;  // unused without TLS
  Published<TlsIdentity> http_tls_;
  std::unique_ptr<PolicyStore> policies_;
  std::unique_ptr<EventHub> events_;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Router> router_;
  std::unique_ptr<DebugPages> debug_pages_;
  std::unique_ptr<ConnectionLog> grpc_connections_;
  std::unique_ptr<ConnectionLog> http_connections_;
  std::unique_ptr<CertificateAlarm> grpc_alarm_;
  std::unique_ptr<CertificateAlarm> http_alarm_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<CallLog> call_log_;  // at log level debug only
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<FileWatcher> policy_watcher_;
  std::unique_ptr<FileWatcher> access_watcher_;
  std::unique_ptr<FileWatcher> grpc_tls_watcher_;
  std::unique_ptr<FileWatcher> http_tls_watcher_;
  std::unique_ptr<BackgroundTask> sweeper_;
  std::unique_ptr<BackgroundTask> warm_up_;
};

}  // namespace icache
