// The daemon's /metrics: fetched and read.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/settings.h"

namespace icache {

// One sample of a series.
struct MetricSample {
  std::map<std::string, std::string> labels;
  double value = 0;
};

// Series by name. A histogram is three of them: NAME_bucket, NAME_sum and NAME_count.
using MetricsPage = std::map<std::string, std::vector<MetricSample>, std::less<>>;

// Reads the Prometheus text format. Lines that are none, and values that are not finite, are left out. O(text).
MetricsPage ReadMetrics(std::string_view text);

// The page at http://HTTP_ADDRESS/metrics, or over TLS, with the settings' files, where the address begins with
// "https://". Gives up soon after `stopping` holds. Errors: Unavailable, with what to do; also when the page is no
// daemon's.
absl::StatusOr<MetricsPage> FetchMetrics(const Settings& settings, std::function<bool()> stopping);

// Sums of a series: all samples, or by the value of one label. 0 and nothing for a series that is not there.
double SumOf(const MetricsPage& page, std::string_view series);
std::map<std::string, double> SumsBy(const MetricsPage& page, std::string_view series, const std::string& label);

}  // namespace icache
