#include "icache/daemon/server.h"

#include <algorithm>
#include <string_view>
#include <thread>
#include <utility>

#include "daemon/call_log.h"
#include "daemon/certificate_alarm.h"
#include "daemon/connection_log.h"
#include "daemon/debug_pages.h"
#include "icache/base/status_macros.h"
#include "icache/config/watchers.h"
#include "icache/daemon/background_task.h"
#include "icache/http/http_server.h"
#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"
#include "icache/routing/router.h"
#include "icache/rpc/rpc_server.h"
#include "icache/telemetry/build_info.h"
#include "icache/telemetry/logging.h"
#include "icache/telemetry/metrics.h"
#include "icache/wire/library_logs.h"

namespace icache {
namespace {

constexpr int kMaxLookupThreads = 256;

std::string_view TextOf(const absl::Status& status) { return {status.message().data(), status.message().size()}; }

std::string_view NameOf(Listener listener) { return listener == Listener::kGrpc ? "grpc" : "http"; }

LogSeverity SeverityOf(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return LogSeverity::kDebug;
    case LogLevel::kInfo:
      return LogSeverity::kInfo;
    case LogLevel::kWarn:
      return LogSeverity::kWarn;
    case LogLevel::kError:
      return LogSeverity::kError;
  }
  return LogSeverity::kInfo;
}

}  // namespace

std::unique_ptr<Logger> CreateDaemonLogger(const DaemonOptions& options) {
  LoggerOptions logger;
  logger.min_severity = SeverityOf(options.log_level);
  logger.json = options.log_format == LogFormat::kJson;
  return CreateLogger(logger, Clock::System());
}

Server::Server(const DaemonOptions& options, Logger* logger, const Clock* clock)
    : options_(options), logger_(logger), clock_(clock) {}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const DaemonOptions& options, Logger* logger,
                                                      const Clock* clock) {
  std::unique_ptr<Server> server(new Server(options, logger, clock));
  RETURN_IF_ERROR(server->StartAll());
  return server;
}

absl::Status Server::StartAll() {
  policies_ = std::make_unique<PolicyStore>(options_.default_ttl);
  ASSIGN_OR_RETURN(policy_watcher_,
                   WatchPolicies(options_.policy_path, options_.policy_poll_interval, policies_.get(), clock_,
                                 [this](const PolicyReload& reload) { OnPolicyReload(reload); }));
  events_ = std::make_unique<EventHub>(clock_, static_cast<size_t>(options_.max_observer_queue_events));
  ASSIGN_OR_RETURN(index_, CreateShardedIndex(options_.index, policies_.get(), events_.get()));
  metrics_ = std::make_unique<Metrics>(index_.get(), clock_);
  metrics_->WatchEvents(events_.get());
  metrics_->WatchLog(logger_);
  metrics_->ShowConnections();
  metrics_->RecordPolicyLoad();
  debug_pages_ = std::make_unique<DebugPages>(&options_, policies_.get(), index_.get(), clock_);
  debug_pages_->RecordPolicyLoad(absl::OkStatus());
  router_ = std::make_unique<Router>(options_.router, index_.get(), policies_.get(), clock_, metrics_.get());
  RETURN_IF_ERROR(WatchCallers());
  grpc_connections_ = std::make_unique<ConnectionLog>(Listener::kGrpc, "grpc", metrics_.get(), logger_, clock_);
  http_connections_ = std::make_unique<ConnectionLog>(Listener::kHttp, "http", metrics_.get(), logger_, clock_);
  grpc_alarm_ = std::make_unique<CertificateAlarm>("grpc", logger_);
  http_alarm_ = std::make_unique<CertificateAlarm>("http", logger_);
  ASSIGN_OR_RETURN(grpc_tls_watcher_, WatchTls(Listener::kGrpc, options_.grpc_tls, &grpc_tls_));
  ASSIGN_OR_RETURN(http_tls_watcher_, WatchTls(Listener::kHttp, options_.http_tls, &http_tls_));
  RETURN_IF_ERROR(StartHttp());
  RETURN_IF_ERROR(StartRpc());

  sweeper_ = std::make_unique<BackgroundTask>("sweeper", options_.sweep_interval, [this] {
    index_->Sweep(clock_->Now());
    metrics_->Sweep();
    CheckCertificates();
    return BackgroundTask::Next::kRepeat;
  });
  policy_watcher_->Start();
  for (const auto& watcher : {&access_watcher_, &grpc_tls_watcher_, &http_tls_watcher_}) {
    if (*watcher != nullptr) (*watcher)->Start();
  }
  LogWhoMayCall();
  CheckCertificates();
  for (const std::string& address : rpc_->addresses()) logger_->Info("grpc_listening", {{"address", address}});
  logger_->Info("started", {{"http_port", http_->port()},
                            {"policies", policies_->Current()->policy_count()},
                            {"tenants", policies_->Current()->tenant_count()}});
  if (options_.warm_up <= absl::ZeroDuration()) {
    EnterState(State::kReady);
    return absl::OkStatus();
  }
  EnterState(State::kWarmingUp);
  warm_up_ = std::make_unique<BackgroundTask>("warm-up", options_.warm_up, [this] {
    EnterState(State::kReady);
    return BackgroundTask::Next::kEnd;
  });
  return absl::OkStatus();
}

