// MetricsPage: a /metrics page, built from values at each scrape. The Prometheus library only gives it its text form.
//
//   page.Gauge("queue_depth", "Updates waiting.").Add(3, {{"daemon", "a"}}).Add(0, {{"daemon", "b"}});
//
// Every family that is begun is shown, with samples or without.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "icache/base/metric_sample.h"

namespace icache {

// Any bytes as a label's value: what is no UTF-8 is replaced, what is long is cut.
std::string LabelValue(std::string_view text);

// Thread-compatible.
class MetricsPage {
 public:
  using Labels = std::vector<std::pair<std::string, std::string>>;
  struct Bucket {
    uint64_t cumulative_count = 0;
    double upper_bound = 0;
  };

  MetricsPage();
  ~MetricsPage();
  MetricsPage(const MetricsPage&) = delete;
  MetricsPage& operator=(const MetricsPage&) = delete;

  // Each begins a family; Add* puts a sample into the one begun last.
  MetricsPage& Gauge(std::string name, std::string help);
  MetricsPage& Counter(std::string name, std::string help);
  MetricsPage& Histogram(std::string name, std::string help);
  template <typename Number>
  MetricsPage& Add(Number value, Labels labels = {}) {
    return AddValue(static_cast<double>(value), std::move(labels));
  }
  MetricsPage& AddHistogram(absl::Span<const Bucket> buckets, uint64_t count, double sum, Labels labels);

  // The process_* series of this process.
  void AddProcess();

  // The page, in the Prometheus text format 0.0.4.
  std::string Text() const;
  // The same as values: a histogram as its _bucket series, its _sum and its _count.
  std::vector<MetricSample> Samples() const;

 private:
  struct Families;
  MetricsPage& AddValue(double value, Labels labels);

  const std::unique_ptr<Families> families_;
};

}  // namespace icache
