#include "icache/telemetry/metrics_page.h"

#include <fmt/format.h>

#include <optional>

#include "absl/time/time.h"
#include "icache/base/utf8.h"
#include "prometheus/metric_family.h"
#include "prometheus/text_serializer.h"
#include "telemetry/process_stats.h"

namespace icache {
namespace {

constexpr size_t kMaxLabelBytes = 512;  // the longest name that an observation may carry

prometheus::ClientMetric& AddSample(std::vector<prometheus::MetricFamily>* families, MetricsPage::Labels labels) {
  prometheus::ClientMetric& metric = families->back().metric.emplace_back();
  for (auto& [name, value] : labels) metric.label.push_back({std::move(name), std::move(value)});
  return metric;
}

}  // namespace

struct MetricsPage::Families {
  std::vector<prometheus::MetricFamily> list;

  void Begin(prometheus::MetricType type, std::string name, std::string help) {
    list.push_back({std::move(name), std::move(help), type, {}});
  }
};

std::string LabelValue(std::string_view text) { return SanitizedUtf8(text, kMaxLabelBytes); }

MetricsPage::MetricsPage() : families_(std::make_unique<Families>()) {}
MetricsPage::~MetricsPage() = default;

MetricsPage& MetricsPage::Gauge(std::string name, std::string help) {
  families_->Begin(prometheus::MetricType::Gauge, std::move(name), std::move(help));
  return *this;
}
MetricsPage& MetricsPage::Counter(std::string name, std::string help) {
  families_->Begin(prometheus::MetricType::Counter, std::move(name), std::move(help));
  return *this;
}
MetricsPage& MetricsPage::Histogram(std::string name, std::string help) {
  families_->Begin(prometheus::MetricType::Histogram, std::move(name), std::move(help));
  return *this;
}

MetricsPage& MetricsPage::AddValue(double value, Labels labels) {
  prometheus::ClientMetric& metric = AddSample(&families_->list, std::move(labels));
  // Only the one of the family's type is read.
  metric.counter.value = metric.gauge.value = value;
  return *this;
}

MetricsPage& MetricsPage::AddHistogram(absl::Span<const Bucket> buckets, uint64_t count, double sum, Labels labels) {
  prometheus::ClientMetric::Histogram& target = AddSample(&families_->list, std::move(labels)).histogram;
  for (const Bucket& bucket : buckets) target.bucket.push_back({bucket.cumulative_count, bucket.upper_bound});
  target.sample_count = count;
  target.sample_sum = sum;
  return *this;
}

void MetricsPage::AddProcess() {
  static const std::optional<absl::Time> started_at = ReadProcessStartTime();
  const ProcessStats stats = ReadProcessStats();
  const auto add_if_known = [this](const auto& value) {
    if (value.has_value()) Add(*value);
  };
  Counter("process_cpu_seconds_total", "User and system CPU time spent.").Add(absl::ToDoubleSeconds(stats.cpu_time));
  Gauge("process_resident_memory_bytes", "Resident memory.");
  add_if_known(stats.resident_bytes);
  Gauge("process_virtual_memory_bytes", "Virtual memory.");
  add_if_known(stats.virtual_bytes);
  Gauge("process_open_fds", "Open file descriptors.");
  add_if_known(stats.open_fds);
  Gauge("process_max_fds", "Most file descriptors that may be open.").Add(stats.max_fds);
  Gauge("process_start_time_seconds", "Unix time at which the process started.");
  if (started_at.has_value()) Add(absl::ToDoubleSeconds(*started_at - absl::UnixEpoch()));
}

std::string MetricsPage::Text() const { return prometheus::TextSerializer().Serialize(families_->list); }

std::vector<MetricSample> MetricsPage::Samples() const {
  std::vector<MetricSample> samples;
  for (const prometheus::MetricFamily& family : families_->list) {
    const bool is_counter = family.type == prometheus::MetricType::Counter;
    const bool is_histogram = family.type == prometheus::MetricType::Histogram;
    const auto add = [&](const prometheus::ClientMetric& metric, const char* suffix, double value) -> MetricSample& {
      MetricSample& sample = samples.emplace_back();
      sample.family = family.name;
      sample.name = family.name + suffix;
      sample.type = is_histogram ? "histogram" : is_counter ? "counter" : "gauge";
      for (const auto& label : metric.label) sample.labels.emplace_back(label.name, label.value);
      sample.value = value;
      return sample;
    };
    for (const prometheus::ClientMetric& metric : family.metric) {
      if (!is_histogram) {
        add(metric, "", is_counter ? metric.counter.value : metric.gauge.value);
        continue;
      }
      const auto add_bucket = [&](const std::string& bound, uint64_t count) {
        add(metric, "_bucket", static_cast<double>(count)).labels.emplace_back("le", bound);
      };
      for (const auto& bucket : metric.histogram.bucket) {
        add_bucket(fmt::format("{}", bucket.upper_bound), bucket.cumulative_count);
      }
      add_bucket("+Inf", metric.histogram.sample_count);
      add(metric, "_sum", metric.histogram.sample_sum);
      add(metric, "_count", static_cast<double>(metric.histogram.sample_count));
    }
  }
  return samples;
}

}  // namespace icache
