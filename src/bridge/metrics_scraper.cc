#include "bridge/metrics_scraper.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "icache/scrape/page_fetcher.h"

namespace icache {
namespace {

constexpr size_t kMaxPageBytes = 16 << 20;
constexpr absl::Duration kLongestScrape = absl::Seconds(5);

}  // namespace

MetricsScraper::MetricsScraper(const EngineOptions* options, absl::Duration interval)
    : options_(options), interval_(interval), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "scraper");
}

MetricsScraper::~MetricsScraper() {
  BeginStop();
  thread_.join();
}

void MetricsScraper::Run() {
  PageFetcher fetcher({.max_page_bytes = kMaxPageBytes});
  EngineStatsReader reader(options_->cache_bytes, options_->max_concurrency);
  std::chrono::steady_clock::time_point next;
  do {
    next = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval_);
    const absl::StatusOr<std::string> page =
        fetcher.Fetch(options_->metrics_url, std::min(interval_, kLongestScrape), [this] { return stop_.IsGiven(); });
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
  } while (!stop_.AwaitUntil(next));
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
