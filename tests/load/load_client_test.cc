// The commands against a small stand-in for the daemon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "load/bench.h"
#include "load/connection.h"
#include "load/daemon_hints.h"
#include "load/demo.h"
#include "load/replay_command.h"
#include "tests/load/fake_daemon.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::FakeDaemon;
using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

constexpr char kTrace[] = ICACHE_TEST_DATA_DIR "/trace-slice.jsonl";

std::string ReadFile(const std::string& path) {
  std::stringstream content;
  content << std::ifstream(path).rdbuf();
  return content.str();
}

std::unique_ptr<Connection> Connect(const FakeDaemon& daemon) {
  auto connection = Connection::Open({.address = daemon.address()}, kCallTimeout);
  EXPECT_THAT(connection, IsOk());
  return *std::move(connection);
}

TEST(ConnectionTest, NothingAtTheAddressIsUnavailable) {
  EXPECT_THAT(Connection::Open({.address = "unix:" + ::testing::TempDir() + "/nobody.sock"}, absl::Milliseconds(50)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("no daemon answers there within 50ms")));
}

TEST(ConnectionTest, AnErrorKeepsItsCodeAndNamesTheCall) {
  FakeDaemon daemon;
  const absl::Status status =
      StatusFromGrpc(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "too large"), "LookupRoute");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kResourceExhausted, "LookupRoute: too large"));
}

TEST(DaemonHintsTest, AReportIsInForceWhenItReturns) {
  FakeDaemon daemon;
  const auto connection = Connect(daemon);
  DaemonHints hints(connection.get(), Target{}, 12, 16);
  const std::vector<uint64_t> chain = {1, 2, 3};
  ASSERT_THAT(hints.Report(3, {.chain = chain}), IsOk());
  ASSERT_THAT(hints.Report(10, {.chain = absl::MakeConstSpan(chain).first(1)}), IsOk());
  ASSERT_THAT(hints.Report(3, {.evicted = absl::MakeConstSpan(chain).last(1)}), IsOk());

  const auto hint = hints.Ask(chain);
  ASSERT_THAT(hint, IsOk());
  EXPECT_EQ(hint->reason_code, "PREFIX_MATCH");
  EXPECT_EQ(hint->server_us, 7);
  ASSERT_THAT(hint->rows, SizeIs(2));
  EXPECT_EQ(hint->rows[0].engine, 3u);
  EXPECT_EQ(hint->rows[0].matched_tokens, 32);
  EXPECT_EQ(hint->rows[0].worth, 32);  // the score, 16, without the freshness of 0.5 in it
  EXPECT_EQ(hint->rows[1].engine, 10u);
}

TEST(DaemonHintsTest, ReplicaIdsSortLikeTheEngines) {
  FakeDaemon daemon;
  const auto connection = Connect(daemon);
  const DaemonHints hints(connection.get(), Target{}, 11, 16);
  EXPECT_EQ(hints.replica_id(2), "engine-02");
  EXPECT_EQ(hints.replica_id(10), "engine-10");
}

TEST(DaemonHintsTest, RowsOfOtherReplicasAreLeftOut) {
  FakeDaemon daemon;
  const auto connection = Connect(daemon);
  DaemonHints few(connection.get(), Target{}, 1, 16);
  DaemonHints more(connection.get(), Target{}, 2, 16);
  const std::vector<uint64_t> chain = {1};
  ASSERT_THAT(more.Report(1, {.chain = chain}), IsOk());
  const auto hint = few.Ask(chain);
  ASSERT_THAT(hint, IsOk());
  EXPECT_THAT(hint->rows, SizeIs(0));
}

ReplayCommand ReplayOf(const FakeDaemon& daemon) {
  ReplayCommand command;
  command.trace_path = kTrace;
  command.max_requests = 100;
  command.target.address = daemon.address();
  command.options.fleet.capacity_blocks = 20'000;
  command.json_path = ::testing::TempDir() + "/replay.json";
  command.plot_path = ::testing::TempDir() + "/replay.svg";
  return command;
}

