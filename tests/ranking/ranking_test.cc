// The formulas and the worked examples of contract/lookup.md; each table row names the line that it checks.
#include "icache/ranking/ranking.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::IsEmpty;

constexpr absl::Duration kTtl = absl::Minutes(30);
const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);
const absl::Time kExpiredThrough = kNow - kTtl;

ReplicaMatch Match(std::string_view replica_id, int32_t tokens, absl::Duration age = absl::ZeroDuration(),
                   const ReplicaStats* stats = nullptr) {
  ReplicaMatch match;
  match.replica_id = replica_id;
  match.matched_blocks = 1;
  match.matched_tokens = tokens;
  match.last_seen_us = absl::ToUnixMicros(kNow - age);
  match.stats = stats;
  return match;
}

ReplicaStats Stats(float hit_rate, float pressure, absl::Duration age = absl::ZeroDuration()) {
  ReplicaStats stats;
  stats.hit_rate = hit_rate;
  stats.pressure = pressure;
  stats.last_seen = kNow - age;
  stats.reported = kNow - age;
  return stats;
}

RankContext Context(size_t replicas_in_scope, int32_t ttft_ms = 0) {
  return {.now = kNow, .ttl = kTtl, .ttft_ms = ttft_ms, .replicas_in_scope = replicas_in_scope};
}

float FreshnessOf(absl::Duration age, absl::Duration ttl) {
  return Freshness(absl::ToInt64Microseconds(age), absl::ToInt64Microseconds(ttl));
}

// A ranked row with what it takes from its match.
struct NamedRow {
  std::string_view replica_id;
  float score = 0;
  float hit_probability = 0;
  int32_t matched_tokens = 0;
  Tier tier = Tier::kUnknown;
  uint32_t match = 0;
};

std::vector<NamedRow> Named(const std::vector<ScoredReplica>& ranked, const std::vector<ReplicaMatch>& matches) {
  std::vector<NamedRow> rows;
  for (const ScoredReplica& row : ranked) {
    rows.push_back({.replica_id = matches[row.match].replica_id,
                    .score = row.score,
                    .hit_probability = row.hit_probability,
                    .matched_tokens = row.matched_tokens,
                    .tier = matches[row.match].tier,
                    .match = row.match});
  }
  return rows;
}

// Numbers the names of the matches as a view of a scope with nobody else would.
std::vector<NamedRow> Rank(std::vector<ReplicaMatch> matches, MatchKind kind, const RankContext& context,
                           const RankerOptions& options = {}) {
  std::vector<std::string_view> names;
  for (const ReplicaMatch& match : matches) names.push_back(match.replica_id);
  std::sort(names.begin(), names.end());
  for (ReplicaMatch& match : matches) {
    match.name_order =
        static_cast<uint32_t>(std::lower_bound(names.begin(), names.end(), match.replica_id) - names.begin());
  }
  std::vector<ScoredReplica> ranked;
  RankMatches(matches, kind, context, options, &ranked);
  return Named(ranked, matches);
}

struct WarmCandidate {
  std::string_view replica_id;
  const ReplicaStats* stats;
};

std::vector<NamedRow> RankWarm(const std::vector<WarmCandidate>& candidates, const RankContext& context,
                               const RankerOptions& options = {}) {
  std::vector<ReplicaMatch> matches;
  for (const WarmCandidate& candidate : candidates) {
    matches.push_back({.replica_id = candidate.replica_id, .tier = Tier::kUnknown, .stats = candidate.stats});
  }
  std::vector<ScoredReplica> ranked;
  RankTenantHot(matches, context, options, &ranked);
  return Named(ranked, matches);
}

std::vector<std::string> NamesOf(const std::vector<NamedRow>& ranked) {
  std::vector<std::string> names;
  for (const NamedRow& row : ranked) names.emplace_back(row.replica_id);
  return names;
}

