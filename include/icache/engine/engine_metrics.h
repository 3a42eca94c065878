// An engine's own metrics -> what its replicas report as stats.
//
// Pure functions and a small state. Source: contract/engine-events.md "Engine metrics".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/statusor.h"

namespace icache {

enum class EngineKind { kVllm, kSglang };

// "vllm" or "sglang": also the hash scheme that its fingerprints go by.
std::string_view EngineKindName(EngineKind kind);

// One scrape. Counts are summed over the samples of a name, ratios are the largest.
struct EngineLoad {
  double running = 0;              // requests
  double waiting = 0;              // requests
  std::optional<double> usage;     // of the KV cache, 0..1
  std::optional<double> hit_rate;  // where the engine computes it
  std::optional<double> hits;      // tokens since its start, where it counts them
  std::optional<double> queries;
  std::optional<double> t2_hits;
  std::optional<double> t2_queries;
};

// Reads a page in the Prometheus text format. Of several model_name labels only `model`'s count. O(text). Errors:
// Unavailable without the gauges of running and waiting requests, or with a load gauge that is no finite number.
absl::StatusOr<EngineLoad> ReadEngineLoad(std::string_view page, EngineKind kind, std::string_view model);

struct EngineStats {
  int64_t cache_memory_bytes = 0;
  float hit_rate = 0;
  float pressure = 0;  // 0..1
  int64_t t2_hit_tokens = 0;
  int64_t t2_query_tokens = 0;
};

// Turns one scrape after another into stats. Thread-compatible.
class EngineStatsReader {
 public:
  // `cache_bytes`: the size of the KV cache; `max_concurrency`: requests at which the engine is full. 0 = unknown, and
  // what depends on it stays 0.
  EngineStatsReader(int64_t cache_bytes, int64_t max_concurrency)
      : cache_bytes_(cache_bytes), max_concurrency_(max_concurrency) {}

  EngineStats Read(const EngineLoad& load);

 private:
  const int64_t cache_bytes_;
  const int64_t max_concurrency_;
  std::optional<double> last_hits_;
  std::optional<double> last_queries_;
  double hit_rate_ = 0;
};

}  // namespace icache
