#include "ctl/metrics_page.h"

#include <curl/curl.h>
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"

namespace icache {
namespace {

constexpr size_t kMaxPageBytes = 64 << 20;
constexpr std::string_view kAlwaysThere = "inferencecache_build_info";

// Takes `{name="value",…}` off the front of `line`; nullopt when it is malformed.
std::optional<std::map<std::string, std::string>> TakeLabels(std::string_view* line) {
  std::map<std::string, std::string> labels;
  if (line->empty() || line->front() != '{') return labels;
  line->remove_prefix(1);
  while (true) {
    const size_t begin = line->find_first_not_of(" ,");
    if (begin == std::string_view::npos) return std::nullopt;
    line->remove_prefix(begin);
    if (line->front() == '}') {
      line->remove_prefix(1);
      return labels;
    }
    const size_t equals = line->find("=\"");
    if (equals == std::string_view::npos) return std::nullopt;
    std::string& value = labels[std::string(line->substr(0, equals))];
    size_t at = equals + 2;
    for (; at < line->size() && (*line)[at] != '"'; ++at) {
      const bool escaped = (*line)[at] == '\\' && at + 1 < line->size();
      if (escaped) ++at;
      value += escaped && (*line)[at] == 'n' ? '\n' : (*line)[at];
    }
    if (at == line->size()) return std::nullopt;
    line->remove_prefix(at + 1);
  }
}

size_t AppendTo(char* data, size_t one, size_t size, void* page) {
  auto* const text = static_cast<std::string*>(page);
  if (text->size() + size > kMaxPageBytes) return 0;  // ends the transfer
  text->append(data, one * size);
  return size;
}

}  // namespace

MetricsPage ReadMetrics(std::string_view text) {
  MetricsPage page;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t name_end = line.find_first_of("{ ");
    if (line.empty() || line.front() == '#' || name_end == std::string_view::npos) continue;
    const std::string_view name = line.substr(0, name_end);
    line.remove_prefix(name_end);
    std::optional<std::map<std::string, std::string>> labels = TakeLabels(&line);
    const size_t begin = line.find_first_not_of(' ');
    if (!labels.has_value() || begin == std::string_view::npos) continue;
    const std::string_view number = line.substr(begin, line.find_first_of(" \r", begin) - begin);
    double value = 0;
    if (!absl::SimpleAtod(absl::string_view(number.data(), number.size()), &value)) continue;
    if (!std::isfinite(value)) continue;
    page[std::string(name)].push_back({*std::move(labels), value});
  }
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
