// BridgeOptions: everything that icache-bridge is told at start, resolved from defaults, the config file and the flags.
//
// Each field is one key of config/bridge.yaml and one flag; options.cc lists them. All are fixed at start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/engine/block_ledger.h"
#include "icache/engine/engine_metrics.h"
#include "icache/telemetry/logging.h"

namespace icache {

// One engine, or a group of data-parallel ranks that share a name.
struct EngineOptions {
  EngineKind kind = EngineKind::kVllm;
  std::string model;        // model_id; required
  std::string tenant;       // tenant_id; default: POD_NAMESPACE from the environment
  std::string replica;      // replica_id; default: the host's name
  std::string hash_scheme;  // default: the engine's kind

  // tcp://HOST:PORT or ipc://PATH of the event socket; required. Bound when the host is `*`, else connected to. Rank N
  // is N ports further on.
  std::string events;
  std::string replay;  // likewise, of the replay socket, which is always connected to; "" = there is none
  std::string topic;   // prefix of the topics to take; "" = all
  int32_t ranks = 1;   // data-parallel ranks, 1 to 256

  std::string metrics_url;      // http://…/metrics; "" = no stats
  std::string metrics_model;    // the model_name of the engine's metrics; default: model
  int64_t cache_bytes = 0;      // size of the KV cache; 0 = unknown
  int64_t max_concurrency = 0;  // requests at which the engine is full; 0 = unknown
  int32_t gone_after = 3;       // failed scrapes in a row, with the event socket lost, after which it is gone

  int32_t block_size = 0;                              // tokens; blocks of another size are dropped. 0 = any
  absl::flat_hash_map<int64_t, std::string> adapters;  // lora_id -> adapter name
  GpuRemoval gpu_removal = GpuRemoval::kEvict;
  size_t max_blocks = 4'000'000;  // held by one replica; more are dropped
};

// Which of the wire's extension fields a daemon understands.
enum class WireChoice {
  kAuto,      // ask it
  kExtended,  // all
  kBase,      // none
};

struct ReportOptions {
  std::vector<std::string> daemons;  // "HOST:PORT", or "dns:NAME:PORT" for all that the name resolves to; required
  WireChoice wire = WireChoice::kAuto;
  bool tls = false;
  std::string tls_ca_file;    // "" = the system's
  std::string tls_cert_file;  // of this client, with its key; "" = none
  std::string tls_key_file;
  std::string tls_server_name;  // expected in the daemon's certificate; "" = the address's host
  std::string token_file;       // holds the bearer token, read at each connection; "" = none

  absl::Duration batch_interval = absl::Milliseconds(5);  // longest wait of a change for others
  size_t batch_blocks = 4096;                             // changes that are reported at once
  size_t max_queued_blocks = 1 << 18;  // changes waiting for one daemon and replica; beyond, it gets everything anew
  absl::Duration lease_interval = absl::Seconds(10);  // at most a third of the TTL
  absl::Duration stats_interval = absl::Seconds(5);
  absl::Duration ttl = absl::Minutes(30);  // the daemons' for the tenant
  absl::Duration resolve_interval = absl::Seconds(10);
  absl::Duration write_timeout = absl::Seconds(10);  // a daemon that takes nothing for so long is cut off
  bool clear_on_exit = false;
};

struct BridgeOptions {
  std::string http_address = "0.0.0.0:8081";
  LogSeverity log_level = LogSeverity::kInfo;
  bool log_json = false;
  ReportOptions report;
  std::vector<EngineOptions> engines;  // at least one
};

struct BridgeCommandLine {
  // When set (--help, --version): print it to standard output and exit 0. The rest means nothing then.
  std::optional<std::string> text;
  bool validate_only = false;
  BridgeOptions options;
};

// What an option's default is taken from.
struct BridgeEnvironment {
  std::string host_name;
  std::string pod_namespace;  // "" = not known

  static BridgeEnvironment OfProcess();
};

// Resolves defaults, then the file that --config names, then the other flags; a later one wins, of a list as a whole.
// Flags of an engine, and the file's `engine:`, are the defaults of every item of its `engines:`; without that list
// they are the one engine.
//
// Errors: InvalidArgument whose message has every problem, one per line, as `file:line:column: key: message` or
// `--flag: message`. The process should exit 2.
absl::StatusOr<BridgeCommandLine> ParseBridgeCommandLine(int argc, const char* const* argv,
                                                         const BridgeEnvironment& environment);

// `endpoint`, of rank 0, for another rank: that many ports further on. Requires a valid endpoint, with a port unless
// the rank is 0.
std::string EndpointOfRank(const std::string& endpoint, int32_t rank);
// Whether the endpoint names no peer, so that it has to be bound.
bool IsBindEndpoint(std::string_view endpoint);

}  // namespace icache
