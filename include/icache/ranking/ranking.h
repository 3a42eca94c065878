// Ranking: from the replicas that match to an ordered list of scores. Pure functions over values; thread-safe.
//
// Source of every formula: contract/lookup.md steps 5 and 6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/index/prefix_index.h"

namespace icache {

// The server-wide knobs of the ranker. Fixed at start. 0 turns a weight, bias, threshold or the fallback off.
struct RankerOptions {
  double pressure_weight = 1.0;                          // >= 0
  int32_t slo_tight_ttft_ms = 200;                       // a budget below it is tight, >= 0
  double slo_tight_bias = 1.0;                           // >= 0
  double tenant_hot_min_hit_rate = 0.1;                  // >= 0
  absl::Duration tenant_hot_max_age = absl::Minutes(5);  // >= 0
};

// What a ranking depends on beside the matches.
struct RankContext {
  absl::Time now;
  absl::Duration ttl;            // of the tenant, > 0
  int32_t ttft_ms = 0;           // the request's time-to-first-token budget; <= 0 = none
  size_t replicas_in_scope = 0;  // n of distinguishing power
};

// One row of the ranked answer. Its name and tier are those of its match. Without initial values, which would cost as
// much as the ordering of a few rows.
struct ScoredReplica {
  float score;            // >= 0; finite for any match or stats row
  float hit_probability;  // estimated_cache_hit_prob, 0..1 for matches
  int32_t matched_tokens;
  uint32_t match;  // index into the matches it came from
};

// Weight of an observation of age `age`: 1 when new, falling linearly to 0 at `ttl` and beyond. A negative age counts
// as zero. Both in microseconds; requires ttl > 0.
float Freshness(int64_t age_us, int64_t ttl_us);

// 1 for an idle replica, falling by `weight` per unit of pressure, within 0..1. `stats` may be null (no pressure);
// pressure reported at `expired_through` or earlier is none, and so is that of a row last seen then.
float PressureFactor(const ReplicaStats* stats, double weight, absl::Time expired_through);

// Whether the budget is tight: 0 < ttft_ms < slo_tight_ttft_ms.
bool IsTight(int32_t ttft_ms, const RankerOptions& options);

// 1 + freshness × slo_tight_bias for a tight budget, else 1.
float SloBias(float freshness, bool tight, const RankerOptions& options);

// How much a match tells replicas apart: 1 − k/n for k of n replicas that match at least as well; 1 when n <= 1, 0 when
// k >= n.
float DistinguishingPower(size_t k, size_t n);

enum class MatchKind { kExact, kChain };

// Replaces `ranked` by the scored matches, score descending, then replica_id ascending bytewise. Drops matches without
// freshness and, for chains, runs of 0 tokens; k and n are taken before anything else is dropped. The matches are those
// of one view: names are compared by their name_order. O(m log m).
void RankMatches(absl::Span<const ReplicaMatch> matches, MatchKind kind, const RankContext& context,
                 const RankerOptions& options, std::vector<ScoredReplica>* ranked);

// Replaces `ranked` by the warm replicas among `candidates`, in the same order, by their names themselves. Candidates
// are replicas present in the scope that have stats, as matches of no block. Empty when the fallback is off.
void RankTenantHot(absl::Span<const ReplicaMatch> candidates, const RankContext& context, const RankerOptions& options,
                   std::vector<ScoredReplica>* ranked);

}  // namespace icache
