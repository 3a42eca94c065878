// How the ranking is laid out: one pass turns the matches into rows of 16 bytes, and only those are counted, ordered
// and filtered. Times are numbers of microseconds.
#include "icache/ranking/ranking.h"

#include <algorithm>
#include <array>
#include <limits>

namespace icache {
namespace {

using Rows = std::vector<ScoredReplica>;

// Rows up to this many are ordered without branches.
constexpr size_t kFewRows = 64;

// The matches that count, with their scores but for distinguishing power.
void ScoreMatches(absl::Span<const ReplicaMatch> matches, MatchKind kind, const RankContext& context,
                  const RankerOptions& options, Rows* rows) {
  const int64_t now_us = absl::ToUnixMicros(context.now);
  const int64_t ttl_us = std::max<int64_t>(absl::ToInt64Microseconds(context.ttl), 1);
  const absl::Time expired_through = context.now - context.ttl;
  const bool tight = IsTight(context.ttft_ms, options);
  const int32_t least_tokens = kind == MatchKind::kChain ? 1 : std::numeric_limits<int32_t>::min();
  rows->resize(matches.size());
  size_t count = 0;
  for (size_t i = 0; i < matches.size(); ++i) {
    const ReplicaMatch& match = matches[i];
    const float freshness = Freshness(now_us - match.last_seen_us, ttl_us);
    if (freshness <= 0 || match.matched_tokens < least_tokens) continue;
    const float pressure_factor =
        match.stats == nullptr ? 1 : PressureFactor(match.stats, options.pressure_weight, expired_through);
    // Field by field: copying a whole row right after it was made would stall on its parts.
    ScoredReplica& row = (*rows)[count++];
    row.score =
        static_cast<float>(match.matched_tokens) * freshness * pressure_factor * SloBias(freshness, tight, options);
    row.hit_probability = freshness;
    row.matched_tokens = match.matched_tokens;
    row.match = static_cast<uint32_t>(i);
  }
  rows->resize(count);
}

// Multiplies each score by its distinguishing power, whose k is the number of rows with as many tokens or more.
void ApplyChainPower(size_t n, Rows* rows) {
  const auto more_tokens = [](const ScoredReplica& a, const ScoredReplica& b) {
    return a.matched_tokens > b.matched_tokens;
  };
  if (!std::is_sorted(rows->begin(), rows->end(), more_tokens)) std::sort(rows->begin(), rows->end(), more_tokens);
  for (size_t begin = 0, end = 0; begin < rows->size(); begin = end) {
    while (end < rows->size() && (*rows)[end].matched_tokens == (*rows)[begin].matched_tokens) ++end;
    const float power = DistinguishingPower(end, n);
    for (size_t i = begin; i < end; ++i) (*rows)[i].score *= power;
  }
}

// The same for exact matches: k is the number of rows.
void ApplyExactPower(size_t n, Rows* rows) {
  const float power = DistinguishingPower(rows->size(), n);
  for (ScoredReplica& row : *rows) row.score *= power;
}

// Tells for each of a few rows how many have higher scores. Compares all with all: a sort would compare less often, but
// each time with a branch that nobody can foresee.
std::array<uint32_t, kFewRows> CountBetter(const Rows& rows) {
  constexpr size_t kLanes = 8;  // that many rows at a time, in vector registers
  std::array<float, kFewRows> scores;
  for (size_t i = 0; i < rows.size(); ++i) scores[i] = rows[i].score;
  for (size_t i = rows.size(); i % kLanes != 0; ++i) scores[i] = 0;
  std::array<uint32_t, kFewRows> better;
  for (size_t first = 0; first < rows.size(); first += kLanes) {
    std::array<uint32_t, kLanes> counts = {};
    for (size_t other = 0; other < rows.size(); ++other) {
      for (size_t lane = 0; lane < kLanes; ++lane) counts[lane] += scores[other] > scores[first + lane] ? 1 : 0;
    }
    std::copy(counts.begin(), counts.end(), better.begin() + first);
  }
  return better;
}

// Orders rows by score descending, then as `name_before` says of two matches.
template <typename NameBefore>
void SortRows(absl::Span<const ReplicaMatch> matches, NameBefore name_before, Rows* rows) {
  const auto comes_first = [&](const ScoredReplica& a, const ScoredReplica& b) {
    if (a.score != b.score) return a.score > b.score;
    return name_before(matches[a.match], matches[b.match]);
  };
  if (rows->size() > kFewRows) {
    std::sort(rows->begin(), rows->end(), comes_first);
    return;
  }
  const std::array<uint32_t, kFewRows> better = CountBetter(*rows);
  std::array<ScoredReplica, kFewRows> sorted;
  std::array<uint32_t, kFewRows> ties;  // [place]: rows that no more rows are better than, put there and behind it
  std::fill_n(ties.begin(), rows->size(), 0);
  bool tied = false;
  for (size_t i = 0; i < rows->size(); ++i) {
    const uint32_t place = better[i];
    tied |= ties[place] > 0;
    sorted[place + ties[place]++] = (*rows)[i];
  }
  std::copy_n(sorted.begin(), rows->size(), rows->begin());
  if (!tied) return;
  for (auto place = rows->begin(); place < rows->end();) {
    const auto end = place + ties[static_cast<size_t>(place - rows->begin())];
    std::sort(place, end, comes_first);
    place = end;
  }
}

// A hostile hit rate may take a product beyond float's range.
float FiniteFloat(double score) {
  return static_cast<float>(std::min(score, static_cast<double>(std::numeric_limits<float>::max())));
}

}  // namespace

float Freshness(int64_t age_us, int64_t ttl_us) {
  return static_cast<float>(std::clamp(1.0 - static_cast<double>(age_us) / static_cast<double>(ttl_us), 0.0, 1.0));
}

float PressureFactor(const ReplicaStats* stats, double weight, absl::Time expired_through) {
  if (stats == nullptr || stats->reported <= expired_through || stats->last_seen <= expired_through) return 1;
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
  ScoreMatches(matches, kind, context, options, ranked);
  if (kind == MatchKind::kChain) {
    ApplyChainPower(context.replicas_in_scope, ranked);
  } else {
    ApplyExactPower(context.replicas_in_scope, ranked);
  }
  SortRows(
      matches, [](const ReplicaMatch& a, const ReplicaMatch& b) { return a.name_order < b.name_order; }, ranked);
}

void RankTenantHot(absl::Span<const ReplicaMatch> candidates, const RankContext& context, const RankerOptions& options,
                   std::vector<ScoredReplica>* ranked) {
  ranked->clear();
  const int64_t max_age_us = absl::ToInt64Microseconds(options.tenant_hot_max_age);
  if (max_age_us <= 0) return;
  // Compared as floats, like the rates themselves; a rate below zero is never warm, not even without a threshold.
  const float min_hit_rate = std::max(0.0f, static_cast<float>(options.tenant_hot_min_hit_rate));
  const bool tight = IsTight(context.ttft_ms, options);
  const absl::Time expired_through = context.now - context.ttl;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const ReplicaStats& stats = *candidates[i].stats;
    const absl::Duration age = context.now - stats.reported;
    if (age >= options.tenant_hot_max_age || stats.last_seen <= expired_through) continue;
    if (stats.hit_rate < min_hit_rate) continue;
    const float recency = Freshness(absl::ToInt64Microseconds(age), max_age_us);
    const float pressure_factor = PressureFactor(&stats, options.pressure_weight, expired_through);
    const double score =
        static_cast<double>(stats.hit_rate) * recency * pressure_factor * SloBias(recency, tight, options);
    ranked->push_back({.score = FiniteFloat(score),
                       .hit_probability = stats.hit_rate,
                       .matched_tokens = 0,
                       .match = static_cast<uint32_t>(i)});
  }
  SortRows(
      candidates, [](const ReplicaMatch& a, const ReplicaMatch& b) { return a.replica_id < b.replica_id; }, ranked);
}

}  // namespace icache
