// Replay: a request trace played against simulated engines, routed by a daemon's hints and, beside it, by three
// policies that ask nobody. All four see the same requests in the same order, each with engines of its own:
//
//   hints        the rows of the daemon's answer, ranked by their worth, under the load cap
//   round robin  each engine in turn
//   best match   the engine that truly holds most of the prompt, blind to load
//   oracle       the same truth for every engine, used like the daemon's rows, under the load cap
//
// EngineChooser says exactly how an engine is chosen. An engine's cache takes in a request's prompt at once and as a
// whole; tokens that the engine generates are not cached.
//
// After every request the engine that served it reports the blocks it stored and evicted, and at every
// `report_interval_ms` of trace time each engine reports its stats and renews its lease. A report is in force before
// the next question, so the outcome depends on the trace and the options alone; only the latencies differ between runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "load/fleet.h"
#include "load/hint_source.h"
#include "load/latency_histogram.h"
#include "load/trace_line.h"

namespace icache {

struct ReplayOptions {
  FleetOptions fleet;
  double load_cap = 1.5;                // an engine above this multiple of the mean recent load is passed over, >= 1
  int64_t report_interval_ms = 10'000;  // of stats and leases, in trace time, >= 1
  // Prompt tokens that an engine computes in a second at full use, > 0. An engine's pressure is its recent load over
  // what it could have computed in the load window, at most 1.
  double engine_tokens_per_s = 20'000;
};

// A point of the curve "prompt tokens reused so far over prompt tokens so far".
struct HitRatePoint {
  int64_t time_ms = 0;
  double hit_rate = 0;
};

struct PolicyResult {
  std::string policy;
  FleetTotals totals;
  std::vector<int64_t> computed_tokens;  // by engine
  std::vector<HitRatePoint> curve;       // at most kCurvePoints + 1, in order of time
};
inline constexpr size_t kCurvePoints = 400;

struct ReplayResult {
  std::vector<PolicyResult> policies;  // in the order of the list above
  std::map<std::string, int64_t> reason_codes;
  int64_t rows_checked = 0;  // rows of PREFIX_MATCH answers, compared with what their engine held at that moment
  int64_t rows_wrong = 0;    // of them, those that named another number of tokens
  int64_t reports = 0;
  int64_t reported_blocks = 0;  // in the chains of the reports
  int64_t held_prefixes = 0;    // distinct blocks that the engines of `hints` hold at the end
  LatencyHistogram round_trip_ns;
  LatencyHistogram server_us;
};

// Plays `trace` in order. Every engine starts with a clear. `progress` is called after each request.
// Errors: those of `hints`. Requires: a trace that is not empty.
absl::StatusOr<ReplayResult> Replay(const ReplayOptions& options, absl::Span<const TraceRequest> trace,
                                    HintSource* hints, absl::FunctionRef<void()> progress);

}  // namespace icache
