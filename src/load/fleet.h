// Fleet: the simulated engines under one routing policy, and what their caches made of the requests they were given.
//
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "load/engine_cache.h"
#include "load/load_window.h"
#include "load/trace_line.h"

namespace icache {

struct FleetOptions {
  size_t engines = 4;               // >= 1
  size_t capacity_blocks = 65'536;  // of each engine, >= 1
  int32_t block_size = 16;          // tokens, >= 1
  int64_t load_window_ms = 60'000;  // what "recent" load means, in trace time, >= 1
};

// What became of the requests, in sum.
struct FleetTotals {
  int64_t requests = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  // of them, found in the cache of the engine that served the request
  int64_t evicted_blocks = 0;

  int64_t ComputedTokens() const { return prompt_tokens - reused_tokens; }
  // Reused over prompt tokens, 0 when there were none.
  double HitRate() const;
};

// The largest over the mean: 1 is perfectly even, the number of engines is all on one. 1 when all are 0.
double Imbalance(absl::Span<const int64_t> loads);

class Fleet {
 public:
  explicit Fleet(const FleetOptions& options);

  struct Service {
    int64_t reused_tokens = 0;
    size_t held_after = 0;               // leading blocks of the chain that the engine holds now
    bool stored = false;                 // whether any of them is new there
    absl::Span<const uint64_t> evicted;  // blocks that had to go, in order; valid until the next call
  };
  // Gives the request to `engine` at its time. An engine always computes at least the last token of a prompt, so a
  // prompt that it holds to the last block still costs it that block.
  Service Serve(size_t engine, const TraceRequest& request, absl::Span<const uint64_t> chain);

  // Moves the load window to the time of the request that is about to be routed.
  void AdvanceTo(int64_t now_ms) { load_.AdvanceTo(now_ms); }

  size_t engines() const { return caches_.size(); }
  const EngineCache& cache(size_t engine) const { return caches_[engine]; }
  const LoadWindow& load() const { return load_; }
  const FleetTotals& totals() const { return totals_; }
  const FleetTotals& totals(size_t engine) const { return totals_by_engine_[engine]; }
  // Prompt tokens that each engine has computed so far.
  std::vector<int64_t> ComputedTokens() const;
  // Distinct blocks held anywhere. O(blocks).
  size_t DistinctBlocks() const;

 private:
  const int32_t block_size_;
  std::vector<EngineCache> caches_;
  LoadWindow load_;
  FleetTotals totals_;
  std::vector<FleetTotals> totals_by_engine_;
  std::vector<uint64_t> evicted_;
};

}  // namespace icache
