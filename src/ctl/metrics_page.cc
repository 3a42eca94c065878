#include "ctl/metrics_page.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "icache/base/prometheus_text.h"
#include "icache/scrape/page_fetcher.h"

namespace icache {
namespace {

constexpr size_t kMaxPageBytes = 64 << 20;
constexpr std::string_view kAlwaysThere = "inferencecache_build_info";

}  // namespace

MetricsPage ReadMetrics(std::string_view text) {
  MetricsPage page;
  ForEachSample(text, [&page](const PrometheusSample& read) {
    if (!std::isfinite(read.value)) return;
    MetricSample& sample = page[std::string(read.name)].emplace_back();
    sample.value = read.value;
    ForEachLabel(read.labels, [&](std::string_view name, std::string value) {
      sample.labels[std::string(name)] = std::move(value);
    });
  });
  return page;
}

absl::StatusOr<MetricsPage> FetchMetrics(const Settings& settings, std::function<bool()> stopping) {
  const bool tls = settings.http_address.rfind(kHttps, 0) == 0;
  const std::string url = (tls ? "" : "http://") + settings.http_address + "/metrics";
  PageFetcher fetcher({.max_page_bytes = kMaxPageBytes,
                       .ca_file = settings.tls_ca == "system" ? "" : settings.tls_ca,
                       .certificate_file = settings.tls_cert,
                       .key_file = settings.tls_key});
  const absl::StatusOr<std::string> text = fetcher.Fetch(url, settings.Timeout(), std::move(stopping));
  if (!text.ok()) {
    return absl::UnavailableError(fmt::format(
        "{}: {}\nCheck that icached runs and serves HTTP there (--http-address; the daemon's http.address), and over "
        "TLS where that begins with https:// (--tls-ca).",
        url, std::string(text.status().message())));
  }
  MetricsPage page = ReadMetrics(*text);
  if (page.contains(kAlwaysThere)) return page;
  return absl::UnavailableError(
      fmt::format("{}: is no page of icached's metrics\nCheck that --http-address is the daemon's http.address.", url));
}

double SumOf(const MetricsPage& page, std::string_view series) {
  const auto found = page.find(series);
  double sum = 0;
  if (found == page.end()) return sum;
  for (const MetricSample& sample : found->second) sum += sample.value;
  return sum;
}

std::map<std::string, double> SumsBy(const MetricsPage& page, std::string_view series, const std::string& label) {
  std::map<std::string, double> sums;
  const auto found = page.find(series);
  if (found == page.end()) return sums;
  for (const MetricSample& sample : found->second) {
    const auto value = sample.labels.find(label);
    if (value != sample.labels.end()) sums[value->second] += sample.value;
  }
  return sums;
}

}  // namespace icache
