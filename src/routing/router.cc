// One lookup is one Router::Call: a short-lived object that holds what the steps share. Its functions follow the order
// of contract/lookup.md, and what a step has to decide lives in a file of its own.
#include "icache/routing/router.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "icache/base/published.h"
#include "routing/affinity.h"
#include "routing/diagnosis.h"
#include "routing/explain_trace.h"
#include "routing/gates/candidates.h"
#include "routing/gates/floors.h"
#include "routing/request_input.h"

namespace icache {

struct LookupScratch::Buffers {
  Published<PolicySet>::Reader policies;
  std::vector<uint64_t> prefix_hashes;
  CandidateFilter candidates;
  std::vector<ReplicaMatch> matches;  // what the rows are made of
  std::vector<ScoredReplica> rows;
  SeedHasher seed_hasher;
  std::vector<std::string_view> present;
  std::vector<ReplicaMatch> credited;
};

LookupScratch::LookupScratch() : buffers_(std::make_unique<Buffers>()) {}
LookupScratch::~LookupScratch() = default;

namespace {

// When the answer is due: the caller's deadline or the policy's budget, whichever ends first. Source: step 1.
absl::Time DeadlineOf(const LookupRequest& request, const CachePolicy& policy, absl::Time received_at) {
  if (policy.lookup_timeout_ms <= 0) return request.deadline;
  return std::min(request.deadline, received_at + absl::Milliseconds(policy.lookup_timeout_ms));
}

// What the index had to say.
enum class Finding {
  kPrefixMatch,  // rows are replicas that hold the key
  kTenantHot,    // rows are replicas that are warm in general
  kMiss,         // neither; the keys may be to blame
  kNone,         // something, but nothing that may be told: "none" of contract/lookup.md
};

}  // namespace

// One call, from its first check to its answer. What it does on its way it tells `trace`.
template <typename Trace>
class Router::Call {
 public:
  Call(const Router& router, const LookupRequest& request, const CachePolicy& policy, absl::Time received_at,
       Trace trace, LookupScratch::Buffers* buffers, LookupAnswer* answer)
      : router_(router),
        request_(request),
        policy_(policy),
        ttl_(router.policies_->TtlOf(policy)),
        deadline_(DeadlineOf(request, policy, received_at)),
        now_(router.clock_->Now()),
        trace_(std::move(trace)),
        buffers_(*buffers),
        answer_(*answer) {}

  // Fills the answer's rows and adapter, and returns its reason.
  ReasonCode Run() {
    answer_.rows.Reset(0, 0);
    answer_.adapter_id = {};
    if (now_ >= deadline_) return ReasonCode::kTimeout;

    const ResolvedChain resolved = ResolveChain(request_.chain, router_.options_.max_chain_blocks);
    if (policy_.require_chain && !HasChain(resolved)) return ReasonCode::kPolicyRequiresChain;

    const std::optional<LookupKey> key =
        ResolveKey(request_, resolved, policy_, router_.options_, &buffers_.prefix_hashes);
    trace_.OnInput(resolved, key);
    if (DeadlineHasPassed()) return ReasonCode::kTimeout;
    if (!key.has_value()) return ReasonCode::kNoHint;

    const PrefixGate gate = PassPrefixGate(key->tokens, policy_);
    trace_.OnGate(gate);
    if (gate == PrefixGate::kShut) return ReasonCode::kNoHint;

    answer_.adapter_id = request_.adapter_id;
    if (request_.tenant_id.empty() || request_.model_id.empty() || request_.hash_scheme.empty()) {
      return ReasonCode::kNoHint;
    }

    buffers_.candidates.Set(request_.candidate_replica_ids);
    ReasonCode reason = ReasonCode::kNoHint;
    router_.index_->Read({request_.tenant_id, request_.model_id, request_.hash_scheme},
                         [&](const ScopeView& view) { reason = AskIndex(view, *key, gate); });
    return reason;
  }

  Trace& trace() { return trace_; }

