#include "routing/explain_trace.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "icache/base/string_map.h"

namespace icache {
namespace {

std::string Count(size_t count, const char* one, const char* many) {
  return std::to_string(count) + " " + (count == 1 ? one : many);
}

// Why ResolveKey() made nothing of the input; its order is ResolveKey()'s.
std::string InputProblem(const LookupRequest& request, const ResolvedChain& resolved, const CachePolicy& policy,
                         const RouterOptions& options) {
  if (policy.enable_chain_matching && resolved.form == ChainForm::kMismatched) {
    return "block_hashes has " + Count(request.chain.block_hashes.size(), "entry", "entries") +
           ", block_token_counts " + std::to_string(request.chain.block_token_counts.size());
  }
  if (policy.enable_chain_matching && resolved.form == ChainForm::kMalformed) {
    return "the chain is malformed: an empty or overlong hash, a negative count, a sum beyond int32, more than " +
           Count(options.max_chain_blocks, "block", "blocks") + ", or packed hashes without tokens_per_block";
  }
  if (!request.prefix_hash.empty()) {
    return "prefix_hash has " + std::to_string(request.prefix_hash.size()) + " bytes, more than " +
           std::to_string(kMaxBlockHashBytes);
  }
  if (!request.token_ids.empty()) {
    const size_t count = request.token_ids.size();
    if (request.token_ids.size() > options.max_token_ids) {
      return Count(count, "token id", "token ids") + ", more than " + std::to_string(options.max_token_ids);
    }
    return Count(count, "token id makes", "token ids make") + " no whole block of " +
           std::to_string(options.BlockSizeOf(request.model_id));
  }
  if (!request.prompt_text.empty()) return "the daemon has no tokenizer for prompt_text";
  return "the policy turns chains off, and there is no other input";
}

InputKind KindOf(const LookupRequest& request, const ResolvedChain& resolved, const LookupKey& key) {
  switch (key.kind) {
    case KeyKind::kNothing:
      return InputKind::kNothing;
    case KeyKind::kExact:
      return request.prefix_hash.empty() ? InputKind::kTokenHash : InputKind::kHash;
    case KeyKind::kChain:
      return resolved.form == ChainForm::kValid ? InputKind::kChain : InputKind::kTokenChain;
  }
  return InputKind::kNothing;
}

PressureSource PressureSourceOf(const ReplicaStats* stats, const RankContext& context) {
  if (stats == nullptr) return PressureSource::kNoStats;
  // As PressureFactor() has it.
  const bool expired = std::min(stats->reported, stats->last_seen) <= context.now - context.ttl;
  return expired ? PressureSource::kStatsExpired : PressureSource::kStats;
}

absl::Duration AgeOf(absl::Time time, absl::Time now) { return std::max(now - time, absl::ZeroDuration()); }

float FreshnessOf(absl::Time time, absl::Time now, absl::Duration ttl) {
  return Freshness(absl::ToInt64Microseconds(now - time), absl::ToInt64Microseconds(ttl));
}

}  // namespace

std::vector<size_t> ExplainTrace::Progress::Places() const {
  std::vector<size_t> places(matches.size(), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) places[rows[i].match] = i;
  return places;
}

void ExplainTrace::OnRows(RowKind kind, RowStage stage, const std::vector<ScoredReplica>& left) {
  Progress& progress = ProgressOf(kind);
  // Rows may have been dropped since, but stay in order.
  size_t next = 0;
  for (size_t i = 0; i < progress.rows.size() && next < left.size(); ++i) {
    if (progress.rows[i].match != left[next].match) continue;
    progress.reached[i] = stage;
    ++next;
  }
}

void ExplainTrace::OnInput(const ResolvedChain& resolved, const std::optional<LookupKey>& key) {
  InputExplanation& input = out_.input;
  if (!key.has_value()) {
    input.kind = InputKind::kUnusable;
    input.problem = InputProblem(request_, resolved, policy_, options_);
    return;
  }
  input.kind = KindOf(request_, resolved, *key);
  input.blocks = key->kind == KeyKind::kChain ? key->chain.size() : key->kind == KeyKind::kExact ? 1 : 0;
  input.tokens = key->tokens;
}

void ExplainTrace::OnIndexAsked(const ScopeView& view, const LookupKey& key, const RankContext& context,
                                ReasonCode reason, std::string_view pick) {
  ExplainMatches(view, key, context, reason);
  ExplainTenantHot(key, context, reason);
  ExplainAffinity(key, reason, pick);
  out_.index_consulted = true;
}

RowOutcome ExplainTrace::OutcomeOf(RowStage reached, const ScoredReplica& row, ReasonCode reason, RowKind kind) const {
  switch (reached) {
    case RowStage::kRanked:
      return RowOutcome::kNoCandidate;
    case RowStage::kAdmitted:
      if (reason == ReasonCode::kTimeout) return RowOutcome::kTimedOut;
      if (gate_ == PrefixGate::kDowngrade) return RowOutcome::kBelowMinimumPrefixTokens;
      if (kind == RowKind::kMatch && row.matched_tokens < policy_.minimum_matched_tokens) {
        return RowOutcome::kBelowMinimumMatchedTokens;
      }
      return RowOutcome::kBelowRoutingFloorScore;
    case RowStage::kAboveFloors:
      return reason == ReasonCode::kTimeout ? RowOutcome::kTimedOut : RowOutcome::kBeyondMaxReplicas;
    case RowStage::kDelivered:
      return RowOutcome::kReturned;
  }
  return RowOutcome::kReturned;
}

void ExplainTrace::ExplainScope(const ScopeView& view) {
  ScopeExplanation& scope = out_.scope;
  scope.known = view.Known();
  scope.replica_count = view.ReplicaCount();
  const size_t listed = std::min(scope.replica_count, kMaxExplainedReplicas);
  absl::flat_hash_map<std::string_view, size_t, StringHash, StringEqual> rows;
  for (size_t i = 0; i < listed; ++i) {
    const std::string_view name = view.ReplicaAt(i);
    PresentReplica& replica = scope.replicas.emplace_back();
    replica.replica_id = std::string(name);
    replica.lease = view.LeaseOf(name);
    rows.emplace(name, i);
  }
  view.ForEachStats([&](std::string_view replica_id, const ReplicaStats& stats, bool /*present*/) {
    const auto row = rows.find(replica_id);
    if (row == rows.end()) return;
    scope.replicas[row->second].stats_reported = stats.reported;
    scope.replicas[row->second].last_seen = stats.last_seen;
  });
}

void ExplainTrace::ExplainMatches(const ScopeView& view, const LookupKey& key, const RankContext& context,
                                  ReasonCode reason) {
  std::vector<ReplicaMatch> ignoring_age;
  switch (key.kind) {
    case KeyKind::kNothing:
      return;
    case KeyKind::kExact:
      view.MatchHash(request_.adapter_id, key.hash, absl::InfinitePast(), &ignoring_age);
      break;
    case KeyKind::kChain:
      view.MatchChain(request_.adapter_id, key.chain, absl::InfinitePast(), &ignoring_age);
      break;
  }
  const std::vector<size_t> places = matched_.Places();
  absl::flat_hash_map<std::string_view, size_t, StringHash, StringEqual> live;  // number of the match
  for (size_t i = 0; i < matched_.matches.size(); ++i) live.emplace(matched_.matches[i].replica_id, i);
  std::vector<int32_t> tokens;  // of the ranked rows, for k
  for (const ScoredReplica& row : matched_.rows) tokens.push_back(row.matched_tokens);
  std::sort(tokens.begin(), tokens.end());

  // Whoever holds anything at all, ranked ones first.
  const auto place_of = [&](const ReplicaMatch& match) {
    const auto found = live.find(match.replica_id);
    return found == live.end() ? matched_.rows.size() : places[found->second];
  };
  std::sort(ignoring_age.begin(), ignoring_age.end(), [&](const ReplicaMatch& a, const ReplicaMatch& b) {
    return std::pair(place_of(a), a.replica_id) < std::pair(place_of(b), b.replica_id);
  });
  if (ignoring_age.size() > kMaxExplainedReplicas) {
    out_.matches_omitted = ignoring_age.size() - kMaxExplainedReplicas;
    ignoring_age.resize(kMaxExplainedReplicas);
  }

  const bool tight = IsTight(context.ttft_ms, options_.ranker);
  for (const ReplicaMatch& dead_or_alive : ignoring_age) {
    const auto alive = live.find(dead_or_alive.replica_id);
    const ReplicaMatch& match = alive == live.end() ? dead_or_alive : matched_.matches[alive->second];
    const absl::Time last_seen = absl::FromUnixMicros(match.last_seen_us);
    MatchExplanation& row = out_.matches.emplace_back();
    row.replica_id = std::string(match.replica_id);
    row.blocks_ignoring_age = dead_or_alive.matched_blocks;
    row.age = AgeOf(last_seen, context.now);
    row.age_source = view.LeaseOf(match.replica_id) == last_seen ? AgeSource::kLease : AgeSource::kEntry;
    row.tier = match.tier;
    row.freshness = FreshnessOf(last_seen, context.now, context.ttl);
    row.pressure_source = PressureSourceOf(match.stats, context);
    if (row.pressure_source == PressureSource::kStats) row.pressure = match.stats->pressure;
    row.pressure_factor = PressureFactor(match.stats, options_.ranker.pressure_weight, context.now - context.ttl);
    row.slo_bias = SloBias(row.freshness, tight, options_.ranker);
    row.n = context.replicas_in_scope;
    if (alive == live.end()) continue;  // it has expired

    row.matched_blocks = match.matched_blocks;
    row.matched_tokens = match.matched_tokens;
    const size_t place = places[alive->second];
    if (place == matched_.rows.size()) {
      if (row.freshness > 0) row.outcome = RowOutcome::kNoTokens;
      continue;
    }
    const ScoredReplica& ranked = matched_.rows[place];
    row.k =
        key.kind == KeyKind::kExact
            ? tokens.size()
            : static_cast<size_t>(tokens.end() - std::lower_bound(tokens.begin(), tokens.end(), match.matched_tokens));
    row.distinguishing_power = DistinguishingPower(row.k, row.n);
    row.score = ranked.score;
    row.outcome = OutcomeOf(matched_.reached[place], ranked, reason, RowKind::kMatch);
  }
}

void ExplainTrace::ExplainTenantHot(const LookupKey& key, const RankContext& context, ReasonCode reason) {
  TenantHotExplanation& hot = out_.tenant_hot.emplace();
  hot.tried = matched_.rows.empty() && key.kind != KeyKind::kChain;
  if (!hot.tried) {
    hot.because = matched_.rows.empty() ? "a chain was asked for" : "replicas hold the prefix";
    return;
  }
  const std::vector<size_t> places = warm_.Places();
  std::vector<size_t> order(warm_.matches.size());  // numbers of candidates, warm ones first
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(places[a], warm_.matches[a].replica_id) < std::pair(places[b], warm_.matches[b].replica_id);
  });
  if (order.size() > kMaxExplainedReplicas) {
    hot.omitted = order.size() - kMaxExplainedReplicas;
    order.resize(kMaxExplainedReplicas);
  }
  const RankerOptions& ranker = options_.ranker;
  for (const size_t candidate : order) {
    const ReplicaStats& stats = *warm_.matches[candidate].stats;
    WarmExplanation& row = hot.replicas.emplace_back();
    row.replica_id = std::string(warm_.matches[candidate].replica_id);
    row.hit_rate = stats.hit_rate;
    row.stats_age = AgeOf(stats.reported, context.now);
    row.recency = ranker.tenant_hot_max_age > absl::ZeroDuration()
                      ? FreshnessOf(stats.reported, context.now, ranker.tenant_hot_max_age)
                      : 0;
    row.pressure_factor = PressureFactor(&stats, ranker.pressure_weight, context.now - context.ttl);
    row.slo_bias = SloBias(row.recency, IsTight(context.ttft_ms, ranker), ranker);
    const size_t place = places[candidate];
    row.warm = place < warm_.rows.size();
    if (!row.warm) continue;
    row.score = warm_.rows[place].score;
    row.outcome = policy_.enable_tenant_hot ? OutcomeOf(warm_.reached[place], warm_.rows[place], reason, RowKind::kWarm)
                                            : RowOutcome::kDisabled;
  }
  if (ranker.tenant_hot_max_age <= absl::ZeroDuration()) {
    hot.because = "the daemon's ranker.tenant_hot_max_age turns it off";
  } else if (warm_.rows.empty()) {
    hot.because = warm_.matches.empty() ? "no replica of the scope has reported stats"
                                        : "no replica of the scope is warm enough, lately enough";
  } else if (!policy_.enable_tenant_hot) {
    hot.because = "the policy does not enable it";
  } else {
    hot.because = Count(warm_.rows.size(), "replica is warm", "replicas are warm");
  }
}

