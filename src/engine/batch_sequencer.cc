#include "icache/engine/batch_sequencer.h"

#include <utility>

namespace icache {

BatchSequencer::BatchSequencer(const SequencerOptions& options, SequencerListener* listener)
    : options_(options), listener_(listener) {}

const KvBatch* BatchSequencer::Decode(std::string_view payload) {
  batch_ = KvBatch();  // a large one beside another is too much
  absl::StatusOr<KvBatch> decoded = decoder_.Decode(payload);
  if (!decoded.ok()) {
    ++counts_.malformed;
    return nullptr;
  }
  batch_ = *std::move(decoded);
  return &batch_;
}

void BatchSequencer::OnLive(uint64_t sequence, std::string_view payload, absl::Time now) {
  if (replay_.has_value() || !TakeLive(sequence, payload, now)) Hold(sequence, payload);
}

void BatchSequencer::Hold(uint64_t sequence, std::string_view payload) {
  if (waiting_.size() >= options_.max_waiting_batches || waiting_bytes_ + payload.size() > options_.max_waiting_bytes) {
    ++counts_.overflows;  // shows as a gap later
    return;
  }
  waiting_bytes_ += payload.size();
  waiting_.push_back({sequence, std::string(payload)});
}

bool BatchSequencer::TakeLive(uint64_t sequence, std::string_view payload, absl::Time now) {
  if (!started_) {
    if (options_.has_replay) {
      AskReplay(Reason::kStart, now);
      return false;
    }
    Begin(sequence);
  }
  const KvBatch* batch = Decode(payload);
  if (sequence < next_) {
    // Nothing is published twice, so where no replay can have brought it first, a new connection is a new engine's.
    const bool is_new_engine = reconnected_ && !options_.has_replay;
    if (batch == nullptr || (batch->time <= last_time_ && !is_new_engine)) {
      ++counts_.duplicates;
      return true;
    }
    if (sequence > 0 && options_.has_replay) {
      RestartEngine(now);
      return false;
    }
    ++counts_.restarts;
    reconnected_ = false;
    listener_->OnEngineStart(/*known_from_start=*/sequence == 0);
  } else if (sequence > next_) {
    ++counts_.gaps;
    if (options_.has_replay) {
      AskReplay(Reason::kGap, now);
      return false;
    }
    Lose();
  }
  idle_since_ = now;
  Apply(sequence, batch);
  return true;
}

void BatchSequencer::Begin(uint64_t sequence) {
  started_ = true;
  next_ = sequence;
  const bool first = std::exchange(first_start_, false);
  if (sequence == 0) {
    listener_->OnEngineStart(/*known_from_start=*/true);
  } else if (first) {
    ++counts_.gaps;
    ++counts_.losses;
    listener_->OnLateStart();
  }
}

void BatchSequencer::Apply(uint64_t sequence, const KvBatch* batch) {
  next_ = sequence + 1;
  if (batch == nullptr) return Lose();  // whatever it said
  ++counts_.batches;
  last_time_ = batch->time;
  listener_->OnBatch(*batch);
}

void BatchSequencer::Lose() {
  ++counts_.losses;
  listener_->OnLoss(/*same_engine=*/!std::exchange(may_be_another_, false));
}

// ---- Replay -------------------------------------------------------------------------------------------------------

void BatchSequencer::AskReplay(Reason reason, absl::Time now) {
  const uint64_t from = started_ && next_ > 0 ? next_ - 1 : 0;
  replay_ = Replay{.reason = reason, .from = from, .deadline = now + options_.replay_timeout, .next_at_request = next_};
  listener_->RequestReplay(from);
}

void BatchSequencer::AskAgain(absl::Time now) {
  if (HasProgress()) return RepeatRequest(now);
  replay_->resting = true;
  replay_->deadline = now + options_.replay_pause;
}

void BatchSequencer::RepeatRequest(absl::Time now) {
  const int attempts = HasProgress() ? 1 : replay_->attempts + 1;
  const bool has_holes = replay_->has_holes;
  AskReplay(replay_->reason, now);
  replay_->attempts = attempts;
  replay_->has_holes = has_holes;
}

void BatchSequencer::OnReplayed(uint64_t sequence, std::string_view payload, absl::Time now) {
  if (!replay_.has_value() || replay_->resting || sequence < replay_->from) return;
  const bool first = !std::exchange(replay_->answered, true);
  if (first) replay_->deadline = now + options_.replay_pause;
  // An answer that begins behind the last batch applied does not show whose it is.
  const bool is_proven = !first || !started_ || next_ == 0 || sequence < next_;
  if (!started_) Begin(sequence);
  if (sequence < next_) {
    // The batch that was applied last, unless this is another engine.
    if (first && sequence + 1 == next_) {
      const KvBatch* batch = Decode(payload);
      if (batch != nullptr && batch->time != last_time_) {
        DropWaiting();  // may be of the old one; what is not can be replayed
        return RestartEngine(now);
      }
      if (batch == nullptr && may_be_another_) Lose();  // it cannot be read, so it shows nothing
      may_be_another_ = false;
    }
    replay_knows_ = true;
    return;
  }
  const bool is_waiting = !waiting_.empty() && waiting_.front().sequence <= sequence;
  if (replay_->reason == Reason::kIdle && !is_waiting) {  // what was lost was the last
    replay_->reason = Reason::kGap;
    ++counts_.gaps;
  }
  if (sequence > next_ || !is_proven) {
    // Missing at the front, it is older than the engine's buffer. Missing further on, it was lost on the way, or has
    // never been published.
    if (!first && !replay_->has_holes) {
      if (!IsExhausted()) return AskAgain(now);
      replay_->has_holes = true;
    }
    if (replay_->reason == Reason::kStart || replay_->reason == Reason::kReconnect) ++counts_.gaps;
    Lose();
  }
  replay_knows_ = true;
  replay_->deadline = now + options_.replay_pause;
  ++counts_.replayed;
  Apply(sequence, Decode(payload));
}

void BatchSequencer::OnReplayEnd(absl::Time now) {
  if (!replay_.has_value() || replay_->resting) return;
  const bool overlap_missing = started_ && next_ > 0 && !replay_->answered;
  if (overlap_missing && (replay_knows_ || replay_->reason == Reason::kIdle)) {
    // The engine has published less than was seen of it, and not just now, so it has begun anew.
    DropWaiting();
    return RestartEngine(now);
  }
  // It has published nothing yet, or just now.
  if (!started_ && (waiting_.empty() || waiting_.front().sequence == 0)) Begin(0);
  if (overlap_missing && replay_->reason == Reason::kReconnect) {
    GiveUp(now);
    return;
  }
  EndReplay(now);
}

void BatchSequencer::GiveUp(absl::Time now) {
  const Reason reason = replay_->reason;
  replay_.reset();
  idle_since_ = now;
  if (!started_) {
    if (waiting_.empty()) return;  // nobody there yet; OnTick() asks again
    Begin(waiting_.front().sequence);
  } else if (reason != Reason::kIdle) {
    Lose();
    if (!waiting_.empty() && waiting_.front().sequence > next_) next_ = waiting_.front().sequence;
  }
  TakeWaiting(now);
}

void BatchSequencer::EndReplay(absl::Time now) {
  const bool still_missing = !waiting_.empty() && waiting_.front().sequence > next_;
  if (still_missing) {
    // The engine sends a batch before it can be replayed, so ask once more if this got us further.
    if (IsExhausted()) return GiveUp(now);
    if (replay_->reason == Reason::kIdle) ++counts_.gaps;
    replay_->reason = started_ ? Reason::kGap : Reason::kStart;
    AskAgain(now);
    return;
  }
  replay_.reset();
  TakeWaiting(now);
}

void BatchSequencer::TakeWaiting(absl::Time now) {
  while (!waiting_.empty() && !replay_.has_value()) {
    Waiting batch = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= batch.payload.size();
    if (TakeLive(batch.sequence, batch.payload, now)) continue;
    waiting_bytes_ += batch.payload.size();
    waiting_.push_front(std::move(batch));
  }
}

void BatchSequencer::RestartEngine(absl::Time now) {
  ++counts_.restarts;
  Forget();
  first_start_ = false;
  listener_->OnEngineStart(/*known_from_start=*/false);
  AskReplay(Reason::kStart, now);
}

void BatchSequencer::OnReconnected(absl::Time now) {
  DropWaiting();  // may be of the old engine; what is not can be replayed
  if (!started_) return;
  may_be_another_ = true;
  if (options_.has_replay) {
    AskReplay(Reason::kReconnect, now);
  } else {  // nobody can say what was missed
    reconnected_ = true;
    Lose();
  }
}

void BatchSequencer::OnTick(absl::Time now) {
  if (replay_.has_value()) {
    if (now < replay_->deadline) return;
    return IsExhausted() ? GiveUp(now) : RepeatRequest(now);
  }
  if (!options_.has_replay) return;
  if (started_ && now - idle_since_ < options_.idle_check_interval) return;
  idle_since_ = now;
  AskReplay(started_ ? Reason::kIdle : Reason::kStart, now);
}

void BatchSequencer::Reset() {
  DropWaiting();
  Forget();
}

void BatchSequencer::DropWaiting() {
  waiting_.clear();
  waiting_bytes_ = 0;
}

void BatchSequencer::Forget() {
  started_ = false;
  next_ = 0;
  last_time_ = absl::InfinitePast();
  replay_knows_ = false;
  reconnected_ = may_be_another_ = false;
  replay_.reset();
}

}  // namespace icache
