#include "icache/telemetry/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "icache/telemetry/logging.h"
#include "tests/telemetry/fake_index.h"
#include "tests/telemetry/page_reader.h"
#include "tests/testing/fake_clock.h"

namespace icache {
namespace {

using ::icache::testing::FakeClock;
using ::icache::testing::FakeIndex;
using ::icache::testing::PageReader;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr char kCalls[] = "inferencecache_lookup_route_calls_total";
constexpr char kLatency[] = "inferencecache_lookup_route_latency_seconds";
constexpr char kMatched[] = "inferencecache_lookup_route_matched_tokens";
constexpr char kUpdates[] = "inferencecache_ingest_updates_total";
constexpr char kEntries[] = "inferencecache_ingest_entries_total";
constexpr char kDropped[] = "inferencecache_ingest_dropped_total";
constexpr char kIndexEntries[] = "inferencecache_index_entries";
constexpr char kAge[] = "inferencecache_last_observation_age_seconds";

ApplyResult Applied(size_t entries_stored) {
  ApplyResult result;
  result.applied = true;
  result.entries_stored = entries_stored;
  return result;
}

ApplyResult Refused(DropReason reason) {
  ApplyResult result;
  result.dropped.Add(reason);
  return result;
}

// "name type label label" of each family, labels in order, `le` left out.
std::set<std::string> FamilyRows(const PageReader& page) {
  std::set<std::string> rows;
  for (const auto& [name, family] : page.families()) {
    std::set<std::string> labels;
    for (const auto& [sample, series] : family.samples) {
      for (const auto& one : series) {
        for (const auto& [label, value] : one.labels) labels.insert(label);
      }
    }
    labels.erase("le");
    std::string row = name + " " + family.type;
    for (const std::string& label : labels) row += " " + label;
    rows.insert(row);
  }
  return rows;
}

// The texts between backquotes, in order.
std::vector<std::string> Quoted(const std::string& text) {
  std::vector<std::string> quoted;
  for (size_t begin = text.find('`'); begin != std::string::npos; begin = text.find('`', begin)) {
    const size_t end = text.find('`', begin + 1);
    if (end == std::string::npos) break;
    quoted.push_back(text.substr(begin + 1, end - begin - 1));
    begin = end + 1;
  }
  return quoted;
}

std::string ReadDocument() {
  std::ifstream file(ICACHE_SOURCE_DIR "/docs/metrics.md");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

class MetricsTest : public ::testing::Test {
 protected:
  // The page, which must be well formed.
  PageReader Page() {
    PageReader page(metrics_.Render());
    EXPECT_THAT(page.problems(), IsEmpty());
    return page;
  }

  // The index holds the model from now on, and was told of it just now.
  void Hold(const std::string& model, int64_t prefixes = 1) {
    index_.models[model] = {.prefixes = prefixes, .stats_rows = 0, .last_applied = clock_.Now()};
  }

  void Lookup(std::string_view model, ReasonCode reason = ReasonCode::kNoHint) {
    LookupOutcome outcome;
    outcome.model_id = model;
    outcome.model_held = index_.HoldsModel(model);
    outcome.reason = reason;
    outcome.hint_used = reason == ReasonCode::kPrefixMatch;
    outcome.latency = absl::Microseconds(30);
    outcome.matched_tokens = reason == ReasonCode::kPrefixMatch ? 64 : 0;
    metrics_.OnLookup(outcome);
  }

  // At least one sample of every family.
  void FillEverything() {
    Hold("llama", 3);
    metrics_.OnUpdate("llama", Applied(3));
    Lookup("llama", ReasonCode::kPrefixMatch);
    index_.quota_tenants["team-a"] = 1;
  }

  FakeClock clock_;
  FakeIndex index_;
  Metrics metrics_{&index_, &clock_, {.version = "1.2.3", .commit = "abc"}};
};

// One row per row of contract/metrics.md, process_* written out.
TEST_F(MetricsTest, PageHasEverySeriesOfTheContractAndNoOther) {
  FillEverything();
  EXPECT_THAT(FamilyRows(Page()), UnorderedElementsAre(                                                               //
                                      "inferencecache_server_up gauge",                                               //
                                      "inferencecache_build_info gauge commit version",                               //
                                      "inferencecache_server_grpc_tls_enabled gauge",                                 //
                                      "inferencecache_index_entries gauge model",                                     //
                                      "inferencecache_index_holdings gauge",                                          //
                                      "inferencecache_index_memory_bytes gauge",                                      //
                                      "inferencecache_lookup_route_calls_total counter hint_used model reason_code",  //
                                      "inferencecache_lookup_route_latency_seconds histogram model",                  //
                                      "inferencecache_lookup_route_matched_tokens histogram model",                   //
                                      "inferencecache_ingest_updates_total counter model",                            //
                                      "inferencecache_ingest_entries_total counter model",                            //
                                      "inferencecache_ingest_dropped_total counter reason",                           //
                                      "inferencecache_events_total counter type",                                     //
                                      "inferencecache_index_evictions_total counter algorithm reason",                //
                                      "inferencecache_tenant_evictions_total counter reason tenant_id",               //
                                      "inferencecache_lookups_shed_total counter reason",                             //
                                      "inferencecache_last_observation_age_seconds gauge model",                      //
                                      "inferencecache_policy_reloads_total counter result",                           //
                                      "inferencecache_policy_last_reload_success_timestamp_seconds gauge",            //
                                      "process_cpu_seconds_total counter",                                            //
                                      "process_resident_memory_bytes gauge",                                          //
                                      "process_virtual_memory_bytes gauge",                                           //
                                      "process_open_fds gauge",                                                       //
                                      "process_max_fds gauge",                                                        //
                                      "process_start_time_seconds gauge"));
}

TEST_F(MetricsTest, PageIsWellFormedBeforeAnythingHappens) {
  const PageReader page = Page();
  EXPECT_THAT(page.Value("inferencecache_server_up"), Optional(0));
  EXPECT_THAT(page.families().at(kCalls).samples, IsEmpty());
}

TEST_F(MetricsTest, ServerUpFollowsServing) {
  metrics_.SetServing(true);
  EXPECT_THAT(Page().Value("inferencecache_server_up"), Optional(1));
  metrics_.SetServing(false);
  EXPECT_THAT(Page().Value("inferencecache_server_up"), Optional(0));
}

TEST_F(MetricsTest, LossesOfTheLogAreShown) {
  class LossyLogger final : public Logger {
   public:
    void Log(LogSeverity, std::string_view, absl::Span<const LogField>) override {}
    LogLosses Losses() const override { return {.suppressed = 3, .unwritable = 5}; }
  } log;
  metrics_.WatchLog(&log);
  EXPECT_THAT(Page().Value("inferencecache_log_lines_lost_total", {{"reason", "rate"}}), Optional(3));
  EXPECT_THAT(Page().Value("inferencecache_log_lines_lost_total", {{"reason", "unwritable"}}), Optional(5));
}

TEST_F(MetricsTest, TlsShowsForListenersThatHaveIt) {
  EXPECT_THAT(Page().Value("inferencecache_server_grpc_tls_enabled"), Optional(0));
  metrics_.RecordTlsLoad(Listener::kGrpc, absl::FromUnixSeconds(1'800'000'000));
  metrics_.RecordTlsReload(Listener::kGrpc, /*success=*/false);
  const PageReader page = Page();
  EXPECT_THAT(page.Value("inferencecache_server_grpc_tls_enabled"), Optional(1));
  EXPECT_THAT(page.Value("inferencecache_tls_certificate_expiry_timestamp_seconds", {{"listener", "grpc"}}),
              Optional(1'800'000'000));
  EXPECT_THAT(page.Value("inferencecache_tls_reloads_total", {{"listener", "grpc"}, {"result", "failure"}}),
              Optional(1));
  EXPECT_EQ(page.Value("inferencecache_tls_reloads_total", {{"listener", "http"}, {"result", "failure"}}),
            std::nullopt);
}

TEST_F(MetricsTest, ConnectionsThatComeToNothingAreCounted) {
  metrics_.ShowConnections();
  metrics_.RecordTlsLoad(Listener::kHttp, absl::FromUnixSeconds(1'800'000'000));
  metrics_.RecordHandshakeFailure(Listener::kHttp);
  metrics_.RecordAcceptFailure(Listener::kGrpc);
  metrics_.RecordHttpCut(/*for_room=*/true);
  metrics_.RecordCompressedRequest();
  const PageReader page = Page();
  EXPECT_THAT(page.Value("inferencecache_tls_handshake_failures_total", {{"listener", "http"}}), Optional(1));
  EXPECT_EQ(page.Value("inferencecache_tls_handshake_failures_total", {{"listener", "grpc"}}), std::nullopt);
  EXPECT_THAT(page.Value("inferencecache_accept_failures_total", {{"listener", "grpc"}}), Optional(1));
  EXPECT_THAT(page.Value("inferencecache_accept_failures_total", {{"listener", "http"}}), Optional(0));
  EXPECT_THAT(page.Value("inferencecache_http_connections_cut_total", {{"reason", "room"}}), Optional(1));
  EXPECT_THAT(page.Value("inferencecache_http_connections_cut_total", {{"reason", "slow"}}), Optional(0));
  EXPECT_THAT(page.Value("inferencecache_compressed_requests_total"), Optional(1));
}

TEST_F(MetricsTest, BuildInfoIsOneWithVersionAndCommit) {
  EXPECT_THAT(Page().Value("inferencecache_build_info", {{"version", "1.2.3"}, {"commit", "abc"}}), Optional(1));
}

TEST_F(MetricsTest, CompiledBuildIsNamed) {
  EXPECT_FALSE(CompiledBuild().version.empty());
  EXPECT_FALSE(CompiledBuild().commit.empty());
}

TEST_F(MetricsTest, EachLookupCountsOnceUnderItsReasonAndHint) {
  Hold("llama");
  Lookup("llama", ReasonCode::kPrefixMatch);
  Lookup("llama", ReasonCode::kPrefixMatch);
  Lookup("llama", ReasonCode::kTimeout);
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kCalls, {{"model", "llama"}, {"reason_code", "PREFIX_MATCH"}, {"hint_used", "true"}}),
              Optional(2));
  EXPECT_THAT(page.Value(kCalls, {{"model", "llama"}, {"reason_code", "TIMEOUT"}, {"hint_used", "false"}}),
              Optional(1));
  EXPECT_EQ(page.Sum(kCalls), 3);
}

TEST_F(MetricsTest, EveryReasonCodeHasItsWireName) {
  Hold("llama");
  for (size_t i = 0; i < kReasonCodeCount; ++i) Lookup("llama", static_cast<ReasonCode>(i));
  EXPECT_THAT(Page().LabelValues(kCalls, "reason_code"),
              UnorderedElementsAre("PREFIX_MATCH", "TENANT_HOT", "AFFINITY_HINT", "NO_HINT", "POLICY_REQUIRES_CHAIN",
                                   "TIMEOUT", "UNKNOWN_TENANT", "UNKNOWN_MODEL", "UNKNOWN_HASH_SCHEME"));
}

TEST_F(MetricsTest, LatencyHasTheBucketsOfTheContractWithInclusiveBounds) {
  Hold("llama");
  LookupOutcome outcome;
  outcome.model_id = "llama";
  outcome.model_held = true;
  for (const absl::Duration latency :
       {absl::Microseconds(10), absl::Nanoseconds(10'001), absl::Milliseconds(100), absl::Milliseconds(101)}) {
    outcome.latency = latency;
    metrics_.OnLookup(outcome);
  }
  const PageReader page = Page();
  std::vector<std::string> bounds;
  std::vector<double> counts;
  for (const auto& bucket : page.families().at(kLatency).samples.at(std::string(kLatency) + "_bucket")) {
    bounds.push_back(bucket.labels.at("le"));
    counts.push_back(bucket.value);
  }
  EXPECT_THAT(bounds, ElementsAre("1e-05", "2.5e-05", "5e-05", "0.0001", "0.00025", "0.0005", "0.001", "0.0025",
                                  "0.005", "0.01", "0.025", "0.05", "0.1", "+Inf"));
  EXPECT_THAT(counts, ElementsAre(1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 3, 4));
  EXPECT_THAT(page.Value(std::string(kLatency) + "_sum", {{"model", "llama"}}),
              Optional(::testing::DoubleNear(0.201020001, 1e-12)));
}

TEST_F(MetricsTest, LatencyOfAClockThatWasSetStaysInBounds) {
  Hold("llama");
  LookupOutcome outcome;
  outcome.model_id = "llama";
  outcome.model_held = true;
  for (const absl::Duration latency : {-absl::InfiniteDuration(), -absl::Seconds(1), absl::InfiniteDuration()}) {
    outcome.latency = latency;
    metrics_.OnLookup(outcome);
  }
  const PageReader page = Page();
  EXPECT_THAT(page.Value(std::string(kLatency) + "_sum", {{"model", "llama"}}), Optional(3600));
  EXPECT_THAT(page.Value(std::string(kLatency) + "_count", {{"model", "llama"}}), Optional(3));
}

TEST_F(MetricsTest, MatchedTokensAreThoseOfPrefixMatchesOnly) {
  Hold("llama");
  Lookup("llama", ReasonCode::kPrefixMatch);
  Lookup("llama", ReasonCode::kTenantHot);
  Lookup("llama", ReasonCode::kAffinityHint);
  const PageReader page = Page();
  EXPECT_THAT(page.Value(std::string(kMatched) + "_count", {{"model", "llama"}}), Optional(1));
  EXPECT_THAT(page.Value(std::string(kMatched) + "_sum", {{"model", "llama"}}), Optional(64));
  EXPECT_THAT(page.Value(std::string(kMatched) + "_bucket", {{"model", "llama"}, {"le", "16"}}), Optional(0));
  EXPECT_THAT(page.Value(std::string(kMatched) + "_bucket", {{"model", "llama"}, {"le", "64"}}), Optional(1));
}

TEST_F(MetricsTest, AppliedUpdatesCountWithTheirEntries) {
  Hold("llama");
  metrics_.OnUpdate("llama", Applied(5));
  metrics_.OnUpdate("llama", Applied(0));
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kUpdates, {{"model", "llama"}}), Optional(2));
  EXPECT_THAT(page.Value(kEntries, {{"model", "llama"}}), Optional(5));
}

TEST_F(MetricsTest, RefusedUpdateCountsAsDroppedOnly) {
  Hold("llama");
  metrics_.OnUpdate("llama", Refused(DropReason::kFenced));
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kDropped, {{"reason", "fenced"}}), Optional(1));
  EXPECT_THAT(page.families().at(kUpdates).samples, IsEmpty());
}

TEST_F(MetricsTest, DroppedPartsOfAnAppliedUpdateCountByReason) {
  Hold("llama");
  ApplyResult result = Applied(1);
  result.dropped.Add(DropReason::kMalformedEntry, 3);
  result.dropped.Add(DropReason::kStaleTimestamp);
  metrics_.OnUpdate("llama", result);
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kUpdates, {{"model", "llama"}}), Optional(1));
  EXPECT_THAT(page.Value(kDropped, {{"reason", "malformed_entry"}}), Optional(3));
  EXPECT_THAT(page.Value(kDropped, {{"reason", "stale_timestamp"}}), Optional(1));
  EXPECT_EQ(page.Sum(kDropped), 4);
}

TEST_F(MetricsTest, EveryDropReasonIsASeriesFromTheStart) {
  const PageReader page = Page();
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    EXPECT_THAT(page.Value(kDropped, {{"reason", std::string(DropReasonName(static_cast<DropReason>(i)))}}),
                Optional(0));
  }
}

TEST_F(MetricsTest, EventsCountByTypeWhenApplied) {
  metrics_.OnEvent(CacheEventType::kPrefixEvicted, Applied(0));
  metrics_.OnEvent(CacheEventType::kUnspecified, Applied(0));
  metrics_.OnEvent(CacheEventType::kAllCleared, Refused(DropReason::kMalformedEvent));
  const PageReader page = Page();
  constexpr char kEvents[] = "inferencecache_events_total";
  EXPECT_THAT(page.Value(kEvents, {{"type", "PREFIX_EVICTED"}}), Optional(1));
  EXPECT_THAT(page.Value(kEvents, {{"type", "TYPE_UNSPECIFIED"}}), Optional(1));
  EXPECT_THAT(page.Value(kEvents, {{"type", "PREFIX_ADDED"}}), Optional(0));
  EXPECT_THAT(page.Value(kEvents, {{"type", "REPLICA_UPDATED"}}), Optional(0));
  EXPECT_THAT(page.Value(kEvents, {{"type", "ALL_CLEARED"}}), Optional(0));
  EXPECT_THAT(page.Value(kDropped, {{"reason", "malformed_event"}}), Optional(1));
}

TEST_F(MetricsTest, IndexGaugesAndEvictionsComeFromTheIndex) {
  index_.stats = {.prefixes = 7,
                  .entries = 9,
                  .memory_bytes = 12'345'678'901,
                  .evicted_for_cap = {1, 2},
                  .evicted_for_memory = {3, 4},
                  .expired = {5, 6}};
  const PageReader page = Page();
  constexpr char kEvictions[] = "inferencecache_index_evictions_total";
  EXPECT_THAT(page.Value("inferencecache_index_holdings"), Optional(9));
  EXPECT_THAT(page.Value("inferencecache_index_memory_bytes"), Optional(12'345'678'901));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lru"}, {"reason", "cap"}}), Optional(1));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lfu"}, {"reason", "cap"}}), Optional(2));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lru"}, {"reason", "memory"}}), Optional(3));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lfu"}, {"reason", "memory"}}), Optional(4));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lru"}, {"reason", "ttl"}}), Optional(5));
  EXPECT_THAT(page.Value(kEvictions, {{"algorithm", "lfu"}, {"reason", "ttl"}}), Optional(6));
}

TEST_F(MetricsTest, OnlyTenantsWithAQuotaHaveASeries) {
  index_.quota_tenants = {{"team-a", 0}, {"team-b", 12}};
  const PageReader page = Page();
  constexpr char kTenantEvictions[] = "inferencecache_tenant_evictions_total";
  EXPECT_THAT(page.LabelValues(kTenantEvictions, "tenant_id"), UnorderedElementsAre("team-a", "team-b"));
  EXPECT_THAT(page.Value(kTenantEvictions, {{"tenant_id", "team-b"}, {"reason", "over_entries"}}), Optional(12));
}

TEST_F(MetricsTest, ObservationAgeCountsFromTheLastAppliedUpdate) {
  Hold("llama", 42);
  clock_.Advance(absl::Milliseconds(2500));
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kAge, {{"model", "llama"}}), Optional(2.5));
  EXPECT_THAT(page.Value(kIndexEntries, {{"model", "llama"}}), Optional(42));
}

TEST_F(MetricsTest, ObservationAgeIsNeverNegativeAndAbsentWithoutAnUpdate) {
  index_.models["ahead"] = {.prefixes = 1, .stats_rows = 0, .last_applied = clock_.Now() + absl::Seconds(5)};
  index_.models["never"] = {.prefixes = 1, .stats_rows = 0, .last_applied = absl::InfinitePast()};
  const PageReader page = Page();
  EXPECT_THAT(page.Value(kAge, {{"model", "ahead"}}), Optional(0));
  EXPECT_THAT(page.LabelValues(kAge, "model"), UnorderedElementsAre("ahead"));
}

TEST_F(MetricsTest, PolicyReloadsCountByResultAndDateTheSetInForce) {
  constexpr char kReloads[] = "inferencecache_policy_reloads_total";
  constexpr char kLoadedAt[] = "inferencecache_policy_last_reload_success_timestamp_seconds";
  metrics_.RecordPolicyLoad();
  EXPECT_THAT(Page().Value(kReloads, {{"result", "success"}}), Optional(0));
  EXPECT_THAT(Page().Value(kReloads, {{"result", "failure"}}), Optional(0));
  EXPECT_THAT(Page().Value(kLoadedAt), Optional(1'700'000'000));

  clock_.Advance(absl::Milliseconds(1500));
  metrics_.RecordPolicyReload(/*success=*/true);
  clock_.Advance(absl::Seconds(1));
  metrics_.RecordPolicyReload(/*success=*/false);
  EXPECT_THAT(Page().Value(kReloads, {{"result", "success"}}), Optional(1));
  EXPECT_THAT(Page().Value(kReloads, {{"result", "failure"}}), Optional(1));
  EXPECT_THAT(Page().Value(kLoadedAt), Optional(1'700'000'001.5));
}

TEST_F(MetricsTest, ProcessSeriesDescribeThisProcess) {
  const PageReader page = Page();
  EXPECT_GT(page.Value("process_resident_memory_bytes"), 1 << 20);
  EXPECT_GE(page.Value("process_virtual_memory_bytes"), page.Value("process_resident_memory_bytes"));
  EXPECT_GE(page.Value("process_open_fds"), 3);
  EXPECT_GE(page.Value("process_max_fds"), page.Value("process_open_fds"));
  EXPECT_GE(page.Value("process_cpu_seconds_total"), 0);
  // Between the year 2020 and now.
  EXPECT_GT(page.Value("process_start_time_seconds"), 1.5e9);
  EXPECT_LE(page.Value("process_start_time_seconds"), absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()) + 1);
}

TEST_F(MetricsTest, NothingIsShed) {
  EXPECT_THAT(Page().Value("inferencecache_lookups_shed_total", {{"reason", "overload"}}), Optional(0));
}

// Label bounds: the last paragraph of contract/metrics.md.

TEST_F(MetricsTest, LookupOfAModelThatIsNotHeldCountsAsOther) {
  Lookup("invented");
  EXPECT_THAT(Page().LabelValues(kCalls, "model"), UnorderedElementsAre("other"));
  EXPECT_THAT(Page().LabelValues(kLatency, "model"), UnorderedElementsAre("other"));
}

TEST_F(MetricsTest, UpdateThatLeavesItsModelWithoutEntryAndStatsCountsAsOther) {
  metrics_.OnUpdate("invented", Applied(0));
  EXPECT_THAT(Page().Value(kUpdates, {{"model", "other"}}), Optional(1));
  EXPECT_THAT(Page().LabelValues(kUpdates, "model"), UnorderedElementsAre("other"));
}

TEST_F(MetricsTest, ModelNamedOtherSharesTheSeriesOfTheRest) {
  Hold("other");
  Lookup("other");
  Lookup("invented");
  metrics_.OnUpdate("other", Applied(1));
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "other"}}), 2);
}

TEST_F(MetricsTest, AtMostAThousandModelsHaveSeriesFirstComeFirstServed) {
  for (int i = 0; i < 1500; ++i) {
    // The names come in another order than the index lists them in.
    const std::string model = "model-" + std::to_string(9999 - i);
    Hold(model, /*prefixes=*/2);
    metrics_.OnUpdate(model, Applied(1));
    Lookup(model);
  }
  const PageReader page = Page();
  for (const char* family : {kCalls, kLatency, kUpdates, kEntries, kIndexEntries, kAge}) {
    EXPECT_THAT(page.LabelValues(family, "model"), SizeIs(1001)) << family;
    EXPECT_TRUE(page.LabelValues(family, "model").contains("model-9000")) << family;
    EXPECT_FALSE(page.LabelValues(family, "model").contains("model-8999")) << family;
  }
  EXPECT_THAT(page.Value(kUpdates, {{"model", "other"}}), Optional(500));
  EXPECT_EQ(page.Sum(kCalls, {{"model", "other"}}), 500);
  EXPECT_THAT(page.Value(kIndexEntries, {{"model", "other"}}), Optional(1000));
  EXPECT_EQ(page.Sum(kIndexEntries), 3000);
}

TEST_F(MetricsTest, ObservationAgeOfTheRestIsThatOfTheLatest) {
  for (size_t i = 0; i < Metrics::kMaxModels; ++i) Hold("a" + std::to_string(i));
  Page();
  Hold("z1");
  clock_.Advance(absl::Seconds(10));
  Hold("z2");
  clock_.Advance(absl::Seconds(5));
  EXPECT_THAT(Page().Value(kAge, {{"model", "other"}}), Optional(5));
}

TEST_F(MetricsTest, DrainedModelLosesItsGaugesAtOnceAndItsCountersAnHourLater) {
  Hold("llama");
  metrics_.OnUpdate("llama", Applied(1));
  Lookup("llama");
  index_.models.clear();

  EXPECT_THAT(Page().LabelValues(kIndexEntries, "model"), IsEmpty());
  EXPECT_THAT(Page().LabelValues(kAge, "model"), IsEmpty());
  EXPECT_TRUE(Page().LabelValues(kCalls, "model").contains("llama"));
  EXPECT_TRUE(Page().LabelValues(kUpdates, "model").contains("llama"));

  clock_.Advance(absl::Hours(1) - absl::Microseconds(1));
  EXPECT_TRUE(Page().LabelValues(kCalls, "model").contains("llama"));
  clock_.Advance(absl::Microseconds(1));
  EXPECT_FALSE(Page().LabelValues(kCalls, "model").contains("llama"));
  EXPECT_FALSE(Page().LabelValues(kUpdates, "model").contains("llama"));
}

TEST_F(MetricsTest, SweepDatesADrainWithoutAScrape) {
  Hold("llama");
  Lookup("llama");
  index_.models.clear();
  metrics_.Sweep();
  clock_.Advance(absl::Hours(1));
  EXPECT_FALSE(Page().LabelValues(kCalls, "model").contains("llama"));
}

TEST_F(MetricsTest, LookupOfADrainedModelCountsAsOther) {
  Hold("llama");
  Lookup("llama");
  index_.models.clear();
  Lookup("llama");
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "llama"}}), 1);
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "other"}}), 1);
}

