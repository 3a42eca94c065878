// EngineWorker: one engine, from its sockets to the outboxes, on a thread of its own.
//
//   sockets -> EngineStream, one per rank's port -> ledgers -> UpdateWriter -> every daemon's outbox
//
// Changes wait for others for at most batch_interval. What is sent is the same for all daemons, unless one needs to be
// told everything. One engine's faults stay with it: another's is another thread with sockets of its own.
//
// Thread-safe where it says so; Start, Stop and destruction are its owner's.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/daemon_set.h"
#include "bridge/event_socket.h"
#include "bridge/metrics_scraper.h"
#include "bridge/options.h"
#include "bridge/stamp_clock.h"
#include "bridge/update_writer.h"
#include "icache/base/moment.h"
#include "icache/base/mutex.h"
#include "icache/engine/engine_stream.h"
#include "icache/telemetry/logging.h"

namespace icache {

class EngineWorker {
 public:
  // What /metrics says of one engine, all its ranks together.
  struct Stats {
    bool connected = false;  // every stream's publisher is there
    bool in_sync = false;    // nothing is known to be missing
    bool lapsed = false;     // some replica has no lease, for events were lost
    SequencerCounts batches;
    StreamCounts events;
    BlockDropCounts drops = {};
    int64_t malformed_messages = 0;
    int64_t resubscriptions = 0;
    int64_t scrape_failures = 0;
    int64_t leases = 0;          // renewed
    int64_t times_gone = 0;      // the engine
    size_t waiting_batches = 0;  // for a replay
    size_t held_blocks = 0;
    size_t suspect_blocks = 0;
    size_t memory_bytes = 0;  // of the ledgers
    absl::Time last_batch_at = absl::InfinitePast();
  };

  // All but `engine` and `report`, which are copied, must outlive the worker. Errors: Unavailable for a socket that
  // cannot be opened.
  static absl::StatusOr<std::unique_ptr<EngineWorker>> Start(const EngineOptions& engine, const ReportOptions& report,
                                                             EventContext* context, DaemonSet* daemons, Logger* logger);
  // Stops.
  ~EngineWorker();
  EngineWorker(const EngineWorker&) = delete;
  EngineWorker& operator=(const EngineWorker&) = delete;

  // Says that it is to end: the thread reports what is waiting, or clears what was reported if that is asked for.
  // Stop() then waits for it. Both are idempotent.
  void BeginStop();
  void Stop();

  const EngineOptions& engine() const { return engine_; }
  // Thread-safe.
  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  // What stays of a replica, whichever stream speaks for it, or none any more.
  struct Account {
    ReplicaId id;
    StampClock stamps;
  };
  // What the thread knows of a replica beside its ledger.
  struct Replica {
    ReplicaNames names;
    Account* account = nullptr;
    EngineReplica* state = nullptr;
    const EngineStream* stream = nullptr;
    const EventSocket* socket = nullptr;
    absl::Time refresh_base_at = absl::InfinitePast();  // of daemons without leases
    std::optional<Moment> held_up_at;                   // when all was last told, or its lease renewed
  };
  struct Stream {
    std::unique_ptr<EngineStream> events;
    absl::Time lost_at = absl::InfiniteFuture();  // since when the publisher is missing
    bool seen = false;                            // a publisher, ever
    bool gone = false;
  };

  EngineWorker(const EngineOptions& engine, const ReportOptions& report, DaemonSet* daemons, Logger* logger);

  absl::Status Open(EventContext* context);
  void Run();
  void Tick(Moment now);
  void LookForGoneEngine(size_t index, Moment now);
  void FindReplicas();
  // A rank stays with the port that first spoke of it. But when an engine that has started anew speaks of one that its
  // port may not take, all the ports' ranks are cleared and taken anew.
  void RebindRanks(Moment now);
  ReplicaNames NamesOf(const std::string& replica) const;
  bool HasChanges() const;
  // Reports what has changed to all, and everything to those who need it.
  void Report(Moment now);
  void ReportReplica(Replica* replica, const DaemonSet::Links& links, Moment now);
  // Clears those that no stream speaks for any more, at daemons that have been told of them and come back.
  void ClearRetired(const DaemonSet::Links& links, Moment now);
  // Whether `replica` is known to hold what was reported, as of now.
  static bool MayLease(const Replica& replica);
  void RenewLeases(Moment now);
  void ReportStats(const EngineStats& stats, Moment now);
  // Clears all that was told, in place of what waits.
  void ClearAll(Moment now);
  void PushToAll(const Replica& replica, std::shared_ptr<const CacheStateUpdate> update, absl::Time made_at);
  std::vector<icache::Report> WriteAll(Replica* replica, Moment now, bool clear);
  Stats GatherStats() const;
  void PublishStats(const Stats& stats) ABSL_LOCKS_EXCLUDED(mutex_);
  // Says in the log what changed: lapses as they come and go, what was dropped or failed once a minute and kind.
  void LogChanges(const Stats& stats, absl::Time now);

  const EngineOptions engine_;
  const ReportOptions report_;
  DaemonSet* const daemons_;
  Logger* const logger_;

  // The thread's own. Times are of the steady clock.
  std::vector<std::unique_ptr<EventSocket>> sockets_;
  std::vector<Stream> streams_;                                        // side by side with sockets_
  std::map<int64_t, size_t> rank_streams_;                             // the stream of each rank; at most engine_.ranks
  std::map<std::pair<size_t, EngineStream::Rank>, Replica> replicas_;  // by stream and rank
  std::map<std::string, Account> accounts_;                            // by replica
  int64_t starts_bound_ = 0;                                           // of engines, when ranks were last bound
  int64_t refused_seen_ = 0;                                           // batches of ranks that were refused
  BlockDropCounts drops_before_ = {};                                  // of replicas that are no more
  std::unique_ptr<MetricsScraper> scraper_;                            // null without a URL
  absl::Time changed_at_ = absl::InfiniteFuture();                     // of the oldest change not reported
  absl::Time next_tick_ = absl::InfinitePast();
  absl::Time next_lease_ = absl::InfinitePast();
  int64_t leases_ = 0;
  int64_t times_gone_ = 0;
  struct LoggedCount {
    int64_t count = 0;
    absl::Time at = absl::InfinitePast();
  };
  std::map<std::string_view, LoggedCount> logged_counts_;  // by kind
  bool logged_lapse_ = false;

  std::atomic<bool> stopping_ = false;
  mutable Mutex mutex_;
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;  // last
};

}  // namespace icache
