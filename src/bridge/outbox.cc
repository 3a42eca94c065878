#include "bridge/outbox.h"

#include <algorithm>
#include <utility>

namespace icache {

Outbox::Need Outbox::NeedOf(ReplicaId replica) const {
  MutexLock lock(&mutex_);
  if (!connected_) return Need::kChanges;
  const auto found = queues_.find(replica);
  if (found == queues_.end()) return Need::kEverythingAtFirst;
  if (!found->second.owed || found->second.overflowed) return Need::kChanges;
  return found->second.told ? Need::kEverything : Need::kEverythingAtFirst;
}

void Outbox::Drop(Queue* queue) {
  queue->reports.clear();
  queue->changed_blocks = queue->uncounted = 0;
}

void Outbox::Owe(ReplicaId replica, absl::Time fence) {
  MutexLock lock(&mutex_);
  const auto found = queues_.find(replica);
  if (found == queues_.end() || found->second.retired) return;
  Drop(&found->second);
  found->second.owed = true;
  found->second.fence = std::max(found->second.fence, fence);
}

absl::Time Outbox::FenceOf(ReplicaId replica) const {
  MutexLock lock(&mutex_);
  const auto found = queues_.find(replica);
  return found == queues_.end() ? absl::InfinitePast() : found->second.fence;
}

void Outbox::Restart(ReplicaId replica, std::vector<Report> reports) {
  Replace(replica, std::move(reports), /*retired=*/false);
}

void Outbox::Retire(ReplicaId replica, std::vector<Report> reports) {
  Replace(replica, std::move(reports), /*retired=*/true);
}

void Outbox::Replace(ReplicaId replica, std::vector<Report> reports, bool retired) {
  {
    MutexLock lock(&mutex_);
    if (!connected_) return;
    Queue& queue = queues_[replica];
    Drop(&queue);
    queue.uncounted = reports.size();
    for (Report& report : reports) queue.reports.push_back(std::move(report));
    queue.owed = queue.overflowed = false;
    queue.told = true;
    queue.retired = retired;
    ++restarts_;
  }
  wake_();
}

void Outbox::Push(ReplicaId replica, const Report& report) {
  {
    MutexLock lock(&mutex_);
    Queue& queue = queues_[replica];
    if (queue.owed) return;
    queue.changed_blocks += report.blocks;
    if (queue.changed_blocks > max_blocks_) {
      Drop(&queue);
      queue.owed = queue.overflowed = true;
      ++overflows_;
    } else {
      queue.reports.push_back(report);
    }
  }
  wake_();
}

bool Outbox::MayTellAgain(ReplicaId replica) const {
  MutexLock lock(&mutex_);
  const auto found = queues_.find(replica);
  return found != queues_.end() && !found->second.owed && found->second.uncounted == 0;
}

void Outbox::PushAgain(ReplicaId replica, const std::vector<Report>& reports) {
  {
    MutexLock lock(&mutex_);
    Queue& queue = queues_[replica];
    if (queue.owed) return;
    // All that waits counts as told anew with them, or it could overflow at once.
    queue.reports.insert(queue.reports.end(), reports.begin(), reports.end());
    queue.uncounted = queue.reports.size();
    queue.changed_blocks = 0;
  }
  wake_();
}

bool Outbox::base_wire() const {
  MutexLock lock(&mutex_);
  return connected_ && base_wire_;
}

void Outbox::OnConnected(bool base_wire) {
  MutexLock lock(&mutex_);
  connected_ = true;
  base_wire_ = base_wire;
}

void Outbox::OnDisconnected() {
  MutexLock lock(&mutex_);
  connected_ = false;
  for (auto& [id, queue] : queues_) {
    Drop(&queue);
    queue.owed = true;
    queue.overflowed = false;
  }
}

std::optional<Outbox::Next> Outbox::Pop() {
  MutexLock lock(&mutex_);
  for (auto& [id, queue] : queues_) queue.overflowed = false;  // the daemon takes something again
  const auto has_report = [](const auto& entry) { return !entry.second.reports.empty(); };
  auto next = std::find_if(queues_.upper_bound(last_popped_), queues_.end(), has_report);
  if (next == queues_.end()) next = std::find_if(queues_.begin(), queues_.end(), has_report);
  if (next == queues_.end()) return std::nullopt;
  Queue& queue = next->second;
  last_popped_ = next->first;
  Report report = std::move(queue.reports.front());
  queue.reports.pop_front();
  if (queue.uncounted > 0) {
    --queue.uncounted;
  } else {
    queue.changed_blocks -= report.blocks;
  }
  return Next{next->first, std::move(report)};
}

Outbox::Stats Outbox::stats() const {
  MutexLock lock(&mutex_);
  Stats stats;
  stats.connected = connected_;
  stats.restarts = restarts_;
  stats.overflows = overflows_;
  for (const auto& [id, queue] : queues_) {
    stats.queued_updates += queue.reports.size();
    for (const Report& report : queue.reports) stats.queued_blocks += report.blocks;
    if (!queue.reports.empty()) stats.oldest = std::min(stats.oldest, queue.reports.front().made_at);
  }
  return stats;
}

}  // namespace icache