TEST_F(MetricsTest, ModelThatComesBackWithinTheHourContinuesItsCounters) {
  Hold("llama");
  Lookup("llama");
  index_.models.clear();
  Page();
  clock_.Advance(absl::Minutes(59));
  Hold("llama");
  Page();
  clock_.Advance(absl::Minutes(59));
  Lookup("llama");
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "llama"}}), 2);
}

TEST_F(MetricsTest, ModelThatComesBackAfterTheHourStartsAnew) {
  Hold("llama");
  Lookup("llama");
  index_.models.clear();
  Page();
  clock_.Advance(absl::Hours(1));
  Page();
  Hold("llama");
  Lookup("llama");
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "llama"}}), 1);
}

TEST_F(MetricsTest, PlaceOfAForgottenModelIsFreeForAnother) {
  for (size_t i = 0; i < Metrics::kMaxModels; ++i) Hold("model-" + std::to_string(i));
  Page();
  Hold("late");
  Lookup("late");
  EXPECT_FALSE(Page().LabelValues(kCalls, "model").contains("late"));

  index_.models.erase("model-0");
  Page();
  clock_.Advance(absl::Hours(1));
  EXPECT_TRUE(Page().LabelValues(kIndexEntries, "model").contains("late"));
  Lookup("late");
  EXPECT_EQ(Page().Sum(kCalls, {{"model", "late"}}), 1);
}

