// Findings that a daemon on the same host, of the same build, cannot show.
#include "ctl/doctor.h"

#include <gmock/gmock.h>

namespace icache {
namespace {

using ::testing::HasSubstr;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

DoctorFacts Healthy() {
  DoctorFacts facts;
  facts.settings.tenant = "team-a";
  facts.settings.model = "qwen";
  facts.version = "1.0.0";
  facts.serving = true;
  facts.local_time = kNow;
  facts.round_trip = absl::Milliseconds(2);
  auto& explanation = facts.explanation;
  explanation.mutable_daemon()->set_version("1.0.0");
  explanation.mutable_daemon()->set_time_us(absl::ToUnixMicros(kNow));
  explanation.mutable_daemon()->set_block_size(16);
  explanation.mutable_policy()->set_eviction_ttl_us(absl::ToInt64Microseconds(absl::Minutes(30)));
  auto& scope = *explanation.mutable_scope();
  scope.set_tenant_known(true);
  scope.set_model_known(true);
  scope.set_hash_scheme_known(true);
  scope.set_replicas_present(1);
  scope.set_last_observation_us(absl::ToUnixMicros(kNow));
  auto& replica = *scope.add_replicas();
  replica.set_lease_us(absl::ToUnixMicros(kNow));
  replica.set_stats_reported_us(absl::ToUnixMicros(kNow));
  return facts;
}

Finding FindingOf(const DoctorFacts& facts, const std::string& check) {
  for (const Finding& finding : Judge(facts)) {
    if (finding.check == check) return finding;
  }
  return {};
}

TEST(DoctorTest, FindsNothingWhereAllIsWell) {
  for (const Finding& finding : Judge(Healthy())) EXPECT_EQ(finding.health, Health::kOk) << finding.check;
}

TEST(DoctorTest, FindsClocksThatDisagreeByMoreThanTheRoundTripHides) {
  DoctorFacts facts = Healthy();
  facts.local_time = kNow - absl::Seconds(5);
  EXPECT_EQ(FindingOf(facts, "clock").found, "the daemon's is 5s ahead of this host's");
  facts.local_time = kNow + absl::Minutes(2);
  EXPECT_EQ(FindingOf(facts, "clock").found, "the daemon's is 2m0s behind this host's");
  EXPECT_THAT(FindingOf(facts, "clock").mend, HasSubstr("NTP"));
  facts.round_trip = absl::Minutes(4);
  EXPECT_EQ(FindingOf(facts, "clock").health, Health::kOk);
}

TEST(DoctorTest, FindsADaemonOfAnotherRelease) {
  DoctorFacts facts = Healthy();
  facts.version = "1.1.0";
  EXPECT_EQ(FindingOf(facts, "version").health, Health::kWarning);
}

TEST(DoctorTest, ReportsGrowOldBeforeTheyAreDead) {
  DoctorFacts facts = Healthy();
  const auto silent_for = [&](absl::Duration age) {
    facts.explanation.mutable_scope()->set_last_observation_us(absl::ToUnixMicros(kNow - age));
    return FindingOf(facts, "reports").health;
  };
  EXPECT_EQ(silent_for(absl::Minutes(14)), Health::kOk);
  EXPECT_EQ(silent_for(absl::Minutes(16)), Health::kWarning);
  EXPECT_EQ(silent_for(absl::Minutes(30)), Health::kBad);
}

TEST(DoctorTest, SaysSoWhereNoUpdateHasCome) {
  DoctorFacts facts = Healthy();
  facts.explanation.mutable_scope()->set_last_observation_us(0);
  EXPECT_EQ(FindingOf(facts, "reports").health, Health::kWarning);
  EXPECT_THAT(FindingOf(facts, "reports").found, HasSubstr("no update of the model has come"));
}

TEST(DoctorTest, SpeaksOfTheReplicasAloneThatItLookedAt) {
  DoctorFacts facts = Healthy();
  auto& scope = *facts.explanation.mutable_scope();
  EXPECT_EQ(FindingOf(facts, "leases").found, "1 of 1 replica has a lease in force");
  scope.set_replicas_present(300);
  EXPECT_EQ(FindingOf(facts, "leases").found, "1 of 1 replica that was looked at, out of 300, has a lease in force");
  scope.add_replicas()->set_lease_us(absl::ToUnixMicros(kNow));
  EXPECT_EQ(FindingOf(facts, "leases").found, "2 of 2 replicas that were looked at, out of 300, have a lease in force");
  EXPECT_EQ(FindingOf(facts, "stats").found, "1 of 2 replicas that were looked at, out of 300, has stats in force");
}

TEST(DoctorTest, KnowsTimesThatAreNoMicroseconds) {
  DoctorFacts facts = Healthy();
  EXPECT_EQ(FindingOf(facts, "stamps").check, "");
  auto& replica = *facts.explanation.mutable_scope()->mutable_replicas(0);
  replica.set_replica_id("r1");
  replica.set_lease_us(absl::ToUnixMillis(kNow));
  EXPECT_EQ(FindingOf(facts, "stamps").health, Health::kBad);
  EXPECT_EQ(FindingOf(facts, "stamps").found, "the times that came from r1 are milliseconds, not microseconds");
  replica.set_lease_us(absl::ToUnixSeconds(kNow));
  EXPECT_EQ(FindingOf(facts, "stamps").found, "the times that came from r1 are seconds, not microseconds");
}

DoctorFacts Asked(size_t tokens, std::vector<BlockProbe> probes) {
  DoctorFacts facts = Healthy();
  facts.token_count = tokens;
  facts.probes = std::move(probes);
  return facts;
}

TEST(DoctorTest, ClaimsOfTokensOnlyWhatItFoundOut) {
  using ::testing::AllOf;
  const auto found = [](size_t tokens, std::vector<BlockProbe> probes) {
    return FindingOf(Asked(tokens, std::move(probes)), "blocks").found;
  };
  EXPECT_THAT(found(64, {{.block_size = 16, .asked = true, .because = "", .held = true}}),
              HasSubstr("first block of these tokens is held"));
  EXPECT_THAT(found(64, {{.block_size = 16, .asked = false, .because = "the deadline has passed"}}),
              HasSubstr("was not found out: the deadline has passed"));
  EXPECT_THAT(found(64, {{.block_size = 16, .asked = true, .because = ""},
                         {.block_size = 32, .asked = true, .because = "", .expired = true}}),
              HasSubstr("of 32, is held, but has expired"));
  EXPECT_THAT(
      found(8, {{.block_size = 1, .asked = true, .because = ""}, {.block_size = 8, .asked = true, .because = ""}}),
      AllOf(HasSubstr("these 8 tokens are fewer"), HasSubstr("of 1, 8")));
  EXPECT_THAT(
      found(64, {{.block_size = 16, .asked = true, .because = ""}, {.block_size = 32, .asked = true, .because = ""}}),
      HasSubstr("is not held, in any of the sizes 16, 32"));
}

TEST(DoctorTest, AnAnswerThatPrefersNobodyIsWellWhereAllHoldAlike) {
  DoctorFacts facts = Asked(64, {});
  facts.explanation.mutable_answer()->set_reason_code("AFFINITY_HINT");
  facts.explanation.mutable_input()->set_tokens(64);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kWarning);
  for (int i = 0; i < 2; ++i) {
    auto& match = *facts.explanation.add_matches();
    match.set_k(2);
    match.set_n(2);
  }
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kOk);
  EXPECT_THAT(FindingOf(facts, "answer").found, HasSubstr("all replicas hold them alike"));
  facts.explanation.mutable_matches(0)->set_k(1);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kWarning);
}

