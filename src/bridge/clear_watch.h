// ClearWatch: tells the clears that somebody else makes at a daemon from the bridge's own, and when to tell the daemon
// everything anew for their sake.
//
// A daemon that is watched says of every clear that it makes, in order, and with the time that it counts for. So what
// it says while some of the bridge's are on their way is of these; but one that counts for a later time than the oldest
// of these was stamped with comes in its place: the daemon holds a fence against what is stamped so early, and has
// dropped it and what came with it. Whatever is in doubt is told anew. Whoever clears again and again, as a second
// bridge of the same replica does, is answered less and less often.
//
// Pure. Source: contract/index.md ALL_CLEARED. Thread-compatible.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "bridge/outbox.h"
#include "bridge/update_writer.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

// `now` is of a steady clock.
class ClearWatch {
 public:
  enum class Verdict {
    kExpected,  // one of the bridge's own, or of a replica that is not its
    kForeign,   // by somebody else
    kFenced,    // in place of one of the bridge's own, which was dropped
  };
  struct Due {
    ReplicaId replica = 0;
    absl::Time fence = absl::InfinitePast();  // what is stamped earlier may be dropped; by the daemon's clock
  };

  // `update` of `replica` has been sent.
  void OnSent(ReplicaId replica, const CacheStateUpdate& update, absl::Time now);
  // The daemon says that a replica is cleared.
  Verdict OnCleared(const inferencecache::v1alpha1::CacheEvent& event, absl::Time now);
  // The daemon may have cleared any replica of the tenant's model, unheard. Returns how many are due for that, and were
  // not already.
  size_t OnMissed(const std::string& tenant, const std::string& model, absl::Time now);
  // The replicas that are to be told anew now. Each once.
  std::vector<Due> TakeDue(absl::Time now);

 private:
  struct Told {
    ReplicaId id = 0;
    std::deque<absl::Time> own;  // stamps of clears that were sent and not spoken of; infinite future = none
    absl::Time own_until = absl::InfinitePast();
    absl::Time fence = absl::InfinitePast();
    absl::Time due_at = absl::InfiniteFuture();
    absl::Time last_due_at = absl::InfinitePast();
    absl::Duration pause = absl::ZeroDuration();
  };
  using Names = std::tuple<std::string, std::string, std::string>;  // tenant, model, replica

  // False where it is already.
  static bool MakeDue(Told* told, absl::Time now);

  std::map<Names, Told> told_;
};

}  // namespace icache
