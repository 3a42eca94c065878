#include "ctl/metrics_page.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <utility>

#include "icache/base/prometheus_text.h"

namespace icache {
namespace {

constexpr size_t kMaxPageBytes = 64 << 20;
constexpr std::string_view kAlwaysThere = "inferencecache_build_info";

size_t AppendTo(char* data, size_t one, size_t size, void* page) {
  auto* const text = static_cast<std::string*>(page);
  if (text->size() + size > kMaxPageBytes) return 0;  // ends the transfer
  text->append(data, one * size);
  return size;
}

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

absl::StatusOr<MetricsPage> FetchMetrics(const Settings& settings) {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  const bool tls = settings.http_address.rfind(kHttps, 0) == 0;
  const std::string url = (tls ? "" : "http://") + settings.http_address + "/metrics";
  std::string text;
  curl_easy_setopt(curl.get(), CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl.get(), CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl.get(), CURLOPT_PROXY, "");
  curl_easy_setopt(curl.get(), CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(settings.Timeout())));
  curl_easy_setopt(curl.get(), CURLOPT_WRITEFUNCTION, &AppendTo);
  curl_easy_setopt(curl.get(), CURLOPT_WRITEDATA, &text);
  if (!settings.tls_ca.empty() && settings.tls_ca != "system") {
    curl_easy_setopt(curl.get(), CURLOPT_CAINFO, settings.tls_ca.c_str());
  }
  if (!settings.tls_cert.empty()) {
    curl_easy_setopt(curl.get(), CURLOPT_SSLCERT, settings.tls_cert.c_str());
    curl_easy_setopt(curl.get(), CURLOPT_SSLKEY, settings.tls_key.c_str());
  }
  const CURLcode code = curl_easy_perform(curl.get());
  if (code == CURLE_OK) {
    MetricsPage page = ReadMetrics(text);
    if (page.contains(kAlwaysThere)) return page;
    return absl::UnavailableError(fmt::format(
        "{}: is no page of icached's metrics\nCheck that --http-address is the daemon's http.address.", url));
  }
  return absl::UnavailableError(fmt::format(
      "{}: {}\nCheck that icached runs and serves HTTP there (--http-address; the daemon's http.address), and over TLS "
      "where that begins with https:// (--tls-ca).",
      url, curl_easy_strerror(code)));
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