absl::Status Server::StartHttp() {
  const auto ready = [this] {
    switch (state_) {
      case State::kStarting:
        return absl::UnavailableError("starting");
      case State::kWarmingUp:
        return absl::UnavailableError("warming up");
      case State::kReady:
        return absl::OkStatus();
      case State::kDraining:
        return absl::UnavailableError("draining");
    }
    return absl::OkStatus();
  };
  HttpServerOptions options;
  options.address = options_.http_address;
  options.tls = options_.http_tls.enabled() ? &http_tls_ : nullptr;
  HttpHandlers handlers = {.ready = ready, .metrics = [this] { return metrics_->Render(); }};
  const DebugPages* const pages = debug_pages_.get();
  handlers.pages = {{"/debug/config", [pages](const HttpQuery& query) { return pages->Config(query); }},
                    {"/debug/policies", [pages](const HttpQuery& query) { return pages->Policies(query); }},
                    {"/debug/index", [pages](const HttpQuery& query) { return pages->Index(query); }}};
  handlers.access_observer = metrics_.get();
  handlers.connection_observer = http_connections_.get();
  if (!options_.http_tls.client_ca.empty()) metrics_->ShowRefusals();
  if (asks_callers()) handlers.admit = [this](const HttpCaller& caller) { return AdmitHttp(caller); };
  ASSIGN_OR_RETURN(http_, HttpServer::Start(options, std::move(handlers)));
  return absl::OkStatus();
}

absl::Status Server::StartRpc() {
  if (options_.log_level == LogLevel::kDebug) call_log_ = std::make_unique<CallLog>(logger_);
  RpcOptions options;
  options.addresses = options_.grpc_addresses;
  options.version = CompiledBuild().version;
  options.lookup_threads = options_.lookup_threads > 0
                               ? options_.lookup_threads
                               : std::clamp<int>(std::thread::hardware_concurrency(), 1, kMaxLookupThreads);
  options.ingest_threads = options_.ingest_threads;
  options.max_message_bytes = options_.max_message_bytes;
  options.max_recycled_message_bytes = options_.max_recycled_message_bytes;
  options.max_buffer_bytes = options_.max_buffer_bytes;
  options.max_unsent_bytes = options_.max_unsent_bytes;
  options.max_lookups_in_flight = static_cast<size_t>(options_.max_lookups_in_flight);
  options.keepalive_time = options_.keepalive_time;
  options.keepalive_timeout = options_.keepalive_timeout;
  options.min_ping_interval = options_.min_ping_interval;
  options.max_connection_age = options_.max_connection_age;
  options.max_connection_age_grace = options_.max_connection_age_grace;
  TellOfRefusals(grpc_connections_.get());
  ASSIGN_OR_RETURN(rpc_, RpcServer::Start(options, {.router = router_.get(),
                                                    .index = index_.get(),
                                                    .clock = clock_,
                                                    .events = events_.get(),
                                                    .metrics = [this] { return metrics_->Samples(); },
                                                    .ingest_observer = metrics_.get(),
                                                    .tls = options_.grpc_tls.enabled() ? &grpc_tls_ : nullptr,
                                                    .access = asks_callers() ? &access_ : nullptr,
                                                    .access_observer = metrics_.get(),
                                                    .call_observer = call_log_.get(),
                                                    .connection_observer = grpc_connections_.get()}));
  return absl::OkStatus();
}

const std::vector<std::string>& Server::grpc_addresses() const { return rpc_->addresses(); }
int Server::http_port() const { return http_->port(); }

void Server::EnterState(State state) {
  state_ = state;
  const bool ready = state == State::kReady;
  rpc_->SetServing(ready);
  metrics_->SetServing(ready);
  if (ready) logger_->Info("ready");
}