 private:
  bool DeadlineHasPassed() const { return deadline_ < absl::InfiniteFuture() && router_.clock_->Now() >= deadline_; }

  // Steps 5 to 10, under the index's lock.
  ReasonCode AskIndex(const ScopeView& view, const LookupKey& key, PrefixGate gate) {
    const RankContext context{
        .now = now_, .ttl = ttl_, .ttft_ms = request_.ttft_ms, .replicas_in_scope = view.ReplicaCount()};
    std::string_view pick;
    const ReasonCode reason = Decide(view, key, context, gate, &pick);
    trace_.OnIndexAsked(view, key, context, reason, pick);
    return reason;
  }

  ReasonCode Decide(const ScopeView& view, const LookupKey& key, const RankContext& context, PrefixGate gate,
                    std::string_view* pick) {
    Finding finding = Find(view, key, context);
    if (DeadlineHasPassed()) return ReasonCode::kTimeout;

    if (finding == Finding::kMiss) {
      if (const std::optional<ReasonCode> reason = Diagnose(view.Known())) return *reason;
      finding = Finding::kNone;
    }
    finding = PassFloors(finding, gate);
    if (finding == Finding::kNone) *pick = PickAffinity(view, key);
    // The last look at the clock: from here on the answer counts as delivered.
    if (DeadlineHasPassed()) return ReasonCode::kTimeout;

    switch (finding) {
      case Finding::kPrefixMatch:
        DeliverRows();
        trace_.OnRows(RowKind::kMatch, RowStage::kDelivered, buffers_.rows);
        if (Trace::kCreditsDelivered && policy_.eviction == EvictionAlgorithm::kLfu) CreditDelivered(view, key);
        return ReasonCode::kPrefixMatch;
      case Finding::kTenantHot:
        DeliverRows();
        trace_.OnRows(RowKind::kWarm, RowStage::kDelivered, buffers_.rows);
        return ReasonCode::kTenantHot;
      case Finding::kMiss:
      case Finding::kNone:
        break;
    }
    if (pick->empty()) return ReasonCode::kNoHint;
    DeliverPick(*pick);
    return ReasonCode::kAffinityHint;
  }

  // Steps 5 and 6: matches and ranks; leaves the candidates' rows in buffers_.rows.
  Finding Find(const ScopeView& view, const LookupKey& key, const RankContext& context) {
    Match(view, key);
    RankMatches(buffers_.matches, key.kind == KeyKind::kChain ? MatchKind::kChain : MatchKind::kExact, context,
                router_.options_.ranker, &buffers_.rows);
    trace_.OnRanked(RowKind::kMatch, buffers_.matches, buffers_.rows);
    if (!buffers_.rows.empty()) return Admit(Finding::kPrefixMatch);
    if (key.kind == KeyKind::kChain) return Finding::kMiss;

    buffers_.matches.clear();
    view.ForEachStats([this](std::string_view replica_id, const ReplicaStats& stats, bool present) {
      if (present) buffers_.matches.push_back({.replica_id = replica_id, .tier = Tier::kUnknown, .stats = &stats});
    });
    RankTenantHot(buffers_.matches, context, router_.options_.ranker, &buffers_.rows);
    trace_.OnRanked(RowKind::kWarm, buffers_.matches, buffers_.rows);
    if (buffers_.rows.empty()) return Finding::kMiss;
    return policy_.enable_tenant_hot ? Admit(Finding::kTenantHot) : Finding::kNone;
  }

  void Match(const ScopeView& view, const LookupKey& key) {
    const absl::Time expired_through = now_ - ttl_;
    switch (key.kind) {
      case KeyKind::kNothing:
        buffers_.matches.clear();
        return;
      case KeyKind::kExact:
        view.MatchHash(request_.adapter_id, key.hash, expired_through, &buffers_.matches);
        return;
      case KeyKind::kChain:
        view.MatchChain(
            request_.adapter_id, key.chain, expired_through, [this] { return DeadlineHasPassed(); }, &buffers_.matches);
        return;
    }
  }