std::vector<float> ScoresOf(const std::vector<NamedRow>& ranked) {
  std::vector<float> scores;
  for (const NamedRow& row : ranked) scores.push_back(row.score);
  return scores;
}

MATCHER_P2(Row, replica_id, score, "") {
  return ::testing::ExplainMatchResult(replica_id, std::string(arg.replica_id), result_listener) &&
         ::testing::ExplainMatchResult(score, arg.score, result_listener);
}

// --- The factors ------------------------------------------------------------------------------------------------

TEST(FreshnessTest, FallsLinearlyWithinItsClamp) {
  const struct {
    absl::Duration age;
    float freshness;
  } kRows[] = {
      // Step 5: "freshness = clamp(1 − age/TTL, 0, 1)".
      {absl::ZeroDuration(), 1}, {absl::Minutes(15), 0.5f}, {absl::Minutes(29), 1 - 29.0f / 30},
      {absl::Minutes(30), 0},    {absl::Hours(100), 0},     {-absl::Minutes(5), 1},
  };
  for (const auto& row : kRows) EXPECT_THAT(FreshnessOf(row.age, kTtl), FloatNear(row.freshness, 1e-6f)) << row.age;
}

TEST(FreshnessTest, StaysAboveZeroUntilTheTtlIsReached) {
  EXPECT_GT(FreshnessOf(kTtl - absl::Microseconds(1), kTtl), 0);
  EXPECT_GT(FreshnessOf(absl::Hours(1000) - absl::Microseconds(1), absl::Hours(1000)), 0);
}

TEST(PressureFactorTest, WeighsPressureWithinItsClamp) {
  const struct {
    float pressure;
    double weight;
    float factor;
  } kRows[] = {
      // Step 5: "pressure_factor = clamp(1 − pressureWeight × pressure, 0, 1)".
      {0, 1, 1},
      {0.25f, 1, 0.75f},
      {1, 1, 0},
      {7, 1, 0},
      {-3, 1, 1},
      {0.25f, 2, 0.5f},
      // "0 turns off a weight".
      {1, 0, 1},
  };
  for (const auto& row : kRows) {
    const ReplicaStats stats = Stats(0, row.pressure);
    EXPECT_FLOAT_EQ(PressureFactor(&stats, row.weight, kExpiredThrough), row.factor)
        << row.pressure << " " << row.weight;
  }
}

TEST(PressureFactorTest, IsOneWithoutStats) { EXPECT_EQ(PressureFactor(nullptr, 1, kExpiredThrough), 1); }

TEST(PressureFactorTest, ForgetsPressureReportedOneTtlAgo) {
  // Step 5: "when they were *reported* within the TTL, else 0".
  const ReplicaStats fresh = Stats(0, 0.5f, kTtl - absl::Microseconds(1));
  EXPECT_FLOAT_EQ(PressureFactor(&fresh, 1, kExpiredThrough), 0.5f);
  ReplicaStats stale = Stats(0, 0.5f, kTtl);
  EXPECT_FLOAT_EQ(PressureFactor(&stale, 1, kExpiredThrough), 1);
  stale.last_seen = kNow;  // a REPLICA_UPDATED event does not report pressure
  EXPECT_FLOAT_EQ(PressureFactor(&stale, 1, kExpiredThrough), 1);
}

TEST(PressureFactorTest, IgnoresADeadRow) {
  // index.md "Expiry": a stats row whose age reaches the TTL is dead, and lookups ignore it at once.
  ReplicaStats dead = Stats(0, 0.5f);
  dead.last_seen = kNow - kTtl;
  EXPECT_FLOAT_EQ(PressureFactor(&dead, 1, kExpiredThrough), 1);
}

TEST(SloTest, ABudgetIsTightBetweenZeroAndTheThreshold) {
  // Step 5: "when 0 < ttft_ms < sloTightTtftMs".
  for (int32_t ttft_ms : {1, 50, 199}) EXPECT_TRUE(IsTight(ttft_ms, {})) << ttft_ms;
  for (int32_t ttft_ms : {-1, 0, 200, 1000}) EXPECT_FALSE(IsTight(ttft_ms, {})) << ttft_ms;
}

