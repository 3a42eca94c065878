// CandidateFilter: the replicas that a request lets into its answer (contract/wire.md extension 101).
//
// A short list is scanned; a long one is hashed when it is set, which callers do before they hold a lock, so that its
// length costs nobody else. Thread-compatible; reuse one object to keep its memory.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "icache/base/string_map.h"
#include "icache/index/prefix_index.h"
#include "icache/ranking/ranking.h"

namespace icache {

class CandidateFilter {
 public:
  // Lists up to this long are scanned.
  static constexpr size_t kScanLimit = 16;

  // `replica_ids` (empty = every replica is a candidate; duplicates are allowed) must outlive the next Set().
  void Set(absl::Span<const std::string_view> replica_ids);

  bool AdmitsAll() const { return list_.empty(); }
  bool Admits(std::string_view replica_id) const;

  // Drops the rows of other replicas; the order stays. The rows are of `matches`.
  void Filter(absl::Span<const ReplicaMatch> matches, std::vector<ScoredReplica>* rows) const;

  // Replaces `present` by the candidates present in the view's scope, sorted bytewise, each once. Requires
  // !AdmitsAll(). O(the shorter of the list and the scope's replicas), but for sorting.
  void ListPresent(const ScopeView& view, std::vector<std::string_view>* present) const;

 private:
  bool IsHashed() const { return list_.size() > kScanLimit; }

  absl::Span<const std::string_view> list_;
  absl::flat_hash_set<std::string_view, StringHash, StringEqual> set_;  // of list_, if it is hashed
};

}  // namespace icache
