#include "bridge/metrics_scraper.h"

#include <curl/curl.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <utility>

namespace icache {
namespace {

constexpr size_t kMaxPageBytes = 16 << 20;
constexpr absl::Duration kLongestScrape = absl::Seconds(5);

size_t AppendTo(char* data, size_t one, size_t size, void* page) {
  auto* text = static_cast<std::string*>(page);
  if (text->size() + size > kMaxPageBytes) return 0;  // ends the transfer
  text->append(data, one * size);
  return size;
}

int Abort(void* stopping, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<std::function<bool()>*>(stopping))() ? 1 : 0;
}

// The page at `url`. Errors: Unavailable, with the cause.
absl::StatusOr<std::string> Fetch(CURL* curl, const std::string& url, absl::Duration timeout,
                                  std::function<bool()> stopping) {
  std::string page;
  char cause[CURL_ERROR_SIZE] = "";
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // waits for no name at the end
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(timeout)));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &AppendTo);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &page);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Abort);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &stopping);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, cause);
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_OK) return page;
  return absl::UnavailableError(cause[0] != '\0' ? cause : curl_easy_strerror(code));
}

}  // namespace

MetricsScraper::MetricsScraper(const EngineOptions* options, absl::Duration interval)
    : options_(options), interval_(interval), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "scraper");
}

MetricsScraper::~MetricsScraper() {
  BeginStop();
  thread_.join();
}

void MetricsScraper::BeginStop() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
}

bool MetricsScraper::stopping() const {
  MutexLock lock(&mutex_);
  return stopping_;
}

void MetricsScraper::Run() {
  const std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl(curl_easy_init(), &curl_easy_cleanup);
  EngineStatsReader reader(options_->cache_bytes, options_->max_concurrency);
  while (true) {
    const auto next = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval_);
    const absl::StatusOr<std::string> page =
        Fetch(curl.get(), options_->metrics_url, std::min(interval_, kLongestScrape), [this] { return stopping(); });
    const absl::StatusOr<EngineLoad> load =
        page.ok() ? ReadEngineLoad(*page, options_->kind, options_->metrics_model) : page.status();
    MutexLock lock(&mutex_);
    if (load.ok()) {
      stats_ = reader.Read(*load);
      failures_in_a_row_ = 0;
    } else {
      ++failures_in_a_row_;
      ++failures_;
      last_failure_ = std::string(load.status().message());
    }
    while (!stopping_ && stopped_.wait_until(mutex_, next) != std::cv_status::timeout) {
    }
    if (stopping_) return;
  }
}

std::optional<EngineStats> MetricsScraper::TakeStats() {
  MutexLock lock(&mutex_);
  return std::exchange(stats_, std::nullopt);
}
int MetricsScraper::failures_in_a_row() const {
  MutexLock lock(&mutex_);
  return failures_in_a_row_;
}
int64_t MetricsScraper::failures() const {
  MutexLock lock(&mutex_);
  return failures_;
}
std::string MetricsScraper::last_failure() const {
  MutexLock lock(&mutex_);
  return last_failure_;
}

}  // namespace icache