// Hostile names.

TEST_F(MetricsTest, QuotesBackslashesAndLineBreaksInNamesAreEscaped) {
  const std::string name = "a\"} 1\nx{b=\"\\";
  Hold(name);
  Lookup(name);
  index_.quota_tenants[name] = 1;
  const PageReader page = Page();
  EXPECT_THAT(page.LabelValues(kCalls, "model"), ElementsAre(name));
  EXPECT_THAT(page.LabelValues(kIndexEntries, "model"), ElementsAre(name));
  EXPECT_THAT(page.LabelValues("inferencecache_tenant_evictions_total", "tenant_id"), ElementsAre(name));
}

TEST_F(MetricsTest, BytesThatALabelCannotHaveAreReplaced) {
  const std::string name("nul\0bad\xFFgood\xC3\xA9", 14);
  Hold(name);
  EXPECT_THAT(Page().LabelValues(kIndexEntries, "model"), ElementsAre("nul\xEF\xBF\xBD"
                                                                      "bad\xEF\xBF\xBDgood\xC3\xA9"));
}

TEST_F(MetricsTest, NamesThatDifferOnlyInSuchBytesShareOneSeries) {
  for (const char* name : {"a\xFF", "a\xFE"}) {
    Hold(name, /*prefixes=*/3);
    Lookup(name);
    metrics_.OnUpdate(name, Applied(1));
  }
  index_.quota_tenants = {{"t\xFF", 1}, {"t\xFE", 2}};
  const PageReader page = Page();  // with no series given twice
  EXPECT_EQ(page.Sum(kCalls, {{"model", "a\xEF\xBF\xBD"}}), 2);
  EXPECT_THAT(page.Value(kIndexEntries, {{"model", "a\xEF\xBF\xBD"}}), Optional(6));
  EXPECT_EQ(page.Sum("inferencecache_tenant_evictions_total"), 3);
}