  // Drops the rows that are no candidates: `finding`, or none when no row is left.
  Finding Admit(Finding finding) {
    buffers_.candidates.Filter(buffers_.matches, &buffers_.rows);
    TraceRows(RowStage::kAdmitted, finding);
    return buffers_.rows.empty() ? Finding::kNone : finding;
  }

  void TraceRows(RowStage stage, Finding finding) {
    if (finding == Finding::kPrefixMatch) trace_.OnRows(RowKind::kMatch, stage, buffers_.rows);
    if (finding == Finding::kTenantHot) trace_.OnRows(RowKind::kWarm, stage, buffers_.rows);
  }

  // Step 8.
  Finding PassFloors(Finding finding, PrefixGate gate) {
    if (gate == PrefixGate::kDowngrade) return Finding::kNone;
    if (finding == Finding::kPrefixMatch) ApplyFloors(policy_, &buffers_.rows);
    TraceRows(RowStage::kAboveFloors, finding);
    if (finding != Finding::kPrefixMatch) return finding;
    return buffers_.rows.empty() ? Finding::kNone : finding;
  }

  // Step 9: the picked replica, "" for none.
  std::string_view PickAffinity(const ScopeView& view, const LookupKey& key) {
    // Where chains are off, arrays that make no chain may ride along; they still rule a hint out.
    const ChainFields& chain = request_.chain;
    if (!policy_.affinity_routing || chain.block_hashes.size() != chain.block_token_counts.size()) return {};
    const std::optional<uint64_t> seed_hash = buffers_.seed_hasher.Hash(key);
    if (!seed_hash.has_value()) return {};
    return PickReplica(view, buffers_.candidates, *seed_hash, &buffers_.present);
  }

  // Step 10: the best max_replicas rows. Names are copied, since the view's own die with it.
  void DeliverRows() {
    std::vector<ScoredReplica>& rows = buffers_.rows;
    if (request_.max_replicas > 0 && rows.size() > static_cast<size_t>(request_.max_replicas)) {
      rows.resize(static_cast<size_t>(request_.max_replicas));
    }
    const std::vector<ReplicaMatch>& matches = buffers_.matches;
    size_t name_bytes = 0;
    for (const ScoredReplica& row : rows) name_bytes += matches[row.match].replica_id.size();
    answer_.rows.Reset(rows.size(), name_bytes);
    for (const ScoredReplica& row : rows) {
      const ReplicaMatch& match = matches[row.match];
      answer_.rows.Add({.replica_id = match.replica_id,
                        .score = row.score,
                        .matched_tokens = row.matched_tokens,
                        .estimated_cache_hit_prob = row.hit_probability,
                        .tier = match.tier});
    }
  }

  void DeliverPick(std::string_view replica_id) {
    answer_.rows.Reset(1, replica_id.size());
    answer_.rows.Add({.replica_id = replica_id});
  }

  // LFU credit for the delivered rows alone. Source: contract/index.md "Access count".
  void CreditDelivered(const ScopeView& view, const LookupKey& key) {
    buffers_.credited.clear();
    for (const ScoredReplica& row : buffers_.rows) buffers_.credited.push_back(buffers_.matches[row.match]);
    if (key.kind == KeyKind::kChain) {
      view.CreditChain(request_.adapter_id, key.chain, buffers_.credited);
    } else {
      view.CreditHash(request_.adapter_id, key.hash, buffers_.credited);
    }
  }

