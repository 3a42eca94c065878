// ModelTallies: what lookups and ingest count, under a bounded set of model names.
//
// Layout: counters are kept in stripes. A thread always uses the same stripe, so its mutex is nearly always free and
// its counters are in that core's cache; adding up the stripes gives the totals. A stripe finds a model's counters in
// a map of its own; a model that it does not know is looked up in the one list of admitted models, which decides who
// gets series and who is "other".
//
// Invariant: a stripe has counters only for admitted models. Admitting happens under the stripe's mutex, and forgetting
// takes a model off the list before it visits the stripes, so no stripe keeps a model that was forgotten. What is
// counted for a model while it is being forgotten may be forgotten with it.
//
// Thread-safe. Lock order: a stripe's mutex, then the list's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "icache/index/observation.h"
#include "icache/routing/lookup.h"

namespace icache {

// Values counted by upper bound, in whole units so that sums are exact. `kBounds` ascend and are inclusive.
template <auto kBounds>
struct BoundedHistogram {
  std::array<int64_t, kBounds.size() + 1> counts = {};  // by bucket, not cumulative; the last is beyond all bounds
  int64_t sum = 0;

  void Observe(int64_t value) {
    size_t bucket = 0;
    while (bucket < kBounds.size() && value > kBounds[bucket]) ++bucket;
    ++counts[bucket];
    sum += value;
  }
  void Add(const BoundedHistogram& other) {
    for (size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
    sum += other.sum;
  }
  int64_t Count() const {
    int64_t count = 0;
    for (int64_t bucket : counts) count += bucket;
    return count;
  }
};

// 10 µs to 100 ms. Source: contract/metrics.md.
inline constexpr std::array<int64_t, 13> kLatencyBoundsNs = {10'000,     25'000,     50'000,     100'000,   250'000,
                                                             500'000,    1'000'000,  2'500'000,  5'000'000, 10'000'000,
                                                             25'000'000, 50'000'000, 100'000'000};
// Powers of 4, from one block of the default size to a million tokens.
inline constexpr std::array<int64_t, 9> kMatchedTokensBounds = {16,     64,     256,     1'024,    4'096,
                                                                16'384, 65'536, 262'144, 1'048'576};

// The counters of one model.
struct ModelTally {
  std::array<std::array<int64_t, 2>, kReasonCodeCount> calls = {};  // [reason code][hint used]
  BoundedHistogram<kLatencyBoundsNs> latency_ns;
  BoundedHistogram<kMatchedTokensBounds> matched_tokens;
  int64_t updates = 0;  // applied
  int64_t entries = 0;  // added or refreshed

  void Add(const ModelTally& other);
};

inline constexpr size_t kCacheEventTypeCount = 5;

// The sum of everything counted so far.
struct TallyTotals {
  std::map<std::string, ModelTally, std::less<>> models;  // by model name
  ModelTally other;                                       // of models without series of their own
  DropCounts dropped;
  std::array<int64_t, kCacheEventTypeCount> events = {};  // applied, by CacheEventType
};

class ModelTallies {
 public:
  // At most `max_models` models are told apart; a drained one is forgotten `drained_life` after its drain was noticed.
  ModelTallies(size_t max_models, absl::Duration drained_life) : max_models_(max_models), drained_life_(drained_life) {}

  void CountLookup(const LookupOutcome& outcome);
  // `model_held`: the index holds the model, now that the update has been applied.
  void CountUpdate(std::string_view model_id, bool model_held, const ApplyResult& result);
  void CountEvent(CacheEventType type, const ApplyResult& result);

  // Told which models the index holds at `now`: admits those, in order, while there is room, notes which admitted ones
  // are not among them, and forgets those for which that was noted `drained_life` ago. Returns, for each of
  // `held_models`, whether it has series of its own.
  std::vector<bool> Reconcile(absl::Span<const std::string> held_models, absl::Time now);

  TallyTotals Totals() const;

 private:
  // Its own cache lines, so that stripes do not slow one another down.
  struct alignas(128) Stripe {
    mutable Mutex mutex;
    StringMap<std::unique_ptr<ModelTally>> models ABSL_GUARDED_BY(mutex);
    ModelTally other ABSL_GUARDED_BY(mutex);
    DropCounts dropped ABSL_GUARDED_BY(mutex);
    std::array<int64_t, kCacheEventTypeCount> events ABSL_GUARDED_BY(mutex) = {};
  };
  static constexpr size_t kStripeCount = 16;

  // The calling thread's stripe.
  Stripe& OwnStripe();
  // Where to count for the model; those of "other" when it is not held or there is no room for it.
  ModelTally& TallyOf(Stripe& stripe, std::string_view model_id, bool model_held)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(stripe.mutex) ABSL_LOCKS_EXCLUDED(list_mutex_);
  // Whether the model is on the list, which it is put on while there is room.
  bool Admit(std::string_view model_id) ABSL_LOCKS_EXCLUDED(list_mutex_);
  bool AdmitLocked(std::string_view model_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(list_mutex_);

  const size_t max_models_;
  const absl::Duration drained_life_;

  std::array<Stripe, kStripeCount> stripes_;

  Mutex list_mutex_;
  // The admitted models, with when each was first seen to have drained; InfiniteFuture() while it is held.
  StringMap<absl::Time> admitted_ ABSL_GUARDED_BY(list_mutex_);
};

}  // namespace icache