TEST(ReplayCommandTest, PlaysATraceAndLeavesNothingBehind) {
  FakeDaemon daemon;
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunReplay(ReplayOf(daemon));
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_THAT(status, IsOk());
  EXPECT_THAT(text, HasSubstr("100 requests"));
  EXPECT_THAT(text, HasSubstr("of them wrong: 0"));

  const auto json = nlohmann::json::parse(ReadFile(::testing::TempDir() + "/replay.json"));
  EXPECT_EQ(json["trace"]["requests"], 100);
  EXPECT_EQ(json["prefixes"]["in_index"], json["prefixes"]["held_by_engines"]);
  // The stand-in knows neither n nor k, so its rows rank as the truth does.
  EXPECT_EQ(json["policies"][0]["tokens_reused"], json["policies"][3]["tokens_reused"]);
  EXPECT_THAT(ReadFile(::testing::TempDir() + "/replay.svg"), HasSubstr("<polyline"));
  EXPECT_EQ(daemon.EntryCount(), 0u);
}

TEST(ReplayCommandTest, TwoReplaysGiveTheSameNumbers) {
  FakeDaemon daemon;
  std::vector<nlohmann::json> policies;
  for (int run = 0; run < 2; ++run) {
    ::testing::internal::CaptureStdout();
    ASSERT_THAT(RunReplay(ReplayOf(daemon)), IsOk());
    ::testing::internal::GetCapturedStdout();
    policies.push_back(nlohmann::json::parse(ReadFile(::testing::TempDir() + "/replay.json"))["policies"]);
  }
  EXPECT_EQ(policies[0], policies[1]);
}

TEST(ReplayCommandTest, RefusesATenantThatIsInUse) {
  FakeDaemon daemon;
  const auto connection = Connect(daemon);
  DaemonHints others(connection.get(), Target{}, 64, 16);
  const std::vector<uint64_t> chain = {1};
  ASSERT_THAT(others.Report(63, {.chain = chain}), IsOk());
  EXPECT_THAT(RunReplay(ReplayOf(daemon)),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("1 prefixes of others")));
}

TEST(DemoTest, PrintsQuestionsAndAnswers) {
  FakeDaemon daemon;
  DemoOptions options;
  options.trace_path = kTrace;
  options.target.address = daemon.address();
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunDemo(options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_THAT(status, IsOk());
  EXPECT_THAT(text, HasSubstr("replica-a holds prompt A (6,758 tokens), replica-b its first 3,584 tokens"));
  EXPECT_THAT(text, HasSubstr("prompt A, word for word"));
  EXPECT_THAT(text, HasSubstr("PREFIX_MATCH"));
  EXPECT_EQ(daemon.EntryCount(), 0u);
}

BenchOptions BenchOf(const FakeDaemon& daemon) {
  BenchOptions options;
  options.target.address = daemon.address();
  options.workload = {.blocks = 8, .chains = 32, .replicas = 4, .holders = 2, .hit_ratio = 0.5};
  options.connections = 2;
  options.concurrency = 4;
  options.threads = 2;
  options.warm_up = absl::ZeroDuration();
  options.requests = 2000;
  return options;
}

TEST(BenchTest, AClosedLoopMeasuresTheNumberOfLookupsAskedFor) {
  FakeDaemon daemon;
  const auto result = Bench(BenchOf(daemon));
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->lookups.Answered(), 2000);
  EXPECT_THAT(result->lookups.errors, SizeIs(0));
  EXPECT_GT(result->LookupsPerSecond(), 0);
  EXPECT_EQ(daemon.StoredBlocks(), 32 * 8 * 2);  // each chain on two replicas
  EXPECT_EQ(daemon.EntryCount(), 0u);
}

TEST(BenchTest, AboutAsManyLookupsHitAsAskedFor) {
  FakeDaemon daemon;
  const auto result = Bench(BenchOf(daemon));
  ASSERT_THAT(result, IsOk());
  EXPECT_NEAR(static_cast<double>(result->lookups.reason_codes.at("PREFIX_MATCH")), 1000, 150);
  EXPECT_EQ(result->lookups.reason_codes.at("PREFIX_MATCH") + result->lookups.reason_codes.at("NO_HINT"), 2000);
}

