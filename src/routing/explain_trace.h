// What a lookup tells on its way: nothing (NoTrace), or enough to explain it (ExplainTrace).
//
// Router::Call is a template over the two, so both run the same steps and the plain lookup carries none of this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "icache/base/block_hash.h"
#include "icache/index/prefix_index.h"
#include "icache/policy/cache_policy.h"
#include "icache/ranking/ranking.h"
#include "icache/routing/explanation.h"
#include "icache/routing/lookup.h"
#include "icache/routing/router.h"
#include "routing/gates/floors.h"
#include "routing/request_input.h"

namespace icache {

// Rows are replicas that hold the key, or replicas that are warm in general.
enum class RowKind { kMatch, kWarm };

// How far rows have come.
enum class RowStage : uint8_t { kRanked, kAdmitted, kAboveFloors, kDelivered };

class NoTrace {
 public:
  static constexpr bool kCreditsDelivered = true;

  void OnInput(const ResolvedChain&, const std::optional<LookupKey>&) {}
  void OnGate(PrefixGate) {}
  void OnRanked(RowKind, const std::vector<ReplicaMatch>&, const std::vector<ScoredReplica>&) {}
  void OnRows(RowKind, RowStage, const std::vector<ScoredReplica>&) {}
  void OnIndexAsked(const ScopeView&, const LookupKey&, const RankContext&, ReasonCode, std::string_view) {}
};

// Writes one Explanation. Under the index's lock it does O(rows) work beside the lookup's own, most of it after the
// answer is decided, so that it hardly moves a deadline.
class ExplainTrace {
 public:
  static constexpr bool kCreditsDelivered = false;

  // Refers to all of them.
  ExplainTrace(const LookupRequest& request, const CachePolicy& policy, const RouterOptions& options,
               Explanation* explanation)
      : request_(request), policy_(policy), options_(options), out_(*explanation) {}

  // The input was read: `key` is what came of it.
  void OnInput(const ResolvedChain& resolved, const std::optional<LookupKey>& key);
  void OnGate(PrefixGate gate) { gate_ = gate; }
  // `rows` are the `matches` that were ranked, in order.
  void OnRanked(RowKind kind, const std::vector<ReplicaMatch>& matches, const std::vector<ScoredReplica>& rows) {
    ProgressOf(kind) = {
        .matches = matches, .rows = rows, .reached = std::vector<RowStage>(rows.size(), RowStage::kRanked)};
  }
  // `rows` are those of the ranked ones that have come as far as `stage`, in order.
  void OnRows(RowKind kind, RowStage stage, const std::vector<ScoredReplica>& rows);
  // The index has been asked and the answer is `reason`, with the picked replica if affinity has picked one.
  void OnIndexAsked(const ScopeView& view, const LookupKey& key, const RankContext& context, ReasonCode reason,
                    std::string_view pick);

  // To be called after the lookup, with a view of the request's scope.
  void ExplainScope(const ScopeView& view);
  // To be called last, with the answer's reason.
  void Conclude(ReasonCode reason);

 private:
  // What was ranked and how far each row has come.
  struct Progress {
    // By match: the place of its row, rows.size() without one.
    std::vector<size_t> Places() const;

    std::vector<ReplicaMatch> matches;
    std::vector<ScoredReplica> rows;
    std::vector<RowStage> reached;  // by row
  };
  Progress& ProgressOf(RowKind kind) { return kind == RowKind::kMatch ? matched_ : warm_; }

  RowOutcome OutcomeOf(RowStage reached, const ScoredReplica& row, ReasonCode reason, RowKind kind) const;
  void ExplainMatches(const ScopeView& view, const LookupKey& key, const RankContext& context, ReasonCode reason);
  void ExplainTenantHot(const LookupKey& key, const RankContext& context, ReasonCode reason);
  void ExplainAffinity(const LookupKey& key, ReasonCode reason, std::string_view pick);

  const LookupRequest& request_;
  const CachePolicy& policy_;
  const RouterOptions& options_;
  Explanation& out_;
  PrefixGate gate_ = PrefixGate::kOpen;
  Progress matched_;
  Progress warm_;
};

}  // namespace icache