TEST(DoctorTest, WhereAllHoldALittleAlikeThatIsTold) {
  DoctorFacts facts = Asked(200, {});
  facts.explanation.mutable_answer()->set_reason_code("AFFINITY_HINT");
  facts.explanation.mutable_input()->set_tokens(200);
  facts.explanation.mutable_input()->set_blocks(12);
  auto& match = *facts.explanation.add_matches();
  match.set_k(1);
  match.set_n(1);
  match.set_matched_blocks(10);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kWarning);
  EXPECT_THAT(FindingOf(facts, "answer").found, HasSubstr("the first 10 of their 12 blocks"));
  match.set_matched_blocks(11);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kOk);
}

TEST(DoctorTest, AFloorAboveAllScoresIsTold) {
  DoctorFacts facts = Asked(64, {});
  facts.explanation.mutable_answer()->set_reason_code("NO_HINT");
  facts.explanation.mutable_input()->set_tokens(64);
  facts.explanation.mutable_policy()->set_routing_floor_score(64);
  facts.explanation.mutable_policy()->set_source("p.yaml:1:1");
  auto& match = *facts.explanation.add_matches();
  match.set_k(1);
  match.set_n(1);
  match.set_matched_tokens(64);
  match.set_freshness(0.5);
  match.set_pressure_factor(1);
  match.set_slo_bias(1);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kWarning);
  EXPECT_THAT(FindingOf(facts, "answer").found, HasSubstr("routingFloorScore of 64"));
  EXPECT_THAT(FindingOf(facts, "answer").mend, HasSubstr("p.yaml:1:1"));
  match.set_freshness(1);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kOk);
}

TEST(DoctorTest, NoHintForAPromptBelowThePolicysMinimumIsWell) {
  DoctorFacts facts = Asked(64, {});
  facts.explanation.mutable_answer()->set_reason_code("NO_HINT");
  facts.explanation.mutable_input()->set_tokens(64);
  facts.explanation.mutable_policy()->set_minimum_matched_tokens(64);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kWarning);
  facts.explanation.mutable_policy()->set_minimum_matched_tokens(65);
  EXPECT_EQ(FindingOf(facts, "answer").health, Health::kOk);
}

}  // namespace
}  // namespace icache
