// top: the daemon at work, refreshed in place.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ctl/metrics_page.h"
#include "ctl/settings.h"
#include "ctl/table.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

// What is known at one moment.
struct TopSample {
  absl::Time time;
  MetricsPage metrics;
  inferencecache::v1alpha1::GetCacheStateResponse state;  // of the settings' tenant and model, if they name one
  std::string state_problem;  // why `state` could not be had: a token may do for no more than the metrics
};

// What happened between two samples, and what is so at the later one.
struct TopFigures {
  double calls_per_s = 0;
  std::map<std::string, double> calls_per_s_by_reason;  // all reasons seen since the start
  std::optional<double> p50_us, p99_us;                 // upper bounds from the histogram; nullopt without calls
  double updates_per_s = 0;
  double evictions_per_s = 0;
  int64_t prefixes = 0;
  int64_t entries = 0;
  int64_t index_bytes = 0;
  int64_t resident_bytes = 0;
  inferencecache::v1alpha1::GetCacheStateResponse state;
  std::string state_problem;
};
TopFigures Compare(const TopSample& before, const TopSample& now);

// The screen: at most `height` lines of at most `style.width` columns, 0 = unlimited.
std::vector<std::string> TopScreen(const Settings& settings, const TopFigures& figures, absl::Time now, size_t height,
                                   const Style& style);

// Draws until q or a signal of interrupt.h, or `count` times when that is not 0; every `interval`. Where standard
// output is no terminal, screens follow one another; in the machines' formats, one object a refresh. True. Errors:
// those of the first sample's metrics; later ones are shown on the screen.
absl::StatusOr<bool> RunTop(const Settings& settings, absl::Duration interval, int count);

}  // namespace icache
