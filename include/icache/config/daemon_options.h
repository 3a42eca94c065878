// DaemonOptions: everything that icached is told at start, resolved from defaults, the config file and the flags.
//
// Each field is one key of config/icached.yaml and one flag (src/config/settings.cc lists them). All are fixed at
// start; what can change while the daemon runs lives in the policies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/string_map.h"
#include "icache/config/access_loader.h"
#include "icache/config/tls_loader.h"
#include "icache/index/sharded_index.h"
#include "icache/routing/router.h"

namespace icache {

// Where values that are no defaults come from, by key: "FILE:LINE:COLUMN: KEY" or "--FLAG".
using Origins = StringMap<std::string>;

enum class LogLevel { kDebug, kInfo, kWarn, kError };
enum class LogFormat { kText, kJson };

struct DaemonOptions {
  // Where gRPC listens: "HOST:PORT" or "unix:/path". At least one. Port 0 takes a free port.
  std::vector<std::string> grpc_addresses = {"0.0.0.0:9090"};
  TlsFiles grpc_tls;                          // clients must have a certificate if a client CA is named
  std::string http_address = "0.0.0.0:8080";  // "HOST:PORT"; /healthz, /readyz, /metrics
  TlsFiles http_tls;                          // likewise, but for the three paths above
  std::string access_path;                    // a file or a folder of grants; "" = everybody may do everything
  std::string policy_path;                    // a file or a folder of policies; "" = every tenant has the defaults

  RouterOptions router;
  IndexOptions index;
  absl::Duration default_ttl = absl::Minutes(30);     // > 0; of tenants whose policy names none
  absl::Duration sweep_interval = absl::Seconds(60);  // >= 10 ms; the first sweep comes one interval after the start
  absl::Duration policy_poll_interval =
      absl::Milliseconds(250);  // 10 to 500 ms; how often policies, TLS files and grants are looked at

  int32_t lookup_threads = 0;                            // completion queues for lookups, 1 to 256; 0 = one per core
  int32_t ingest_threads = 1;                            // completion queues for observations, 1 to 64
  int64_t max_message_bytes = 16 << 20;                  // of one request, 1 KiB to 1 GiB; a larger one fails, alone
  int64_t max_recycled_message_bytes = 256 << 10;        // a request object that grew beyond it is freed after its call
  int64_t max_buffer_bytes = int64_t{1} << 30;           // that gRPC may hold of requests and answers in transit
  int64_t max_unsent_bytes = int64_t{256} << 20;         // that answers which nobody reads may hold
  int64_t max_lookups_in_flight = 1'024;                 // more are answered NO_HINT at once, 1 to 2^20
  int64_t max_observer_queue_events = 16'384;            // that an observer may be behind, 1 to 2^24
  absl::Duration keepalive_time = absl::Hours(2);        // idle time after which the server pings, >= 1 s
  absl::Duration keepalive_timeout = absl::Seconds(20);  // without an answer the connection is closed, >= 1 s
  absl::Duration min_ping_interval = absl::Seconds(10);  // clients that ping more often are sent away, >= 10 ms
  absl::Duration max_connection_age = absl::ZeroDuration();     // 0 = unlimited; spreads clients after a scale-up
  absl::Duration max_connection_age_grace = absl::Seconds(10);  // for calls in flight on an aged connection

  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;

  absl::Duration warm_up = absl::ZeroDuration();      // served but not ready for so long after the start
  absl::Duration drain_delay = absl::ZeroDuration();  // not ready but still served for so long after SIGTERM

  Origins origins;

  ClientCertificates client_certificates() const {
    const bool asked_for = !grpc_tls.client_ca.empty() || !http_tls.client_ca.empty();
    return asked_for ? ClientCertificates::kAskedFor : ClientCertificates::kNotAskedFor;
  }
};

// One setting as it is in force.
struct ResolvedSetting {
  std::string key;     // with its name, where it is one of several: "models.llama.block_size"
  std::string value;   // as the config file would spell it; a list joined by ", "
  std::string origin;  // an entry of Origins, or "default"
};

// All of them, in the order of docs/configuration.md. A setting of several names has a row for each. No value is
// secret: keys and tokens are in files, of which only the path is a setting.
std::vector<ResolvedSetting> ResolvedSettings(const DaemonOptions& options);

}  // namespace icache