  const Router& router_;
  const LookupRequest& request_;
  const CachePolicy& policy_;
  const absl::Duration ttl_;
  const absl::Time deadline_;
  const absl::Time now_;  // ages everything in this call
  Trace trace_;
  LookupScratch::Buffers& buffers_;
  LookupAnswer& answer_;
};

namespace {

// Whether an answer with `reason` is given only for a model that the index holds.
bool ShowsModelHeld(ReasonCode reason) {
  switch (reason) {
    case ReasonCode::kPrefixMatch:
    case ReasonCode::kTenantHot:
    case ReasonCode::kAffinityHint:
    case ReasonCode::kUnknownHashScheme:
      return true;
    case ReasonCode::kNoHint:
    case ReasonCode::kPolicyRequiresChain:
    case ReasonCode::kTimeout:
    case ReasonCode::kUnknownTenant:
    case ReasonCode::kUnknownModel:
      return false;
  }
  return false;
}

}  // namespace

Router::Router(RouterOptions options, const PrefixIndex* index, const PolicyStore* policies, const Clock* clock,
               LookupObserver* observer)
    : options_(std::move(options)), index_(index), policies_(policies), clock_(clock), observer_(observer) {}

absl::Duration Router::Lookup(const LookupRequest& request, absl::Time received_at, LookupScratch* scratch,
                              LookupAnswer* answer) const {
  const CachePolicy& policy = scratch->buffers_->policies.Current(policies_->sets())->PolicyFor(request.tenant_id);
  answer->reason = Call(*this, request, policy, received_at, NoTrace(), scratch->buffers_.get(), answer).Run();

  const absl::Duration latency = std::max(clock_->Now() - received_at, absl::ZeroDuration());
  if (observer_ != nullptr) {
    const bool matched = answer->reason == ReasonCode::kPrefixMatch;
    observer_->OnLookup({.model_id = request.model_id,
                         .model_held = ShowsModelHeld(answer->reason) || index_->HoldsModel(request.model_id),
                         .reason = answer->reason,
                         .hint_used = !answer->rows.empty(),
                         .latency = latency,
                         .matched_tokens = matched ? answer->rows.front().matched_tokens : 0});
  }
  return latency;
}

ReasonCode Router::Shed() const {
  LookupOutcome outcome;
  outcome.shed = true;
  if (observer_ != nullptr) observer_->OnLookup(outcome);
  return outcome.reason;
}

void Router::Explain(const LookupRequest& request, absl::Time received_at, LookupScratch* scratch,
                     Explanation* explanation) const {
  *explanation = Explanation();
  const std::shared_ptr<const PolicySet> policies = policies_->Current();
  const CachePolicy& policy = policies->PolicyFor(request.tenant_id);
  explanation->now = clock_->Now();
  explanation->block_size = options_.BlockSizeOf(request.model_id);
  explanation->policy = {.policy = policy,
                         .ttl = policies_->TtlOf(policy),
                         .quota = policies->QuotaFor(request.tenant_id),
                         .source = std::string(policies->SourceOf(request.tenant_id))};

  LookupAnswer& answer = explanation->answer;
  Call call(*this, request, policy, received_at, ExplainTrace(request, policy, options_, explanation),
            scratch->buffers_.get(), &answer);
  answer.reason = call.Run();
  explanation->latency = std::max(clock_->Now() - received_at, absl::ZeroDuration());
  index_->Read({request.tenant_id, request.model_id, request.hash_scheme},
               [&](const ScopeView& view) { call.trace().ExplainScope(view); });
  AddNames(request, &explanation->scope);
  call.trace().Conclude(answer.reason);
}

void Router::AddNames(const LookupRequest& request, ScopeExplanation* scope) const {
  switch (scope->known) {
    case KnownKeys::kIndexEmpty:
      return;
    case KnownKeys::kUnknownTenant:
      index_->ListHeld("", "", &scope->names);
      return;
    case KnownKeys::kUnknownModel:
      index_->ListHeld(request.tenant_id, "", &scope->names);
      return;
    case KnownKeys::kUnknownHashScheme:
    case KnownKeys::kScopeKnown:
      index_->ListHeld(request.tenant_id, request.model_id, &scope->names);
      break;
  }
  index_->ForEachModel([&](std::string_view model_id, const ModelStats& stats) {
    if (model_id == request.model_id) scope->last_observation = stats.last_applied;
  });
}

}  // namespace icache
