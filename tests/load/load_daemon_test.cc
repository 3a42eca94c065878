// The commands against a real daemon, started as a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "load/bench.h"
#include "load/demo.h"
#include "load/replay_command.h"
#include "tests/integration/icached_process.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::CertificateFolder;
using ::icache::testing::IcachedProcess;
using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::HasSubstr;

constexpr char kTrace[] = ICACHE_TEST_DATA_DIR "/trace-slice.jsonl";

nlohmann::json ReadJson(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(LoadDaemonTest, TheDemoFindsPrefixesAndShowsEveryKindOfAnswer) {
  IcachedProcess daemon({});
  ASSERT_TRUE(daemon.ready()) << daemon.output();
  DemoOptions options;
  options.trace_path = kTrace;
  options.target.address = daemon.grpc_address();
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunDemo(options);
  const std::string text = ::testing::internal::GetCapturedStdout();
  ASSERT_THAT(status, IsOk()) << text;
  for (const char* reason :
       {"PREFIX_MATCH", "AFFINITY_HINT", "UNKNOWN_TENANT", "UNKNOWN_MODEL", "UNKNOWN_HASH_SCHEME"}) {
    EXPECT_THAT(text, HasSubstr(reason));
  }
}

TEST(LoadDaemonTest, TheBenchRunsOverMutualTlsWithAToken) {
  const CertificateFolder certificates;
  certificates.Sign("daemon", "daemon.example");
  certificates.Sign("client");
  const std::string grants = certificates.folder().Write(
      "grants.yaml", "name: load\nroles: [lookup, observe]\ntokens: [0123456789abcdef0123456789abcdef]\n");
  IcachedProcess daemon({"--grpc-tls-cert-file", certificates.Certificate("daemon"), "--grpc-tls-key-file",
                         certificates.Key("daemon"), "--grpc-tls-client-ca-file", certificates.ca(), "--access-path",
                         grants});
  ASSERT_TRUE(daemon.ready()) << daemon.output();
  BenchOptions options;
  options.workload.chains = 10;
  options.requests = 100;
  options.warm_up = absl::ZeroDuration();
  options.ingest_blocks_per_s = 1000;
  options.target.address = daemon.grpc_address();
  options.target.security = {
      .tls = true,
      .tls_ca_file = certificates.ca(),
      .tls_cert_file = certificates.Certificate("client"),
      .tls_key_file = certificates.Key("client"),
      .tls_server_name = "daemon.example",
      .token_file = certificates.folder().Write("token", "0123456789abcdef0123456789abcdef\n"),
  };
  for (const LookupMode mode : {LookupMode::kUnary, LookupMode::kStream}) {
    options.mode = mode;
    const absl::StatusOr<BenchResult> result = Bench(options);
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(result->lookups.Answered(), 100);
  }

  options.target.security.token_file = certificates.folder().Write("wrong", "wrong-wrong-wrong-wrong\n");
  EXPECT_THAT(Bench(options), StatusIs(absl::StatusCode::kUnauthenticated));
  options.target.security.token_file = certificates.folder() / "missing";
  EXPECT_THAT(Bench(options), StatusIs(absl::StatusCode::kNotFound));
}

nlohmann::json ReplayOf(const IcachedProcess& daemon, size_t requests) {
  ReplayCommand command;
  command.trace_path = kTrace;
  command.max_requests = requests;
  command.target.address = daemon.grpc_address();
  command.json_path = ::testing::TempDir() + "/daemon-replay.json";
  ::testing::internal::CaptureStdout();
  const absl::Status status = RunReplay(command);
  ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(status, IsOk());
  return ReadJson(command.json_path);
}

TEST(LoadDaemonTest, AReplayIsAnsweredTruthfullyAndReusesMoreThanRoundRobin) {
  IcachedProcess daemon({});
  ASSERT_TRUE(daemon.ready()) << daemon.output();
  const nlohmann::json json = ReplayOf(daemon, 1000);
  EXPECT_EQ(json["rows"]["wrong"], 0);
  EXPECT_GT(json["rows"]["checked"], 0);
  EXPECT_EQ(json["prefixes"]["in_index"], json["prefixes"]["held_by_engines"]);
  EXPECT_GT(json["policies"][0]["hit_rate"], json["policies"][1]["hit_rate"]);
}

TEST(LoadDaemonTest, AReplayGivesTheSameNumbersEachTime) {
  IcachedProcess daemon({});
  ASSERT_TRUE(daemon.ready()) << daemon.output();
  const nlohmann::json first = ReplayOf(daemon, 200);
  const nlohmann::json second = ReplayOf(daemon, 200);
  EXPECT_EQ(first["policies"], second["policies"]);
  EXPECT_EQ(first["reason_codes"], second["reason_codes"]);
}

TEST(LoadDaemonTest, ABenchHitsWhatItPutIn) {
  IcachedProcess daemon({});
  ASSERT_TRUE(daemon.ready()) << daemon.output();
  BenchOptions options;
  options.target.address = daemon.grpc_address();
  options.workload = {.blocks = 32, .chains = 64, .replicas = 8, .holders = 3, .hit_ratio = 1};
  options.warm_up = absl::ZeroDuration();
  options.requests = 2000;
  options.ingest_blocks_per_s = 10'000;
  for (const ChainEncoding encoding : {ChainEncoding::kPacked, ChainEncoding::kBytes}) {
    options.workload.encoding = encoding;
    const auto result = Bench(options);
    ASSERT_THAT(result, IsOk());
    EXPECT_EQ(result->lookups.reason_codes.at("PREFIX_MATCH"), 2000);
  }
}

}  // namespace
}  // namespace icache
