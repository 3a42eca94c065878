// Explanation: one lookup with everything that led to its answer, as plain values. What operators ask for; no lookup
// pays for it. proto/inferencecache/ops/v1alpha1/ops.proto says what each field means to them.
//
// Numbers of enumerators are those of the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "icache/index/name_list.h"
#include "icache/index/observation.h"
#include "icache/index/prefix_index.h"
#include "icache/policy/cache_policy.h"
#include "icache/routing/lookup.h"

namespace icache {

// Bounds of one explanation.
inline constexpr size_t kMaxExplainedReplicas = 256;  // of each list
inline constexpr size_t kMaxListedNames = 100;

enum class InputKind {
  kNotRead = 0,
  kNothing = 1,
  kChain = 2,
  kTokenChain = 3,
  kHash = 4,
  kTokenHash = 5,
  kUnusable = 6,
};

struct InputExplanation {
  InputKind kind = InputKind::kNotRead;
  size_t blocks = 0;
  int32_t tokens = 0;
  std::string problem;  // kUnusable only
};

struct PolicyExplanation {
  CachePolicy policy;
  absl::Duration ttl;            // the one in force
  std::optional<int64_t> quota;  // distinct prefixes
  std::string source;            // where the manifest stands; "" = defaults
};

struct PresentReplica {
  std::string replica_id;
  std::optional<absl::Time> lease;
  std::optional<absl::Time> stats_reported;
  std::optional<absl::Time> last_seen;  // of the stats
};

struct ScopeExplanation {
  KnownKeys known = KnownKeys::kIndexEmpty;
  NameList names{kMaxListedNames};  // what exists in the place of the unknown key; schemes when all are known
  size_t replica_count = 0;
  std::vector<PresentReplica> replicas;                // the first by name
  absl::Time last_observation = absl::InfinitePast();  // of the model
};

enum class RowOutcome {
  kReturned = 1,
  kExpired = 2,
  kNoTokens = 3,
  kNoCandidate = 4,
  kBelowMinimumPrefixTokens = 5,
  kBelowMinimumMatchedTokens = 6,
  kBelowRoutingFloorScore = 7,
  kBeyondMaxReplicas = 8,
  kDisabled = 9,
  kTimedOut = 10,
};

enum class AgeSource { kEntry = 1, kLease = 2 };
enum class PressureSource { kStats = 1, kStatsExpired = 2, kNoStats = 3 };

struct MatchExplanation {
  std::string replica_id;
  RowOutcome outcome = RowOutcome::kExpired;
  uint32_t matched_blocks = 0;
  int32_t matched_tokens = 0;
  uint32_t blocks_ignoring_age = 0;
  absl::Duration age;
  AgeSource age_source = AgeSource::kEntry;
  Tier tier = Tier::kUnknown;
  float freshness = 0;
  float pressure = 0;
  PressureSource pressure_source = PressureSource::kNoStats;
  float pressure_factor = 1;
  float slo_bias = 1;
  float distinguishing_power = 0;
  size_t k = 0;
  size_t n = 0;
  float score = 0;
};

struct WarmExplanation {
  std::string replica_id;
  bool warm = false;
  RowOutcome outcome = RowOutcome::kReturned;  // of warm ones
  float hit_rate = 0;
  absl::Duration stats_age;
  float recency = 0;
  float pressure_factor = 1;
  float slo_bias = 1;
  float score = 0;
};

struct TenantHotExplanation {
  bool tried = false;
  std::string because;
  std::vector<WarmExplanation> replicas;
  size_t omitted = 0;
};

struct AffinityExplanation {
  bool tried = false;
  std::string because;
  std::string replica_id;
};

struct Explanation {
  LookupAnswer answer;
  absl::Duration latency;  // of the lookup, tracing included
  absl::Time now;
  int32_t block_size = 0;  // of the request's model, for token ids
  std::string because;
  PolicyExplanation policy;
  InputExplanation input;
  ScopeExplanation scope;
  bool index_consulted = false;           // else there is nothing below
  std::vector<MatchExplanation> matches;  // ranked ones first, in order; then by name
  size_t matches_omitted = 0;
  std::optional<TenantHotExplanation> tenant_hot;
  std::optional<AffinityExplanation> affinity;
};

}  // namespace icache
