// ClearWatch: tells the clears that somebody else makes at a daemon from the bridge's own, and when to tell the daemon
// everything anew for their sake.
//
// A daemon that is watched says of every clear that it makes, in order. So what it says while one of the bridge's is on
// its way is of that one. Whoever clears again and again, as a second bridge of the same replica does, is answered less
// and less often.
//
// Pure. Thread-compatible. Source: contract/index.md ALL_CLEARED.
#pragma once

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
  // `update` of `replica` has been sent.
  void OnSent(ReplicaId replica, const CacheStateUpdate& update, absl::Time now);
  // The daemon says that a replica is cleared. True when it is one of those that were told of, by somebody else.
  bool OnCleared(const inferencecache::v1alpha1::CacheEvent& event, absl::Time now);
  // The replicas that are to be told anew now. Each once.
  std::vector<ReplicaId> TakeDue(absl::Time now);

 private:
  struct Told {
    ReplicaId id = 0;
    int own_clears = 0;  // sent and not spoken of
    absl::Time own_until = absl::InfinitePast();
    absl::Time due_at = absl::InfiniteFuture();
    absl::Time last_due_at = absl::InfinitePast();
    absl::Duration pause = absl::ZeroDuration();
  };
  using Names = std::tuple<std::string, std::string, std::string>;  // tenant, model, replica

  std::map<Names, Told> told_;
};

}  // namespace icache