TEST_F(MetricsTest, LabelValuesHaveAtMost512Bytes) {
  const std::string fits(512, 'x');
  Hold(fits);
  Hold(std::string(512, '\xFF'));  // three times as long once replaced
  index_.quota_tenants[std::string(5000, 't')] = 1;
  const PageReader page = Page();
  EXPECT_TRUE(page.LabelValues(kIndexEntries, "model").contains(fits));
  for (const std::string& model : page.LabelValues(kIndexEntries, "model")) EXPECT_LE(model.size(), 512u);
  EXPECT_THAT(page.LabelValues("inferencecache_tenant_evictions_total", "tenant_id"),
              ElementsAre(std::string(512, 't')));
}

// docs/metrics.md has one table row per family: | `name` | type | `label`, `label` | meaning |.
TEST_F(MetricsTest, DocumentListsExactlyTheFamiliesOfThePage) {
  std::istringstream document(ReadDocument());
  std::set<std::string> documented;
  std::string line;
  while (std::getline(document, line)) {
    if (line.rfind("| `inferencecache_", 0) != 0 && line.rfind("| `process_", 0) != 0) continue;
    std::istringstream cells(line.substr(1));
    std::string name, type, labels;
    std::getline(cells, name, '|');
    std::getline(cells, type, '|');
    std::getline(cells, labels, '|');
    std::erase(type, ' ');
    std::string row = Quoted(name).at(0) + " " + type;
    const std::vector<std::string> quoted = Quoted(labels);
    for (const std::string& label : std::set<std::string>(quoted.begin(), quoted.end())) row += " " + label;
    EXPECT_TRUE(documented.insert(row).second) << "listed twice: " << row;
  }
  FillEverything();
  metrics_.RecordTlsLoad(Listener::kGrpc, clock_.Now());
  metrics_.RecordAccessLoad();
  metrics_.ShowConnections();
  const NullLogger log;
  const EventHub events(&clock_, /*max_queued_events=*/1);
  metrics_.WatchEvents(&events);
  metrics_.WatchLog(&log);
  EXPECT_EQ(documented, FamilyRows(Page()));
}

