#include "telemetry/model_tallies.h"

#include <algorithm>
#include <atomic>

namespace icache {
namespace {

void AddTo(const DropCounts& from, DropCounts& to) {
  for (size_t i = 0; i < kDropReasonCount; ++i) to.Add(static_cast<DropReason>(i), from[static_cast<DropReason>(i)]);
}

}  // namespace

void ModelTally::Add(const ModelTally& other) {
  for (size_t reason = 0; reason < calls.size(); ++reason) {
    for (size_t used = 0; used < calls[reason].size(); ++used) calls[reason][used] += other.calls[reason][used];
  }
  latency_ns.Add(other.latency_ns);
  matched_tokens.Add(other.matched_tokens);
  updates += other.updates;
  entries += other.entries;
}

void ModelTallies::CountLookup(const LookupOutcome& outcome) {
  // A clock that was set in the meantime can make any number of it.
  const int64_t latency_ns =
      absl::ToInt64Nanoseconds(std::clamp(outcome.latency, absl::ZeroDuration(), absl::Hours(1)));
  Stripe& stripe = OwnStripe();
  MutexLock lock(&stripe.mutex);
  ModelTally& tally = TallyOf(stripe, outcome.model_id, outcome.model_held);
  ++tally.calls[static_cast<size_t>(outcome.reason)][outcome.hint_used ? 1 : 0];
  if (!outcome.shed) tally.latency_ns.Observe(latency_ns);
  if (outcome.reason == ReasonCode::kPrefixMatch) tally.matched_tokens.Observe(outcome.matched_tokens);
}

void ModelTallies::CountUpdate(std::string_view model_id, bool model_held, const ApplyResult& result) {
  Stripe& stripe = OwnStripe();
  MutexLock lock(&stripe.mutex);
  AddTo(result.dropped, stripe.dropped);
  if (!result.applied) return;
  ModelTally& tally = TallyOf(stripe, model_id, model_held);
  ++tally.updates;
  tally.entries += static_cast<int64_t>(result.entries_stored);
}

void ModelTallies::CountEvent(CacheEventType type, const ApplyResult& result) {
  Stripe& stripe = OwnStripe();
  MutexLock lock(&stripe.mutex);
  AddTo(result.dropped, stripe.dropped);
  if (result.applied) ++stripe.events[static_cast<size_t>(type)];
}

std::vector<bool> ModelTallies::Reconcile(absl::Span<const std::string> held_models, absl::Time now) {
  const absl::flat_hash_set<std::string_view, StringHash, StringEqual> held(held_models.begin(), held_models.end());
  std::vector<bool> has_series;
  has_series.reserve(held_models.size());
  std::vector<std::string> forgotten;
  {
    MutexLock lock(&list_mutex_);
    for (auto& [model, drained_at] : admitted_) {
      drained_at = held.contains(model) ? absl::InfiniteFuture() : std::min(drained_at, now);
      if (now - drained_at >= drained_life_) forgotten.push_back(model);
    }
    // Places are freed before they are given away.
    for (const std::string& model : forgotten) admitted_.erase(model);
    for (const std::string& model : held_models) has_series.push_back(AdmitLocked(model));
  }
  if (forgotten.empty()) return has_series;
  for (Stripe& stripe : stripes_) {
    MutexLock lock(&stripe.mutex);
    for (const std::string& model : forgotten) stripe.models.erase(model);
  }
  return has_series;
}

TallyTotals ModelTallies::Totals() const {
  TallyTotals totals;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(&stripe.mutex);
    for (const auto& [model, tally] : stripe.models) totals.models[model].Add(*tally);
    totals.other.Add(stripe.other);
    AddTo(stripe.dropped, totals.dropped);
    for (size_t type = 0; type < totals.events.size(); ++type) totals.events[type] += stripe.events[type];
  }
  return totals;
}

ModelTallies::Stripe& ModelTallies::OwnStripe() {
  static std::atomic<size_t> next_thread = 0;
  thread_local const size_t thread = next_thread.fetch_add(1, std::memory_order_relaxed);
  return stripes_[thread % kStripeCount];
}

ModelTally& ModelTallies::TallyOf(Stripe& stripe, std::string_view model_id, bool model_held) {
  if (!model_held) return stripe.other;
  const auto known = stripe.models.find(model_id);
  if (known != stripe.models.end()) return *known->second;
  if (!Admit(model_id)) return stripe.other;
  return *stripe.models.emplace(model_id, std::make_unique<ModelTally>()).first->second;
}

bool ModelTallies::Admit(std::string_view model_id) {
  MutexLock lock(&list_mutex_);
  return AdmitLocked(model_id);
}

bool ModelTallies::AdmitLocked(std::string_view model_id) {
  if (admitted_.contains(model_id)) return true;
  if (admitted_.size() >= max_models_) return false;
  admitted_.emplace(model_id, absl::InfiniteFuture());
  return true;
}

}  // namespace icache
