#include "load/fleet.h"

#include <algorithm>
#include <numeric>

#include "absl/container/flat_hash_set.h"

namespace icache {

double FleetTotals::HitRate() const {
  return prompt_tokens == 0 ? 0 : static_cast<double>(reused_tokens) / static_cast<double>(prompt_tokens);
}

double Imbalance(absl::Span<const int64_t> loads) {
  const int64_t sum = std::accumulate(loads.begin(), loads.end(), int64_t{0});
  if (sum == 0) return 1;
  return static_cast<double>(*std::max_element(loads.begin(), loads.end())) * static_cast<double>(loads.size()) /
         static_cast<double>(sum);
}

Fleet::Fleet(const FleetOptions& options)
    : block_size_(options.block_size),
      caches_(options.engines, EngineCache(options.capacity_blocks)),
      load_(options.engines, options.load_window_ms),
      totals_by_engine_(options.engines) {}

Fleet::Service Fleet::Serve(size_t engine, const TraceRequest& request, absl::Span<const uint64_t> chain) {
  evicted_.clear();
  const EngineCache::Insertion insertion = caches_[engine].Insert(chain, &evicted_);
  const int64_t reusable_blocks = (request.input_tokens - 1) / block_size_;
  const int64_t reused_tokens = std::min(static_cast<int64_t>(insertion.held_before), reusable_blocks) * block_size_;
  load_.Add(engine, request.input_tokens - reused_tokens);
  for (FleetTotals* totals : {&totals_, &totals_by_engine_[engine]}) {
    ++totals->requests;
    totals->prompt_tokens += request.input_tokens;
    totals->reused_tokens += reused_tokens;
    totals->evicted_blocks += static_cast<int64_t>(evicted_.size());
  }
  return {.reused_tokens = reused_tokens,
          .held_after = insertion.held_after,
          .stored = insertion.held_after > insertion.held_before,
          .evicted = evicted_};
}

std::vector<int64_t> Fleet::ComputedTokens() const {
  std::vector<int64_t> computed;
  for (const FleetTotals& totals : totals_by_engine_) computed.push_back(totals.ComputedTokens());
  return computed;
}

size_t Fleet::DistinctBlocks() const {
  absl::flat_hash_set<uint64_t> distinct;
  for (const EngineCache& cache : caches_) cache.ForEachBlock([&distinct](uint64_t hash) { distinct.insert(hash); });
  return distinct.size();
}

}  // namespace icache
