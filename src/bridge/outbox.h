// Outbox: what waits to be sent to one daemon, in order, replica by replica.
//
// It holds changes while the daemon takes them. A daemon that is not connected is owed everything and gets no changes:
// once it is there, each replica is asked to tell everything anew. So is one whose changes pile up beyond the bound:
// they are thrown away, and it is asked when the daemon is ready to take something.
//
//   1. Per replica, there wait the blocks of one Restart() or PushAgain(), at most max_blocks of changes before it,
//      and as many behind it.
//   2. Nothing that a replica pushes is sent unless what it rests on has been sent before.
//
// Thread-safe: engines write, one sender reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "bridge/update_writer.h"
#include "icache/base/mutex.h"

namespace icache {

// A number that stands for one replica within this process.
using ReplicaId = uint64_t;

class Outbox {
 public:
  // `wake` is called, on any engine's thread, when there is something to send.
  Outbox(size_t max_blocks, std::function<void()> wake) : max_blocks_(max_blocks), wake_(std::move(wake)) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // ---- Engines; Owe() the sender, too ----

  enum class Need {
    kChanges,           // only what is new
    kEverything,        // from a clear on
    kEverythingAtFirst  // likewise, and it has never been told anything by this process
  };
  // What the daemon needs of `replica`. kChanges also when nothing can be sent to it now.
  Need NeedOf(ReplicaId replica) const ABSL_LOCKS_EXCLUDED(mutex_);
  // The daemon does not hold any more what it was told of `replica`: it is owed everything, in place of what waits. It
  // may drop what is stamped earlier than `fence`.
  void Owe(ReplicaId replica, absl::Time fence = absl::InfinitePast()) ABSL_LOCKS_EXCLUDED(mutex_);
  // The latest such fence.
  absl::Time FenceOf(ReplicaId replica) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Everything, in place of what waits.
  void Restart(ReplicaId replica, std::vector<Report> reports) ABSL_LOCKS_EXCLUDED(mutex_);
  // Likewise, of a replica that is no more: until the next Restart() it is owed again only to a daemon that was not
  // connected meanwhile, for others may clear and tell of one by its name.
  void Retire(ReplicaId replica, std::vector<Report> reports) ABSL_LOCKS_EXCLUDED(mutex_);
  // A change. Ignored while the daemon is owed everything.
  void Push(ReplicaId replica, const Report& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether everything of `replica` may be told again: nothing that was told so still waits, or a slow daemon's queue
  // would grow without bound.
  bool MayTellAgain(ReplicaId replica) const ABSL_LOCKS_EXCLUDED(mutex_);
  // A change that is not counted: something that was told before. Requires MayTellAgain().
  void PushAgain(ReplicaId replica, const std::vector<Report>& reports) ABSL_LOCKS_EXCLUDED(mutex_);
  // The daemon knows no extension field.
  bool base_wire() const ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- The sender ----

  void OnConnected(bool base_wire) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnDisconnected() ABSL_LOCKS_EXCLUDED(mutex_);
  struct Next {
    ReplicaId replica = 0;
    Report report;
  };
  // The next update to send, replicas in turn.
  std::optional<Next> Pop() ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- Anybody ----

  struct Stats {
    bool connected = false;
    size_t queued_updates = 0;
    size_t queued_blocks = 0;
    absl::Time oldest = absl::InfiniteFuture();  // when the oldest waiting change was made
    int64_t restarts = 0;
    int64_t overflows = 0;
  };
  Stats stats() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Queue {
    std::deque<Report> reports;
    size_t changed_blocks = 0;  // pushed since the last restart, and still waiting
    size_t uncounted = 0;       // reports at the front that do not count
    bool owed = true;           // everything
    bool overflowed = false;    // owed since an overflow that the sender has not come to yet
    bool told = false;          // something, ever
    bool retired = false;
    absl::Time fence = absl::InfinitePast();
  };
  static void Drop(Queue* queue);
  void Replace(ReplicaId replica, std::vector<Report> reports, bool retired) ABSL_LOCKS_EXCLUDED(mutex_);

  const size_t max_blocks_;
  const std::function<void()> wake_;
  mutable Mutex mutex_;
  std::map<ReplicaId, Queue> queues_ ABSL_GUARDED_BY(mutex_);
  ReplicaId last_popped_ ABSL_GUARDED_BY(mutex_) = 0;
  bool connected_ ABSL_GUARDED_BY(mutex_) = false;
  bool base_wire_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t restarts_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t overflows_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace icache