void ExplainTrace::ExplainAffinity(const LookupKey& key, ReasonCode reason, std::string_view pick) {
  AffinityExplanation& affinity = out_.affinity.emplace();
  switch (reason) {
    case ReasonCode::kPrefixMatch:
    case ReasonCode::kTenantHot:
      affinity.because = "rows were found";
      return;
    case ReasonCode::kUnknownTenant:
    case ReasonCode::kUnknownModel:
    case ReasonCode::kUnknownHashScheme:
      affinity.because = "a key is unknown";
      return;
    case ReasonCode::kAffinityHint:
    case ReasonCode::kNoHint:
    case ReasonCode::kPolicyRequiresChain:
    case ReasonCode::kTimeout:
      break;
  }
  if (!policy_.affinity_routing) {
    affinity.because = "the policy disables it";
  } else if (request_.chain.block_hashes.size() != request_.chain.block_token_counts.size()) {
    affinity.because = "block_hashes and block_token_counts differ in length";
  } else if (key.kind == KeyKind::kNothing) {
    affinity.because = "the request has no input to pick by";
  } else {
    affinity.tried = true;
    affinity.replica_id = std::string(pick);
    affinity.because = !pick.empty()                            ? "picked by the input's hash"
                       : reason == ReasonCode::kTimeout         ? "the deadline passed"
                       : request_.candidate_replica_ids.empty() ? "no replica is present in the scope"
                                                                : "no candidate is present in the scope";
  }
}