TEST(BenchTest, ByteChainsMeanTheSameAsPackedOnes) {
  FakeDaemon daemon;
  BenchOptions options = BenchOf(daemon);
  options.threads = 1;  // one order of lookups
  const auto packed = Bench(options);
  options.workload.encoding = ChainEncoding::kBytes;
  const auto bytes = Bench(options);
  ASSERT_THAT(packed, IsOk());
  ASSERT_THAT(bytes, IsOk());
  EXPECT_EQ(packed->lookups.reason_codes, bytes->lookups.reason_codes);
}

TEST(BenchTest, AnOpenLoopSendsEveryCallOfItsScheduleOnce) {
  FakeDaemon daemon;
  BenchOptions options = BenchOf(daemon);
  options.rate = 20'000;
  options.requests = 0;
  options.warm_up = absl::Milliseconds(10);
  options.duration = absl::Milliseconds(100);
  const auto result = Bench(options);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->lookups.Answered(), 2000);
  EXPECT_EQ(result->lookups.latency_ns.count(), 2000u);
}

TEST(BenchTest, StreamsAskTheSameAsUnaryCalls) {
  FakeDaemon daemon;
  BenchOptions options = BenchOf(daemon);
  options.threads = 1;  // one order of lookups
  const auto unary = Bench(options);
  options.mode = LookupMode::kStream;
  const auto stream = Bench(options);
  ASSERT_THAT(unary, IsOk());
  ASSERT_THAT(stream, IsOk());
  EXPECT_EQ(unary->lookups.reason_codes, stream->lookups.reason_codes);
  EXPECT_THAT(stream->lookups.errors, SizeIs(0));

  options.rate = 20'000;
  const auto open_loop = Bench(options);
  ASSERT_THAT(open_loop, IsOk());
  EXPECT_EQ(open_loop->lookups.Answered(), 2000);
}

TEST(BenchTest, AStreamThatBreaksFailsOneLookupAndIsOpenedAgain) {
  FakeDaemon daemon;
  daemon.answers_per_stream = 9;
  BenchOptions options = BenchOf(daemon);
  options.mode = LookupMode::kStream;
  const auto result = Bench(options);
  ASSERT_THAT(result, IsOk());
  const int64_t failed = result->lookups.errors.at("UNAVAILABLE");
  EXPECT_EQ(result->lookups.Answered() + failed, 2000);
  EXPECT_NEAR(static_cast<double>(failed), 200, 20);  // every tenth
}

TEST(BenchTest, NothingIsReportedWhereNothingIsToBeFilled) {
  FakeDaemon daemon;
  BenchOptions options = BenchOf(daemon);
  options.fill = false;
  const auto result = Bench(options);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(result->lookups.reason_codes.at("NO_HINT"), 2000);
  EXPECT_EQ(daemon.StoredBlocks(), 0);
}

TEST(BenchTest, IngestRunsBesideTheLookupsAndLeavesNothingBehind) {
  FakeDaemon daemon;
  BenchOptions options = BenchOf(daemon);
  options.ingest_blocks_per_s = 80'000;
  const auto result = Bench(options);
  ASSERT_THAT(result, IsOk());
  EXPECT_GT(result->ingest_blocks_per_s, 0);
  EXPECT_GT(daemon.StoredBlocks(), 32 * 8 * 2);
  EXPECT_EQ(daemon.EntryCount(), 0u);
}

TEST(BenchTest, ReportsAreTextAndJson) {
  FakeDaemon daemon;
  const BenchOptions options = BenchOf(daemon);
  const auto result = Bench(options);
  ASSERT_THAT(result, IsOk());
  EXPECT_THAT(BenchText(options, *result), HasSubstr("lookups:         2,000 in"));
  EXPECT_THAT(BenchText(options, *result), HasSubstr("errors:          none"));
  const nlohmann::ordered_json json = BenchJson(options, *result);
  EXPECT_EQ(json["lookups"], 2000);
  EXPECT_EQ(json["loop"], "closed");
  EXPECT_EQ(json["in_daemon_us"]["p50"], 7);
  EXPECT_TRUE(json["errors"].empty());
}

}  // namespace
}  // namespace icache
