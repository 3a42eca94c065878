#include "routing/gates/candidates.h"

#include <algorithm>

namespace icache {

void CandidateFilter::Set(absl::Span<const std::string_view> replica_ids) {
  list_ = replica_ids;
  set_.clear();
  if (IsHashed()) set_.insert(list_.begin(), list_.end());
}

bool CandidateFilter::Admits(std::string_view replica_id) const {
  if (AdmitsAll()) return true;
  if (IsHashed()) return set_.contains(replica_id);
  return std::find(list_.begin(), list_.end(), replica_id) != list_.end();
}

void CandidateFilter::Filter(absl::Span<const ReplicaMatch> matches, std::vector<ScoredReplica>* rows) const {
  if (AdmitsAll()) return;
  std::erase_if(*rows, [&](const ScoredReplica& row) { return !Admits(matches[row.match].replica_id); });
}

void CandidateFilter::ListPresent(const ScopeView& view, std::vector<std::string_view>* present) const {
  present->clear();
  const size_t replica_count = view.ReplicaCount();
  if (replica_count <= (IsHashed() ? set_.size() : list_.size())) {
    for (size_t i = 0; i < replica_count; ++i) {
      if (Admits(view.ReplicaAt(i))) present->push_back(view.ReplicaAt(i));
    }
    return;
  }
  const auto add_if_present = [&view, present](std::string_view replica_id) {
    if (view.HasReplica(replica_id)) present->push_back(replica_id);
  };
  if (IsHashed()) {
    std::for_each(set_.begin(), set_.end(), add_if_present);
  } else {
    std::for_each(list_.begin(), list_.end(), add_if_present);
  }
  std::sort(present->begin(), present->end());
  present->erase(std::unique(present->begin(), present->end()), present->end());
}

}  // namespace icache
