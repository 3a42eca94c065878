#include "icache/engine/engine_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "icache/base/prometheus_text.h"

namespace icache {
namespace {

enum class Fold { kSum, kMax };

struct Samples {
  std::optional<double> running;
  std::optional<double> waiting;
  EngineLoad load;
};

// A series that is read, by the engine that has it.
struct Series {
  EngineKind kind;
  std::string_view name;
  Fold fold;
  std::optional<double>& (*slot)(Samples& samples);
};

#define ICACHE_SLOT(member) [](Samples& samples) -> std::optional<double>& { return samples.member; }
constexpr Series kSeries[] = {
    {EngineKind::kVllm, "vllm:num_requests_running", Fold::kSum, ICACHE_SLOT(running)},
    {EngineKind::kVllm, "vllm:num_requests_waiting", Fold::kSum, ICACHE_SLOT(waiting)},
    {EngineKind::kVllm, "vllm:kv_cache_usage_perc", Fold::kMax, ICACHE_SLOT(load.usage)},
    {EngineKind::kVllm, "vllm:gpu_cache_usage_perc", Fold::kMax, ICACHE_SLOT(load.usage)},  // its older name
    {EngineKind::kVllm, "vllm:prefix_cache_hits_total", Fold::kSum, ICACHE_SLOT(load.hits)},
    {EngineKind::kVllm, "vllm:prefix_cache_queries_total", Fold::kSum, ICACHE_SLOT(load.queries)},
    {EngineKind::kVllm, "vllm:external_prefix_cache_hits_total", Fold::kSum, ICACHE_SLOT(load.t2_hits)},
    {EngineKind::kVllm, "vllm:external_prefix_cache_queries_total", Fold::kSum, ICACHE_SLOT(load.t2_queries)},
    {EngineKind::kSglang, "sglang:num_running_reqs", Fold::kSum, ICACHE_SLOT(running)},
    {EngineKind::kSglang, "sglang:num_queue_reqs", Fold::kSum, ICACHE_SLOT(waiting)},
    {EngineKind::kSglang, "sglang:token_usage", Fold::kMax, ICACHE_SLOT(load.usage)},
    {EngineKind::kSglang, "sglang:cache_hit_rate", Fold::kMax, ICACHE_SLOT(load.hit_rate)},
};
#undef ICACHE_SLOT

struct Sample {
  const Series* series = nullptr;
  std::string model;
  double value = 0;
};

// The sample as one of a series that is read, if it is.
std::optional<Sample> Recognize(const PrometheusSample& read, EngineKind kind) {
  const auto series = std::find_if(std::begin(kSeries), std::end(kSeries),
                                   [&](const Series& known) { return known.kind == kind && known.name == read.name; });
  if (series == std::end(kSeries)) return std::nullopt;
  Sample sample{&*series, "", read.value};
  ForEachLabel(read.labels, [&sample](std::string_view name, std::string value) {
    if (name == "model_name") sample.model = std::move(value);
  });
  return sample;
}

int64_t Count(double value) {
  // What int64 cannot hold is no count.
  return value >= 0 && value < 9.2e18 ? static_cast<int64_t>(value) : 0;
}

}  // namespace

std::string_view EngineKindName(EngineKind kind) {
  switch (kind) {
    case EngineKind::kVllm:
      return "vllm";
    case EngineKind::kSglang:
      return "sglang";
  }
  return "";
}

absl::StatusOr<EngineLoad> ReadEngineLoad(std::string_view page, EngineKind kind, std::string_view model) {
  std::vector<Sample> samples;
  std::string any_model;
  bool several_models = false;
  ForEachSample(page, [&](const PrometheusSample& read) {
    std::optional<Sample> sample = Recognize(read, kind);
    if (!sample.has_value()) return;
    if (any_model.empty()) any_model = sample->model;
    several_models |= !sample->model.empty() && sample->model != any_model;
    samples.push_back(*std::move(sample));
  });

  Samples folded;
  for (const Sample& sample : samples) {
    if (several_models && !sample.model.empty() && sample.model != model) continue;
    std::optional<double>& slot = sample.series->slot(folded);
    if (std::isnan(sample.value) || std::isnan(slot.value_or(0))) {
      slot = std::numeric_limits<double>::quiet_NaN();
    } else {
      slot = sample.series->fold == Fold::kSum ? slot.value_or(0) + sample.value
                                               : std::max(slot.value_or(0), sample.value);
    }
  }
  if (!folded.running.has_value() || !folded.waiting.has_value()) {
    return absl::UnavailableError("no gauges of running and waiting requests");
  }
  for (const double gauge : {*folded.running, *folded.waiting, folded.load.usage.value_or(0)}) {
    if (!std::isfinite(gauge)) return absl::UnavailableError("a load gauge is no finite number");
  }
  folded.load.running = *folded.running;
  folded.load.waiting = *folded.waiting;
  return folded.load;
}

EngineStats EngineStatsReader::Read(const EngineLoad& load) {
  if (load.hit_rate.has_value()) {
    hit_rate_ = std::isnan(*load.hit_rate) ? 0 : std::clamp(*load.hit_rate, 0.0, 1.0);
  } else if (load.hits.has_value() && load.queries.has_value()) {
    const bool first = !last_hits_.has_value() || !(*load.hits >= *last_hits_ && *load.queries >= *last_queries_);
    const double queries = first ? 0 : *load.queries - *last_queries_;
    if (first) {
      hit_rate_ = 0;
    } else if (queries > 0) {  // without a query there is no news
      hit_rate_ = std::clamp((*load.hits - *last_hits_) / queries, 0.0, 1.0);
    }
    last_hits_ = load.hits;
    last_queries_ = load.queries;
  }
  EngineStats stats;
  stats.cache_memory_bytes = Count(std::clamp(load.usage.value_or(0), 0.0, 1.0) * static_cast<double>(cache_bytes_));
  stats.hit_rate = static_cast<float>(hit_rate_);
  if (max_concurrency_ > 0) {
    const double share = (load.running + load.waiting) / static_cast<double>(max_concurrency_);
    stats.pressure = static_cast<float>(std::clamp(share, 0.0, 1.0));
  }
  stats.t2_hit_tokens = Count(load.t2_hits.value_or(0));
  stats.t2_query_tokens = Count(load.t2_queries.value_or(0));
  return stats;
}

}  // namespace icache
