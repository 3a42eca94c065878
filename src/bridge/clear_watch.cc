#include "bridge/clear_watch.h"

#include <algorithm>
#include <utility>

namespace icache {
namespace {

// How long the daemon may take to speak of a clear. It does not of one that is fenced off.
constexpr absl::Duration kOwnPatience = absl::Seconds(10);
// Between two times that a replica is told anew.
constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Minutes(5);

}  // namespace

void ClearWatch::OnSent(ReplicaId replica, const CacheStateUpdate& update, absl::Time now) {
  Told& told = told_[{update.tenant_id(), update.model_id(), update.replica_id()}];
  told.id = replica;
  if (!update.clear()) return;
  ++told.own_clears;
  told.own_until = now + kOwnPatience;
}

bool ClearWatch::OnCleared(const inferencecache::v1alpha1::CacheEvent& event, absl::Time now) {
  const auto found = told_.find({event.tenant_id(), event.model_id(), event.replica_id()});
  if (found == told_.end()) return false;
  Told& told = found->second;
  if (now > told.own_until) told.own_clears = 0;
  if (told.own_clears > 0) {
    --told.own_clears;
    return false;
  }
  if (told.due_at == absl::InfiniteFuture()) {
    const bool calm = now - told.last_due_at > 2 * told.pause;
    told.pause = calm ? kFirstPause : std::min(2 * told.pause, kLongestPause);
    told.due_at = std::max(now, told.last_due_at + told.pause);
  }
  return true;
}

std::vector<ReplicaId> ClearWatch::TakeDue(absl::Time now) {
  std::vector<ReplicaId> due;
  for (auto& [names, told] : told_) {
    if (now < told.due_at) continue;
    told.last_due_at = std::exchange(told.due_at, absl::InfiniteFuture());
    due.push_back(told.id);
  }
  return due;
}

}  // namespace icache
