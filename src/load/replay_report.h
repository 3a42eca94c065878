// The outcome of a replay as text, as JSON and as a picture. Pure functions.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "load/latency_histogram.h"
#include "load/replay.h"

namespace icache {

// A replay with what the command around it knows.
struct ReplayOutcome {
  ReplayOptions options;
  std::string trace_path;
  int64_t trace_ms = 0;        // from the first request to the last
  int64_t index_prefixes = 0;  // what the daemon said it held at the end; ReplayResult::held_prefixes is the truth
  double wall_seconds = 0;     // of the replay itself
  LatencyHistogram report_ns = {};
  ReplayResult result = {};
};

std::string ReplayText(const ReplayOutcome& outcome);

// One object; docs/load.md lists its keys.
nlohmann::ordered_json ReplayJson(const ReplayOutcome& outcome);

// A self-contained SVG: the cumulative hit rate by policy over the trace, and the load of each engine.
std::string ReplaySvg(const ReplayOutcome& outcome);

}  // namespace icache