// Lists of fixed values are in the document too, each in backquotes.
TEST_F(MetricsTest, DocumentNamesEveryFixedLabelValue) {
  const std::string document = ReadDocument();
  const PageReader page = Page();
  for (const char* family : {"inferencecache_ingest_dropped_total", "inferencecache_events_total",
                             "inferencecache_index_evictions_total", "inferencecache_lookups_shed_total",
                             "inferencecache_policy_reloads_total", "inferencecache_http_connections_cut_total"}) {
    for (const char* label : {"reason", "type", "algorithm", "result"}) {
      for (const std::string& value : page.LabelValues(family, label)) {
        EXPECT_THAT(document, ::testing::HasSubstr("`" + value + "`")) << family;
      }
    }
  }
  for (size_t i = 0; i < kReasonCodeCount; ++i) {
    const std::string reason(ReasonCodeName(static_cast<ReasonCode>(i)));
    EXPECT_THAT(document, ::testing::HasSubstr("`" + reason + "`"));
  }
}

// Prometheus' own checker, where it is installed.
TEST_F(MetricsTest, PromtoolAcceptsThePage) {
  if (std::system("promtool --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is not installed";
  FillEverything();
  Hold("a\"\\\n\xC3\xA9\xFF");
  Lookup("invented");
  FILE* const promtool = popen("promtool check metrics", "w");
  ASSERT_NE(promtool, nullptr);
  const std::string page = metrics_.Render();
  EXPECT_EQ(std::fwrite(page.data(), 1, page.size(), promtool), page.size());
  EXPECT_EQ(pclose(promtool), 0);
}

}  // namespace
}  // namespace icache
