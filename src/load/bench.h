// `icache-load bench`: a chosen mix of lookups at full speed or at a chosen rate, with ingest beside them if wanted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "load/connection.h"
#include "load/lookup_call.h"
#include "load/lookup_tally.h"
#include "load/workload.h"

namespace icache {

struct BenchOptions {
  Target target{.tenant = "bench", .model = "bench-model"};
  WorkloadOptions workload;
  size_t connections = 4;   // each a TCP connection of its own, >= 1
  size_t concurrency = 16;  // calls in flight at once over all connections, >= connections
  LookupMode mode = LookupMode::kUnary;
  bool fill = true;    // report the chains first, or else only ask for them
  bool clear = true;   // clear at the end what was reported
  size_t threads = 1;  // completion queues that drive them, 1 to connections
  double rate = 0;     // lookups a second, in an open loop; 0 = as fast as answers come, in a closed loop
  absl::Duration warm_up = absl::Seconds(1);    // that comes before what is measured, >= 0
  absl::Duration duration = absl::Seconds(10);  // of what is measured, > 0
  int64_t requests = 0;                         // to measure, in place of `duration`; 0 = by duration
  double ingest_blocks_per_s = 0;               // beside the lookups; 0 = none
  std::string json_path;                        // "-" is standard output, in place of the text; "" = none
};

struct BenchResult {
  LookupTally lookups;
  double seconds = 0;              // from the start of what is measured to its last answer
  double ingest_blocks_per_s = 0;  // written

  double LookupsPerSecond() const { return seconds > 0 ? static_cast<double>(lookups.Answered()) / seconds : 0; }
};

// Fills the daemon, runs the mix, and clears what it filled in.
// Errors: those of connecting and of reports. Lookups that fail are counted in the result.
absl::StatusOr<BenchResult> Bench(const BenchOptions& options);

std::string BenchText(const BenchOptions& options, const BenchResult& result);
// One object; docs/load.md lists its keys.
nlohmann::ordered_json BenchJson(const BenchOptions& options, const BenchResult& result);

// Bench() and the printing. Errors: those of Bench(); Unavailable when no lookup was answered.
absl::Status RunBench(const BenchOptions& options);

}  // namespace icache
