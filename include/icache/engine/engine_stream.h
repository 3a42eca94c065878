// EngineStream: what one event stream of an engine says of its replicas.
//
// A stream carries the events of one replica, or of several data-parallel ranks, each a replica of its own. Each has
// its ledger, and the state that decides how it may be reported:
//
//   void     what daemons were told is worth nothing: clear it and tell everything anew
//   lapsed   events are lost, and some claims cannot be trusted: no lease until they are sorted out, but what is
//            trusted is told again every half TTL, or it would expire
//
// Pure: no clock, no socket. Thread-compatible. Source: contract/engine-events.md.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/time/time.h"
#include "icache/base/moment.h"
#include "icache/engine/batch_sequencer.h"
#include "icache/engine/block_ledger.h"
#include "icache/engine/kv_events.h"

namespace icache {

// `now` is of a steady clock.
class EngineReplica {
 public:
  explicit EngineReplica(const LedgerOptions* options) : ledger(options), options_(options) {}

  // The engine starts anew, or has cleared its cache; as in BlockLedger.
  void Restart(bool known_from_start);
  void Clear();
  // Events are lost. `claims_unknown`: daemons may have been told things that this ledger does not know.
  void Lapse(absl::Time now, bool claims_unknown);
  // Forgets suspects and offloaded blocks whose time has come.
  void Tick(absl::Time now);
  // Whether a batch of it has come. Of a rank that was never heard, others may know better whose it is.
  bool heard() const { return heard_; }
  void MarkHeard() { heard_ = true; }
  // The latest that its ledger was brought up to, by the host's wall clock; infinite past before that.
  absl::Time as_of() const { return as_of_; }
  void MarkAsOf(absl::Time at) { as_of_ = std::max(as_of_, at); }
  bool lapsed() const { return !lapses_.empty(); }
  // Daemons may hold claims of an earlier bridge, which are to last until the lapse ends.
  bool claims_unknown() const { return claims_unknown_; }
  // Whether what daemons were told is void. True once each time.
  bool HasVoid() const { return void_; }
  bool TakeVoid() { return std::exchange(void_, false); }
  // Whether a lapsed replica's trusted blocks are due to be told again. True once each time.
  bool TakeRefresh(absl::Time now);

  BlockLedger ledger;

 private:
  // What has been reported is void, and nothing of it is in doubt any more.
  void Void();

  struct Lapsed {
    uint32_t epoch;  // of the ledger, behind the loss
    absl::Time until;
  };

  const LedgerOptions* const options_;
  std::deque<Lapsed> lapses_;
  bool heard_ = false;
  bool claims_unknown_ = false;
  bool void_ = false;
  absl::Time refresh_at_ = absl::InfiniteFuture();
  absl::Time as_of_ = absl::InfinitePast();
};

struct StreamOptions {
  SequencerOptions sequencer;
  LedgerOptions ledger;
  // With data-parallel ranks: the one that a batch without a rank is of. nullopt: ranks mean nothing.
  std::optional<int64_t> rank = std::nullopt;
  // With ranks: whether the stream may take this rank, which it has not had before, for its own. A rank is a replica,
  // and two streams that told of one would undo each other's claims.
  std::function<bool(int64_t rank)> may_take_rank = [](int64_t) { return true; };
};

struct StreamCounts {
  int64_t stored = 0;  // events
  int64_t removed = 0;
  int64_t cleared = 0;
  int64_t unknown = 0;
  int64_t malformed = 0;
  int64_t refused_ranks = 0;  // batches of ranks that the stream may not take
};

class EngineStream final : private SequencerListener {
 public:
  // nullopt: the one replica of a deployment without ranks.
  using Rank = std::optional<int64_t>;

  // `request_replay` is called from within the methods below.
  EngineStream(const StreamOptions& options, std::function<void(uint64_t from)> request_replay);
  EngineStream(const EngineStream&) = delete;
  EngineStream& operator=(const EngineStream&) = delete;

  // As in BatchSequencer.
  void OnLive(uint64_t sequence, std::string_view payload, Moment now);
  void OnReplayed(uint64_t sequence, std::string_view payload, Moment now);
  void OnReplayEnd(Moment now);
  void OnReconnected(Moment now);
  void OnTick(Moment now);
  // The engine is gone, and with it all that its replicas held.
  void OnEngineGone(Moment now);
  // Begins without replicas, as a stream with ranks does, so that ranks are taken anew.
  void ForgetReplicas() { replicas_.clear(); }

  const BatchSequencer& sequencer() const { return sequencer_; }
  const StreamCounts& counts() const { return counts_; }
  // ts of the last batch, as far as it has come; infinite past before the first.
  absl::Time last_batch_at() const { return last_batch_at_; }
  // A replica stays once it is there, until ForgetReplicas(). Without ranks it is there from the start; the stream's
  // own rank is since the first start of an engine, heard or not.
  const std::map<Rank, std::unique_ptr<EngineReplica>>& replicas() const { return replicas_; }

  // Whether anything is known of the engine.
  bool started() const { return sequencer_.started(); }
  // Whether the lease of `replica` may be renewed.
  bool MayLease(const EngineReplica& replica) const { return sequencer_.in_sync() && !replica.lapsed(); }

 private:
  void OnBatch(const KvBatch& batch) override;
  void OnEngineStart(bool known_from_start) override;
  void OnLateStart() override;
  void OnLoss(bool same_engine) override;
  void RequestReplay(uint64_t from) override { request_replay_(from); }

  EngineReplica* AddReplica(Rank rank);
  // The one that a batch of `rank` is of. Null when it may not be taken.
  EngineReplica* ReplicaOf(Rank rank);

  const StreamOptions options_;
  const std::function<void(uint64_t)> request_replay_;
  BatchSequencer sequencer_;
  std::map<Rank, std::unique_ptr<EngineReplica>> replicas_;
  Moment now_ = {absl::InfinitePast(), absl::InfinitePast()};  // of the call under way
  absl::Time last_batch_at_ = absl::InfinitePast();
  bool started_late_ = false;  // no engine start has been seen
  bool complete_ = false;      // all of the engine's batches since its start have been seen
  StreamCounts counts_;
};

}  // namespace icache
