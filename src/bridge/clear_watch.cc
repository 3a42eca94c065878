#include "bridge/clear_watch.h"

#include <algorithm>
#include <utility>

namespace icache {
namespace {

// How long the daemon may take to speak of a clear.
constexpr absl::Duration kOwnPatience = absl::Seconds(10);
constexpr size_t kMaxOwn = 1024;  // that it has not spoken of, of one replica
// Between two times that a replica is told anew.
constexpr absl::Duration kFirstPause = absl::Seconds(1);
constexpr absl::Duration kLongestPause = absl::Minutes(5);

}  // namespace

void ClearWatch::OnSent(ReplicaId replica, const CacheStateUpdate& update, absl::Time now) {
  Told& told = told_[{update.tenant_id(), update.model_id(), update.replica_id()}];
  told.id = replica;
  if (!update.clear()) return;
  if (now > told.own_until || told.own.size() == kMaxOwn) told.own.clear();
  const bool stamped = update.timestamp_us() != 0;
  told.own.push_back(stamped ? absl::FromUnixMicros(update.timestamp_us()) : absl::InfiniteFuture());
  told.own_until = now + kOwnPatience;
}

ClearWatch::Verdict ClearWatch::OnCleared(const inferencecache::v1alpha1::CacheEvent& event, absl::Time now) {
  const auto found = told_.find({event.tenant_id(), event.model_id(), event.replica_id()});
  if (found == told_.end()) return Verdict::kExpected;
  Told& told = found->second;
  if (now > told.own_until) told.own.clear();
  const absl::Time counts_for = absl::FromUnixMicros(event.timestamp_us());
  Verdict verdict = Verdict::kForeign;
  if (!told.own.empty()) {
    // It counts for the stamp, or for the daemon's now where that is earlier.
    if (counts_for <= told.own.front()) {
      told.own.pop_front();
      return Verdict::kExpected;
    }
    told.own.clear();
    verdict = Verdict::kFenced;
  }
  told.fence = std::max(told.fence, counts_for + absl::Microseconds(1));
  MakeDue(&told, now);
  return verdict;
}

size_t ClearWatch::OnMissed(const std::string& tenant, const std::string& model, absl::Time now) {
  size_t replicas = 0;
  for (auto it = told_.lower_bound({tenant, model, ""}); it != told_.end(); ++it) {
    const auto& [its_tenant, its_model, replica] = it->first;
    if (its_tenant != tenant || its_model != model) break;
    it->second.own.clear();
    replicas += MakeDue(&it->second, now);
  }
  return replicas;
}

bool ClearWatch::MakeDue(Told* told, absl::Time now) {
  if (told->due_at != absl::InfiniteFuture()) return false;
  const bool calm = now - told->last_due_at > 2 * told->pause;
  told->pause = calm ? kFirstPause : std::min(2 * told->pause, kLongestPause);
  told->due_at = std::max(now, told->last_due_at + told->pause);
  return true;
}

std::vector<ClearWatch::Due> ClearWatch::TakeDue(absl::Time now) {
  std::vector<Due> due;
  for (auto& [names, told] : told_) {
    if (now < told.due_at) continue;
    told.last_due_at = std::exchange(told.due_at, absl::InfiniteFuture());
    due.push_back({told.id, told.fence});
  }
  return due;
}

}  // namespace icache
