#include "icache/engine/engine_stream.h"

#include <algorithm>
#include <utility>
#include <variant>

namespace icache {
namespace {

// A stream that loses events again and again is no use, and its ledger starts anew.
constexpr size_t kMaxLapses = 1024;

template <typename... Visitors>
struct Overloaded : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overloaded(Visitors...) -> Overloaded<Visitors...>;

}  // namespace

void EngineReplica::Restart(bool known_from_start) {
  ledger.Restart(known_from_start);
  Void();
}

void EngineReplica::Clear() {
  ledger.Clear();
  Void();
}

void EngineReplica::Void() {
  lapses_.clear();
  claims_unknown_ = false;
  void_ = true;
}

void EngineReplica::Lapse(absl::Time now, bool claims_unknown) {
  if (!claims_unknown) ledger.MarkIncomplete();
  if (ledger.held_blocks() == ledger.suspect_blocks() && !claims_unknown) return;  // nothing more to doubt
  if (lapses_.size() == kMaxLapses) {
    Clear();
    return ledger.MarkIncomplete();  // the engine has cleared nothing
  }
  if (lapses_.empty()) refresh_at_ = now + options_->ttl / 2;
  claims_unknown_ |= claims_unknown;
  ledger.MarkSuspect();
  lapses_.push_back({ledger.epoch(), now + options_->ttl});
}

void EngineReplica::Tick(absl::Time now) {
  ledger.ExpireOffloaded(now);
  bool forgot = false;
  for (; !lapses_.empty() && lapses_.front().until <= now; lapses_.pop_front()) {
    ledger.ForgetSuspects(lapses_.front().epoch);
    void_ |= std::exchange(claims_unknown_, false);  // it is the first lapse, if any, that brought them
    forgot = true;
  }
  if (!claims_unknown_ && ledger.suspect_blocks() == 0) lapses_.clear();
  // While others are left, what is forgotten is a change like any.
  void_ |= forgot && lapses_.empty();
}

bool EngineReplica::TakeRefresh(absl::Time now) {
  if (!lapsed() || now < refresh_at_) return false;
  refresh_at_ = now + options_->ttl / 2;
  return true;
}

EngineStream::EngineStream(const StreamOptions& options, std::function<void(uint64_t)> request_replay)
    : options_(options), request_replay_(std::move(request_replay)), sequencer_(options.sequencer, this) {
  if (!options_.rank.has_value()) AddReplica(std::nullopt)->MarkHeard();
}

void EngineStream::OnLive(uint64_t sequence, std::string_view payload, Moment now) {
  now_ = now;
  sequencer_.OnLive(sequence, payload, now.steady);
}
void EngineStream::OnReplayed(uint64_t sequence, std::string_view payload, Moment now) {
  now_ = now;
  sequencer_.OnReplayed(sequence, payload, now.steady);
}
void EngineStream::OnReplayEnd(Moment now) {
  now_ = now;
  sequencer_.OnReplayEnd(now.steady);
}
void EngineStream::OnReconnected(Moment now) {
  now_ = now;
  sequencer_.OnReconnected(now.steady);
}
void EngineStream::OnTick(Moment now) {
  now_ = now;
  sequencer_.OnTick(now.steady);
  for (const auto& [rank, replica] : replicas_) replica->Tick(now.steady);
}

void EngineStream::OnEngineGone(Moment now) {
  now_ = now;
  sequencer_.Reset();
  OnEngineStart(/*known_from_start=*/false);
}

EngineReplica* EngineStream::AddReplica(Rank rank) {
  return replicas_.emplace(rank, std::make_unique<EngineReplica>(&options_.ledger)).first->second.get();
}

EngineReplica* EngineStream::ReplicaOf(Rank rank) {
  rank = options_.rank.has_value() ? rank.value_or(*options_.rank) : Rank();
  const auto found = replicas_.find(rank);
  EngineReplica* replica = found != replicas_.end() ? found->second.get() : nullptr;
  if (replica != nullptr && replica->heard()) return replica;
  if (rank.has_value() && !options_.may_take_rank(*rank)) return nullptr;
  if (replica == nullptr) {  // a rank that shows itself later than the stream
    replica = AddReplica(rank);
    if (started_late_) {
      replica->Lapse(now_.steady, /*claims_unknown=*/true);
    } else {
      replica->Restart(/*known_from_start=*/complete_);
    }
  }
  replica->MarkHeard();
  return replica;
}

void EngineStream::OnBatch(const KvBatch& batch) {
  EngineReplica* replica = ReplicaOf(batch.rank);
  if (replica == nullptr) {
    ++counts_.refused_ranks;
    return;
  }
  last_batch_at_ = batch.time;
  const absl::Duration age = std::max(now_.wall - batch.time, absl::ZeroDuration());
  replica->MarkAsOf(now_.wall - age);
  BlockLedger& ledger = replica->ledger;
  counts_.malformed += static_cast<int64_t>(batch.malformed_events);
  counts_.unknown += static_cast<int64_t>(batch.unknown_events);
  if (batch.malformed_events > 0) ledger.MarkIncomplete();
  for (const KvEvent& event : batch.events) {
    std::visit(Overloaded{[&](const BlockStored& stored) {
                            ++counts_.stored;
                            ledger.Store(stored);
                          },
                          [&](const BlockRemoved& removed) {
                            ++counts_.removed;
                            ledger.Remove(removed, now_.steady - age);
                          },
                          [&](const AllBlocksCleared&) {
                            ++counts_.cleared;
                            replica->Clear();
                          },
                          [&](const LostRemoval&) { replica->Lapse(now_.steady, /*claims_unknown=*/false); }},
               event);
    if (ledger.TakeDoubt()) replica->Lapse(now_.steady, /*claims_unknown=*/false);
  }
  if (batch.malformed_events > 0) ledger.MarkIncomplete();  // wherever among them a clear was
}

void EngineStream::OnEngineStart(bool known_from_start) {
  started_late_ = false;
  complete_ = known_from_start;
  // What an earlier observer told of its rank is void, too, though the engine may have nothing to say of it yet.
  if (options_.rank.has_value() && !replicas_.contains(options_.rank)) AddReplica(options_.rank);
  for (const auto& [rank, replica] : replicas_) replica->Restart(known_from_start);
}

void EngineStream::OnLateStart() {
  started_late_ = true;
  complete_ = false;
  for (const auto& [rank, replica] : replicas_) replica->Lapse(now_.steady, /*claims_unknown=*/true);
}

void EngineStream::OnLoss(bool same_engine) {
  complete_ = false;
  for (const auto& [rank, replica] : replicas_) {
    replica->Lapse(now_.steady, /*claims_unknown=*/false);
    if (!same_engine) replica->ledger.ForgetEngine();
  }
}

}  // namespace icache