TEST(SloTest, AThresholdOfZeroTurnsTheBiasOff) { EXPECT_FALSE(IsTight(1, {.slo_tight_ttft_ms = 0})); }

TEST(SloTest, BiasGrowsWithFreshnessForATightBudgetOnly) {
  // Step 5: "slo_bias = 1 + freshness × sloTightBias when …, else 1".
  EXPECT_FLOAT_EQ(SloBias(0.6f, true, {}), 1.6f);
  EXPECT_FLOAT_EQ(SloBias(0.6f, true, {.slo_tight_bias = 0.5}), 1.3f);
  EXPECT_FLOAT_EQ(SloBias(0.6f, true, {.slo_tight_bias = 0}), 1);
  EXPECT_FLOAT_EQ(SloBias(0.6f, false, {}), 1);
}

TEST(DistinguishingPowerTest, FollowsItsTable) {
  const struct {
    size_t k, n;
    float power;
  } kRows[] = {
      // Step 5: "1 − k/n … n ≤ 1: 1. k ≥ n: 0".
      {1, 3, 2.0f / 3}, {2, 3, 1.0f / 3}, {3, 3, 0}, {5, 3, 0}, {1, 1, 1}, {1, 0, 1}, {0, 0, 1}, {1, 2, 0.5f},
  };
  for (const auto& row : kRows) EXPECT_FLOAT_EQ(DistinguishingPower(row.k, row.n), row.power) << row.k << "/" << row.n;
}

// --- The worked examples of contract/lookup.md --------------------------------------------------------------------

TEST(WorkedExampleTest, LongerRunsTellReplicasApart) {
  EXPECT_THAT(
      Rank({Match("r0", 256), Match("r1", 128), Match("r2", 64)}, MatchKind::kChain, Context(3)),
      ElementsAre(Row("r0", FloatNear(170.667f, 0.01f)), Row("r1", FloatNear(42.667f, 0.01f)), Row("r2", FloatEq(0))));
}

TEST(WorkedExampleTest, AgeScalesTheScores) {
  const auto ranked =
      Rank({Match("A", 192, absl::Minutes(1)), Match("B", 128, absl::Minutes(2)), Match("C", 64, absl::Minutes(4))},
           MatchKind::kChain, Context(3));
  EXPECT_THAT(ranked, ElementsAre(Row("A", FloatNear(123.73f, 0.01f)), Row("B", FloatNear(39.82f, 0.01f)),
                                  Row("C", FloatEq(0))));
  EXPECT_THAT(ranked[0].hit_probability, FloatNear(0.967f, 0.001f));
  EXPECT_THAT(ranked[1].hit_probability, FloatNear(0.933f, 0.001f));
  EXPECT_THAT(ranked[2].hit_probability, FloatNear(0.867f, 0.001f));
}

TEST(WorkedExampleTest, ATightBudgetPrefersTheFresherReplica) {
  const std::vector<ReplicaMatch> matches = {Match("big-old", 100, absl::Minutes(12)), Match("small-fresh", 50)};
  // A third replica in the scope: distinguishing power 1/3 for both.
  EXPECT_THAT(
      Rank(matches, MatchKind::kExact, Context(3)),
      ElementsAre(Row("big-old", FloatNear(60.0f / 3, 1e-3f)), Row("small-fresh", FloatNear(50.0f / 3, 1e-3f))));
  EXPECT_THAT(
      Rank(matches, MatchKind::kExact, Context(3, /*ttft_ms=*/50)),
      ElementsAre(Row("small-fresh", FloatNear(100.0f / 3, 1e-3f)), Row("big-old", FloatNear(96.0f / 3, 1e-3f))));
}