void Server::OnPolicyReload(const PolicyReload& reload) {
  metrics_->RecordPolicyReload(reload.status.ok());
  debug_pages_->RecordPolicyLoad(reload.status);
  if (reload.status.ok()) {
    logger_->Info("policies_reloaded", {{"policies", reload.policy_count}, {"tenants", reload.tenant_count}});
  } else {
    logger_->Error("policies_refused", {{"problems", TextOf(reload.status)}});
  }
}

absl::Status Server::WatchCallers() {
  if (!asks_callers()) return absl::OkStatus();
  const auto on_reload = [this](const absl::Status& status) {
    metrics_->RecordAccessReload(status.ok());
    if (status.ok()) {
      logger_->Info("access_reloaded", {{"grants", access_.Current()->grant_count()}});
    } else {
      logger_->Error("access_refused", {{"problems", TextOf(status)}});
    }
  };
  ASSIGN_OR_RETURN(access_watcher_, WatchAccess(options_.access_path, options_.client_certificates(),
                                                options_.policy_poll_interval, &access_, clock_, on_reload));
  metrics_->RecordAccessLoad();
  return absl::OkStatus();
}

void Server::LogWhoMayCall() const {
  if (asks_callers()) {
    logger_->Info("callers_are_asked", {{"grants", access_.Current()->grant_count()}});
    return;
  }
  for (const Listener listener : {Listener::kGrpc, Listener::kHttp}) {
    const TlsFiles& files = listener == Listener::kGrpc ? options_.grpc_tls : options_.http_tls;
    logger_->Info(files.client_ca.empty() ? "open_to_all" : "open_to_all_with_a_certificate",
                  {{"listener", NameOf(listener)}, {"because", "no access.path"}});
  }
}

absl::Status Server::AdmitHttp(const HttpCaller& caller) {
  const std::vector<std::string_view> names(caller.certificate_names.begin(), caller.certificate_names.end());
  const std::shared_ptr<const AccessRules> rules = access_.Current();
  const absl::StatusOr<Caller> known =
      Caller::Identify(*rules, {.authorization = caller.authorization, .certificate_names = names});
  return known.ok() ? known->MayForAll(Role::kAdmin) : known.status();
}

absl::StatusOr<std::unique_ptr<FileWatcher>> Server::WatchTls(Listener listener, const TlsFiles& files,
                                                              Published<TlsIdentity>* identity) {
  if (!files.enabled()) return nullptr;
  const auto on_reload = [this, listener, identity](const absl::Status& status) {
    metrics_->RecordTlsReload(listener, status.ok());
    if (status.ok()) {
      const absl::Time expires_at = identity->Current()->expires_at;
      metrics_->RecordTlsLoad(listener, expires_at);
      logger_->Info("tls_reloaded",
                    {{"listener", NameOf(listener)}, {"expires", absl::FormatTime(expires_at, absl::UTCTimeZone())}});
      CheckCertificates();
    } else {
      logger_->Error("tls_refused", {{"listener", NameOf(listener)}, {"problem", TextOf(status)}});
    }
  };
  ASSIGN_OR_RETURN(std::unique_ptr<FileWatcher> watcher,
                   WatchTlsIdentity(files, options_.policy_poll_interval, identity, clock_, on_reload,
                                    listener == Listener::kHttp ? &CheckHttpIdentity : nullptr));
  metrics_->RecordTlsLoad(listener, identity->Current()->expires_at);
  return watcher;
}

void Server::CheckCertificates() {
  if (options_.grpc_tls.enabled()) grpc_alarm_->Check(*grpc_tls_.Current(), clock_->Now());
  if (options_.http_tls.enabled()) http_alarm_->Check(*http_tls_.Current(), clock_->Now());
}

void Server::Reload() {
  for (const auto& watcher : {&policy_watcher_, &access_watcher_, &grpc_tls_watcher_, &http_tls_watcher_}) {
    if (*watcher != nullptr) (*watcher)->RequestReload();
  }
}

void Server::Drain() {
  if (state_ == State::kDraining) return;
  warm_up_.reset();
  EnterState(State::kDraining);
  logger_->Info("draining");
}

void Server::Shutdown(absl::Duration grace) {
  if (rpc_ == nullptr) return;
  Drain();
  rpc_->Shutdown(grace);
  for (const auto& watcher : {&policy_watcher_, &access_watcher_, &grpc_tls_watcher_, &http_tls_watcher_}) {
    if (*watcher != nullptr) (*watcher)->Stop();
  }
  sweeper_.reset();
  http_->Stop();
  rpc_.reset();
  TellOfRefusals(nullptr);
  logger_->Info("stopped");
}

}  // namespace icache
