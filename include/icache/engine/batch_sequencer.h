// BatchSequencer: puts the batches of one engine stream in order, and says when some are missing.
//
// Batches come live, and on request by replay, which reaches as far back as the engine's buffer does. While a replay
// is asked for, live batches wait here. A request always begins at the last batch applied, not behind it: that the
// engine answers with that very batch shows that it is still the same incarnation.
//
//   start        replay from 0, or wait for the first live batch
//   gap          a sequence number beyond the next: replay; what it does not give is lost
//   reconnected  replay, or else loss, since nobody can say what was missed
//   unproven     a replay that begins right behind the last batch: loss, since it may be another engine's
//   any loss     says whether a connection has been made anew since a replay last showed whose the batches are
//   idle         replay now and then while nothing new comes, for a lost last batch shows no gap
//   duplicate    a sequence number not beyond the last, with a ts not beyond the last one's: nothing
//   restart      the same with a later ts, or after a reconnection without replay, or a replay that does not know the
//                last batch: all begins anew
//
// Pure: no clock, no socket; `now` is of a steady clock. Thread-compatible. Source: contract/engine-events.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "icache/engine/kv_events.h"
#include "icache/engine/payload_decoder.h"

namespace icache {

struct SequencerOptions {
  bool has_replay = false;
  absl::Duration replay_timeout = absl::Seconds(2);       // until an answer begins
  absl::Duration replay_pause = absl::Milliseconds(300);  // without a further part of it; its end can be lost, too
  int max_replay_attempts = 3;                            // in a row that bring nothing new
  absl::Duration idle_check_interval = absl::Seconds(5);
  size_t max_waiting_batches = 10'000;
  size_t max_waiting_bytes = 64 << 20;
};

// What a stream turns out to be. Called from within the sequencer's methods.
class SequencerListener {
 public:
  virtual ~SequencerListener() = default;
  // The next batch, in order.
  virtual void OnBatch(const KvBatch& batch) = 0;
  // The engine starts anew: what was known of it is void. `known_from_start`: no batch of the new incarnation is
  // missing so far.
  virtual void OnEngineStart(bool known_from_start) = 0;
  // The stream is first seen in its middle: what an earlier observer reported may hold or not.
  virtual void OnLateStart() = 0;
  // Batches between those seen are lost for good. `same_engine`: what comes next is of the process that all before was
  // of; else it may be another's, which nothing has shown.
  virtual void OnLoss(bool same_engine) = 0;
  // Ask the engine for its batches from this number on. An earlier request is void.
  virtual void RequestReplay(uint64_t from) = 0;
};

struct SequencerCounts {
  int64_t batches = 0;     // applied
  int64_t replayed = 0;    // of them, by replay
  int64_t duplicates = 0;  // live batches that had been applied already
  int64_t malformed = 0;   // batches that cannot be read
  int64_t gaps = 0;        // found
  int64_t losses = 0;      // gaps and reconnections that nothing could fill
  int64_t restarts = 0;    // of the engine
  int64_t overflows = 0;   // live batches dropped because too many waited
};

class BatchSequencer {
 public:
  // `listener` is not owned and must outlive the sequencer.
  BatchSequencer(const SequencerOptions& options, SequencerListener* listener);
  BatchSequencer(const BatchSequencer&) = delete;
  BatchSequencer& operator=(const BatchSequencer&) = delete;

  void OnLive(uint64_t sequence, std::string_view payload, absl::Time now);
  void OnReplayed(uint64_t sequence, std::string_view payload, absl::Time now);
  void OnReplayEnd(absl::Time now);
  // The connection was lost and is there again.
  void OnReconnected(absl::Time now);
  // Time passes. Call it at start and every second or so.
  void OnTick(absl::Time now);
  // The engine is gone, with what waits; the next batch will be of a new one.
  void Reset();

  // Something has been seen of the engine.
  bool started() const { return started_; }
  // Nothing is known to be missing, and something has been seen.
  bool in_sync() const { return started_ && (!replay_.has_value() || replay_->reason == Reason::kIdle); }
  const SequencerCounts& counts() const { return counts_; }
  size_t waiting_batches() const { return waiting_.size(); }

 private:
  enum class Reason { kStart, kGap, kReconnect, kIdle };
  struct Replay {
    Reason reason;
    uint64_t from;
    absl::Time deadline;
    uint64_t next_at_request;  // next_, to see progress
    int attempts = 1;          // in a row without progress
    bool answered = false;     // some part of the answer to this request has come
    bool resting = false;      // the answer brings nothing more; asked again at the deadline
    bool has_holes = false;    // numbers are missing in it however often it is asked for
  };
  struct Waiting {
    uint64_t sequence;
    std::string payload;
  };

  // Takes one live batch when no replay is under way. False: a replay has been asked for, and the batch must wait.
  bool TakeLive(uint64_t sequence, std::string_view payload, absl::Time now);
  // The stream is known from the batch `sequence` on.
  void Begin(uint64_t sequence);
  void Apply(uint64_t sequence, const KvBatch* batch);
  // What comes next is not what came after the last batch.
  void Lose();
  void AskReplay(Reason reason, absl::Time now);
  // At once when the last answer brought something new, else after a rest.
  void AskAgain(absl::Time now);
  void RepeatRequest(absl::Time now);
  bool HasProgress() const { return next_ != replay_->next_at_request; }
  // All the attempts have brought nothing new.
  bool IsExhausted() const { return !HasProgress() && replay_->attempts >= options_.max_replay_attempts; }
  void EndReplay(absl::Time now);
  // The replay brought all it could, and something is still missing.
  void GiveUp(absl::Time now);
  void TakeWaiting(absl::Time now);
  // What waits is of the new engine.
  void RestartEngine(absl::Time now);
  void Forget();
  void DropWaiting();
  void Hold(uint64_t sequence, std::string_view payload);
  // Null, and counted, for what is no batch.
  const KvBatch* Decode(std::string_view payload);

  const SequencerOptions options_;
  SequencerListener* const listener_;
  PayloadDecoder decoder_;
  KvBatch batch_;  // the last decoded

  bool started_ = false;                         // next_ is known
  bool first_start_ = true;                      // nothing has been known of the engine yet
  uint64_t next_ = 0;                            // sequence number of the next batch
  absl::Time last_time_ = absl::InfinitePast();  // ts of the last batch applied
  bool replay_knows_ = false;                    // replay has answered with batches of this incarnation
  bool reconnected_ = false;                     // since the engine's start; without replay
  bool may_be_another_ = false;                  // since a reconnection, nothing has shown that it is the same engine
  std::optional<Replay> replay_;
  absl::Time idle_since_ = absl::InfinitePast();
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  SequencerCounts counts_;
};

}  // namespace icache
