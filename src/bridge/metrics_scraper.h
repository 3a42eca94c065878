// MetricsScraper: reads an engine's /metrics every so often, on a thread of its own. Thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/options.h"
#include "icache/base/mutex.h"
#include "icache/base/stop_signal.h"
#include "icache/engine/engine_metrics.h"

namespace icache {

class MetricsScraper {
 public:
  // `options` must outlive it, and have a metrics_url.
  MetricsScraper(const EngineOptions* options, absl::Duration interval);
  ~MetricsScraper();
  MetricsScraper(const MetricsScraper&) = delete;
  MetricsScraper& operator=(const MetricsScraper&) = delete;

  // Says that it is to end, which the destructor then waits for.
  void BeginStop() { stop_.Give(); }
  // What the last scrape said; each once.
  std::optional<EngineStats> TakeStats() ABSL_LOCKS_EXCLUDED(mutex_);
  // Failed scrapes in a row, and since the start.
  int failures_in_a_row() const ABSL_LOCKS_EXCLUDED(mutex_);
  int64_t failures() const ABSL_LOCKS_EXCLUDED(mutex_);
  // Why the last one that failed did; "" before it.
  std::string last_failure() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);

  const EngineOptions* const options_;
  const absl::Duration interval_;
  StopSignal stop_;
  mutable Mutex mutex_;
  std::optional<EngineStats> stats_ ABSL_GUARDED_BY(mutex_);
  int failures_in_a_row_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t failures_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string last_failure_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last
};

}  // namespace icache