TEST(WorkedExampleTest, OnlyTheTwoHoldersInTheScopeTellNothing) {
  EXPECT_THAT(ScoresOf(Rank({Match("big-old", 100, absl::Minutes(12)), Match("small-fresh", 50)}, MatchKind::kExact,
                            Context(2))),
              ElementsAre(0, 0));
}

TEST(WorkedExampleTest, AWarmReplicaAnswersForItsTenant) {
  const ReplicaStats stats = Stats(0.8f, 0.1f, absl::Seconds(30));
  EXPECT_THAT(RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1)),
              ElementsAre(Row("r0", FloatNear(0.648f, 1e-5f))));
}

// --- RankMatches --------------------------------------------------------------------------------------------------

TEST(RankMatchesTest, MultipliesAllFactors) {
  const ReplicaStats stats = Stats(0, 0.25f);
  // 200 tokens × 0.5 fresh × 0.75 pressure × 1.5 bias × (1 − 1/4).
  EXPECT_THAT(Rank({Match("r0", 200, absl::Minutes(15), &stats)}, MatchKind::kExact, Context(4, /*ttft_ms=*/100)),
              ElementsAre(Row("r0", FloatNear(84.375f, 1e-3f))));
}

TEST(RankMatchesTest, DropsReplicasWithoutFreshnessBeforeCounting) {
  // Step 5: "≤ 0 drops the replica"; k counts scored replicas only.
  EXPECT_THAT(Rank({Match("old", 64, kTtl), Match("r0", 64)}, MatchKind::kExact, Context(2)),
              ElementsAre(Row("r0", FloatEq(32))));
  EXPECT_THAT(Rank({Match("old", 64, kTtl), Match("r0", 64)}, MatchKind::kChain, Context(2)),
              ElementsAre(Row("r0", FloatEq(32))));
}

TEST(RankMatchesTest, ARunOfNoTokensIsNoMatch) {
  // Step 5: "An exact match of 0 tokens is a match, a run of 0 is not".
  EXPECT_THAT(Rank({Match("r0", 0), Match("r1", 64)}, MatchKind::kChain, Context(2)),
              ElementsAre(Row("r1", FloatEq(32))));
}

TEST(RankMatchesTest, AnExactMatchOfNoTokensIsAMatch) {
  EXPECT_THAT(Rank({Match("r0", 0), Match("r1", 64)}, MatchKind::kExact, Context(4)),
              ElementsAre(Row("r1", FloatEq(32)), Row("r0", FloatEq(0))));
}

TEST(RankMatchesTest, ExactMatchesShareOnePower) {
  // Step 5: "k: exact = number of scored replicas".
  EXPECT_THAT(ScoresOf(Rank({Match("r0", 100), Match("r1", 50)}, MatchKind::kExact, Context(4))), ElementsAre(50, 25));
}

TEST(RankMatchesTest, EquallyLongRunsShareOnePower) {
  // Step 5: "chain = number of scored replicas with matched_tokens ≥ this one's".
  EXPECT_THAT(
      Rank({Match("r0", 64), Match("r1", 128), Match("r2", 128), Match("r3", 64)}, MatchKind::kChain, Context(8)),
      ElementsAre(Row("r1", FloatEq(96)), Row("r2", FloatEq(96)), Row("r0", FloatEq(32)), Row("r3", FloatEq(32))));
}

TEST(RankMatchesTest, ChainPowerDoesNotDependOnTheScore) {
  // The stale replica scores less yet counts as matching more.
  EXPECT_THAT(Rank({Match("fresh", 64), Match("stale", 128, absl::Minutes(27))}, MatchKind::kChain, Context(4)),
              ElementsAre(Row("fresh", FloatEq(32)), Row("stale", FloatNear(9.6f, 1e-3f))));
}

TEST(RankMatchesTest, TiesGoByNameBytewise) {
  EXPECT_THAT(NamesOf(Rank({Match("r2", 64), Match("r10", 64), Match("R9", 64), Match("\xc3\xa9", 64), Match("r1", 64)},
                           MatchKind::kExact, Context(9))),
              ElementsAre("R9", "r1", "r10", "r2", "\xc3\xa9"));
}

