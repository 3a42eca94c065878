// How the ranking is laid out: one pass turns the matches into 16-byte rows of score and freshness, sorting moves only
// those, and the rows of the answer are written once, in their final order. Names are compared for ties alone.
#include "icache/ranking/ranking.h"

#include <algorithm>
#include <limits>

#include "absl/container/inlined_vector.h"

namespace icache {
namespace {

// What is sorted instead of a ScoredReplica.
struct Row {
  float score = 0;
  float freshness = 0;
  int32_t matched_tokens = 0;
  uint32_t match = 0;
};
using Rows = absl::InlinedVector<Row, 64>;

// Multiplies each score by its distinguishing power, whose k is the number of rows with as many tokens or more.
void ApplyChainPower(size_t n, Rows* rows) {
  const auto more_tokens = [](const Row& a, const Row& b) { return a.matched_tokens > b.matched_tokens; };
  if (!std::is_sorted(rows->begin(), rows->end(), more_tokens)) std::sort(rows->begin(), rows->end(), more_tokens);
  for (size_t begin = 0, end = 0; begin < rows->size(); begin = end) {
    while (end < rows->size() && (*rows)[end].matched_tokens == (*rows)[begin].matched_tokens) ++end;
    const float power = DistinguishingPower(end, n);
    for (size_t i = begin; i < end; ++i) (*rows)[i].score *= power;
  }
}

// Orders rows by score descending, then replica_id ascending.
void SortByScore(absl::Span<const ReplicaMatch> matches, Rows* rows) {
  std::sort(rows->begin(), rows->end(), [matches](const Row& a, const Row& b) {
    if (a.score != b.score) return a.score > b.score;
    return matches[a.match].replica_id < matches[b.match].replica_id;
  });
}

// A hostile hit rate may take a product beyond float's range.
float FiniteFloat(double score) {
  return static_cast<float>(std::min(score, static_cast<double>(std::numeric_limits<float>::max())));
}

}  // namespace

float Freshness(absl::Duration age, absl::Duration ttl) {
  return static_cast<float>(std::clamp(1.0 - absl::FDivDuration(age, ttl), 0.0, 1.0));
}

float PressureFactor(const ReplicaStats* stats, double weight, absl::Time now, absl::Duration ttl) {
  if (stats == nullptr || std::min(stats->reported, stats->last_seen) <= now - ttl) return 1;
  return static_cast<float>(std::clamp(1.0 - weight * stats->pressure, 0.0, 1.0));
}

bool IsTight(int32_t ttft_ms, const RankerOptions& options) {
  return ttft_ms > 0 && ttft_ms < options.slo_tight_ttft_ms;
}

float SloBias(float freshness, bool tight, const RankerOptions& options) {
  return tight ? 1 + freshness * static_cast<float>(options.slo_tight_bias) : 1;
}

float DistinguishingPower(size_t k, size_t n) {
  if (n <= 1) return 1;
  if (k >= n) return 0;
  return 1 - static_cast<float>(k) / static_cast<float>(n);
}

void RankMatches(absl::Span<const ReplicaMatch> matches, MatchKind kind, const RankContext& context,
                 const RankerOptions& options, std::vector<ScoredReplica>* ranked) {
  ranked->clear();
  const bool tight = IsTight(context.ttft_ms, options);
  Rows rows;
  for (size_t i = 0; i < matches.size(); ++i) {
    const ReplicaMatch& match = matches[i];
    const float freshness = Freshness(context.now - match.last_seen, context.ttl);
    if (freshness <= 0 || (kind == MatchKind::kChain && match.matched_tokens <= 0)) continue;
    const float pressure_factor = PressureFactor(match.stats, options.pressure_weight, context.now, context.ttl);
    rows.push_back({.score = static_cast<float>(match.matched_tokens) * freshness * pressure_factor *
                             SloBias(freshness, tight, options),
                    .freshness = freshness,
                    .matched_tokens = match.matched_tokens,
                    .match = static_cast<uint32_t>(i)});
  }

  if (kind == MatchKind::kChain) {
    ApplyChainPower(context.replicas_in_scope, &rows);
  } else {
    const float power = DistinguishingPower(rows.size(), context.replicas_in_scope);
    for (Row& row : rows) row.score *= power;
  }

  SortByScore(matches, &rows);
  ranked->reserve(rows.size());
  for (const Row& row : rows) {
    ranked->push_back({.replica_id = matches[row.match].replica_id,
                       .score = row.score,
                       .matched_tokens = row.matched_tokens,
                       .hit_probability = row.freshness,
                       .tier = matches[row.match].tier,
                       .match = row.match});
  }
}

void RankTenantHot(absl::Span<const WarmCandidate> candidates, const RankContext& context, const RankerOptions& options,
                   std::vector<ScoredReplica>* ranked) {
  ranked->clear();
  if (options.tenant_hot_max_age <= absl::ZeroDuration()) return;
  // Compared as floats, like the rates themselves; a rate below zero is never warm, not even without a threshold.
  const float min_hit_rate = std::max(0.0f, static_cast<float>(options.tenant_hot_min_hit_rate));
  const bool tight = IsTight(context.ttft_ms, options);
  for (const WarmCandidate& candidate : candidates) {
    const ReplicaStats& stats = *candidate.stats;
    const absl::Duration age = context.now - stats.reported;
    if (age >= options.tenant_hot_max_age || context.now - stats.last_seen >= context.ttl) continue;
    if (stats.hit_rate < min_hit_rate) continue;
    const float recency = Freshness(age, options.tenant_hot_max_age);
    const float pressure_factor = PressureFactor(&stats, options.pressure_weight, context.now, context.ttl);
    const double score =
        static_cast<double>(stats.hit_rate) * recency * pressure_factor * SloBias(recency, tight, options);
    ranked->push_back(
        {.replica_id = candidate.replica_id, .score = FiniteFloat(score), .hit_probability = stats.hit_rate});
  }
  std::sort(ranked->begin(), ranked->end(), [](const ScoredReplica& a, const ScoredReplica& b) {
    if (a.score != b.score) return a.score > b.score;
    return a.replica_id < b.replica_id;
  });
}

}  // namespace icache