void ExplainTrace::Conclude(ReasonCode reason) {
  const auto named = [](const char* key, std::string_view name) {
    return "no prefix is held for " + std::string(key) + " \"" + std::string(name) + "\"";
  };
  const auto because = [&]() -> std::string {
    switch (reason) {
      case ReasonCode::kPrefixMatch: {
        const size_t answered = out_.answer.rows.size();
        return Count(matched_.rows.size(), "replica holds", "replicas hold") + " the prefix or a leading part of it" +
               (answered < matched_.rows.size() ? "; in the answer: " + std::to_string(answered) : "");
      }
      case ReasonCode::kTenantHot:
        return "nobody holds the prefix, but some replicas are warm in general";
      case ReasonCode::kPolicyRequiresChain:
        return "the policy requires a chain, and the request has none";
      case ReasonCode::kTimeout:
        return "the deadline has passed";
      case ReasonCode::kUnknownTenant:
        return named("tenant", request_.tenant_id);
      case ReasonCode::kUnknownModel:
        return named("model", request_.model_id);
      case ReasonCode::kUnknownHashScheme:
        return named("hash scheme", request_.hash_scheme);
      case ReasonCode::kAffinityHint:
      case ReasonCode::kNoHint:
        break;
    }
    if (out_.input.kind == InputKind::kUnusable) return out_.input.problem;
    if (gate_ == PrefixGate::kShut) {
      return "the request announces " + Count(static_cast<size_t>(out_.input.tokens), "token", "tokens") +
             ", minimumPrefixTokens is " + std::to_string(policy_.minimum_prefix_tokens);
    }
    if (!out_.index_consulted) {
      return std::string(request_.tenant_id.empty()  ? "tenant_id"
                         : request_.model_id.empty() ? "model_id"
                                                     : "hash_scheme") +
             " is empty";
    }
    if (out_.scope.known == KnownKeys::kIndexEmpty) return "the index holds nothing";
    const std::string fallback = reason == ReasonCode::kAffinityHint ? "; affinity picked a replica"
                                                                     : "; no affinity: " + out_.affinity->because;
    const bool rows = !matched_.rows.empty() || !warm_.rows.empty();
    return (rows ? "every replica that was found was dropped" : "nobody holds the prefix") + fallback;
  };
  out_.because = because();
}

}  // namespace icache