TEST(RankMatchesTest, RowsCarryWhatTheirMatchSays) {
  std::vector<ReplicaMatch> matches = {Match("r0", 64), Match("r1", 128, absl::Minutes(24))};
  matches[1].tier = Tier::kT3;
  const auto ranked = Rank(matches, MatchKind::kChain, Context(4));
  ASSERT_EQ(ranked.size(), 2u);
  EXPECT_EQ(ranked[0].replica_id, "r0");
  EXPECT_EQ(ranked[0].match, 0u);
  EXPECT_EQ(ranked[0].tier, Tier::kT1);
  EXPECT_EQ(ranked[1].match, 1u);
  EXPECT_EQ(ranked[1].tier, Tier::kT3);
  EXPECT_EQ(ranked[1].matched_tokens, 128);
  EXPECT_FLOAT_EQ(ranked[1].hit_probability, 0.2f);
}

TEST(RankMatchesTest, ReplacesWhatWasThere) {
  std::vector<ScoredReplica> ranked(3);
  RankMatches({}, MatchKind::kChain, Context(3), {}, &ranked);
  EXPECT_THAT(ranked, IsEmpty());
}

TEST(RankMatchesTest, AgreesWithTheFormulaOnRandomMatches) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const size_t count = random() % 90;
    const size_t n = count + random() % 4;
    std::vector<std::string> names;
    std::vector<ReplicaStats> stats;
    for (size_t i = 0; i < count; ++i) {
      names.push_back("replica-" + std::to_string(random() % 1000) + "-" + std::to_string(i));
      stats.push_back(Stats(0, static_cast<float>(random() % 3) / 2));
    }
    std::vector<ReplicaMatch> matches;
    for (size_t i = 0; i < count; ++i) {
      matches.push_back(Match(names[i], static_cast<int32_t>(random() % 6) * 64, absl::Minutes(random() % 4) * 10,
                              random() % 2 == 0 ? &stats[i] : nullptr));
    }

    std::vector<NamedRow> expected;
    const auto age = [](const ReplicaMatch& match) { return kNow - absl::FromUnixMicros(match.last_seen_us); };
    const auto is_scored = [&](const ReplicaMatch& match) { return match.matched_tokens > 0 && age(match) < kTtl; };
    for (const ReplicaMatch& match : matches) {
      if (!is_scored(match)) continue;
      const size_t k =
          static_cast<size_t>(std::count_if(matches.begin(), matches.end(), [&](const ReplicaMatch& other) {
            return is_scored(other) && other.matched_tokens >= match.matched_tokens;
          }));
      const float freshness = FreshnessOf(age(match), kTtl);
      expected.push_back({.replica_id = match.replica_id,
                          .score = static_cast<float>(match.matched_tokens) * freshness *
                                   PressureFactor(match.stats, 1, kExpiredThrough) * SloBias(freshness, true, {}) *
                                   DistinguishingPower(k, n)});
    }
    std::sort(expected.begin(), expected.end(), [](const NamedRow& a, const NamedRow& b) {
      return a.score != b.score ? a.score > b.score : a.replica_id < b.replica_id;
    });

    const auto ranked = Rank(matches, MatchKind::kChain, Context(n, /*ttft_ms=*/50));
    ASSERT_EQ(NamesOf(ranked), NamesOf(expected)) << "round " << round;
    ASSERT_EQ(ScoresOf(ranked), ScoresOf(expected)) << "round " << round;
  }
}

// --- RankTenantHot ------------------------------------------------------------------------------------------------

TEST(RankTenantHotTest, AdmitsOnlyWarmReplicas) {
  const struct {
    const char* what;
    float hit_rate;
    absl::Duration reported_ago;
    absl::Duration seen_ago;
    bool warm;
  } kRows[] = {
      {"warm", 0.5f, absl::Minutes(1), absl::Minutes(1), true},
      // Step 6: "reported less than tenantHotMaxAge ago".
      {"almost too old", 0.5f, absl::Minutes(5) - absl::Microseconds(1), absl::ZeroDuration(), true},
      {"too old", 0.5f, absl::Minutes(5), absl::ZeroDuration(), false},
      // "hit_rate ≥ tenantHotMinHitRate".
      {"rate at the threshold", 0.1f, absl::ZeroDuration(), absl::ZeroDuration(), true},
      {"rate below it", 0.0999f, absl::ZeroDuration(), absl::ZeroDuration(), false},
      {"negative rate", -1, absl::ZeroDuration(), absl::ZeroDuration(), false},
      // "last_seen within the TTL": an older REPLICA_UPDATED can set it back.
      {"last seen long ago", 0.5f, absl::ZeroDuration(), kTtl, false},
      {"last seen just in time", 0.5f, absl::ZeroDuration(), kTtl - absl::Microseconds(1), true},
  };
  for (const auto& row : kRows) {
    ReplicaStats stats = Stats(row.hit_rate, 0, row.reported_ago);
    stats.last_seen = kNow - row.seen_ago;
    EXPECT_EQ(RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1)).size(), row.warm ? 1u : 0u) << row.what;
  }
}

TEST(RankTenantHotTest, AMaximumAgeOfZeroTurnsTheFallbackOff) {
  const ReplicaStats stats = Stats(0.9f, 0);
  EXPECT_THAT(
      RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1), {.tenant_hot_max_age = absl::ZeroDuration()}),
      IsEmpty());
}

TEST(RankTenantHotTest, AThresholdOfZeroAdmitsEveryRateButNegativeOnes) {
  const ReplicaStats idle = Stats(0, 0);
  const ReplicaStats hostile = Stats(-5, 0);
  EXPECT_THAT(NamesOf(RankWarm({{.replica_id = "idle", .stats = &idle}, {.replica_id = "hostile", .stats = &hostile}},
                               Context(2), {.tenant_hot_min_hit_rate = 0})),
              ElementsAre("idle"));
}

TEST(RankTenantHotTest, ATightBudgetAddsTheBias) {
  // Step 6: "× (1 + recency × sloTightBias if tight)": 0.5 × 0.8 × 1.8.
  const ReplicaStats stats = Stats(0.5f, 0, absl::Minutes(1));
  EXPECT_THAT(RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1, /*ttft_ms=*/50)),
              ElementsAre(Row("r0", FloatNear(0.72f, 1e-5f))));
}

TEST(RankTenantHotTest, RowsClaimNoMatchedTokens) {
  // Step 6: "matched_tokens 0, estimated_cache_hit_prob = hit_rate".
  const ReplicaStats stats = Stats(0.5f, 0);
  const auto ranked = RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1));
  ASSERT_EQ(ranked.size(), 1u);
  EXPECT_EQ(ranked[0].matched_tokens, 0);
  EXPECT_FLOAT_EQ(ranked[0].hit_probability, 0.5f);
}

TEST(RankTenantHotTest, OrdersByScoreThenName) {
  const ReplicaStats half = Stats(0.5f, 0);
  const ReplicaStats most = Stats(0.9f, 0);
  EXPECT_THAT(NamesOf(RankWarm({{.replica_id = "c", .stats = &half},
                                {.replica_id = "b", .stats = &most},
                                {.replica_id = "a", .stats = &half}},
                               Context(3))),
              ElementsAre("b", "a", "c"));
}

TEST(RankTenantHotTest, ScoresStayFiniteWhateverTheRate) {
  const ReplicaStats stats = Stats(std::numeric_limits<float>::max(), 0);
  const auto ranked = RankWarm({{.replica_id = "r0", .stats = &stats}}, Context(1, /*ttft_ms=*/50));
  ASSERT_EQ(ranked.size(), 1u);
  EXPECT_TRUE(std::isfinite(ranked[0].score));
}

}  // namespace
}  // namespace icache
