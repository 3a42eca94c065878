#include "bridge/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/config/temp_folder.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::icache::testing::TempFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

absl::StatusOr<BridgeCommandLine> Parse(std::vector<const char*> flags, std::string pod_namespace = "ns") {
  flags.insert(flags.begin(), "icache-bridge");
  return ParseBridgeCommandLine(static_cast<int>(flags.size()), flags.data(), {"host-1", std::move(pod_namespace)});
}

TEST(BridgeOptionsTest, DefaultsComeFromTheEngineAndTheEnvironment) {
  const auto parsed = Parse({"--model", "m", "--events", "tcp://127.0.0.1:5557", "--daemon=a:1", "--kind", "sglang"});
  ASSERT_THAT(parsed, IsOk());
  const EngineOptions& engine = parsed->options.engines.at(0);
  EXPECT_EQ(engine.tenant, "ns");
  EXPECT_EQ(engine.replica, "host-1");
  EXPECT_EQ(engine.hash_scheme, "sglang");
  EXPECT_EQ(engine.metrics_model, "m");
}

TEST(BridgeOptionsTest, WithoutAModelItRefuses) {
  EXPECT_THAT(Parse({"--events", "tcp://127.0.0.1:5557", "--daemon", "a:1"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--model: is required"));
}

TEST(BridgeOptionsTest, AllProblemsAreToldAtOnce) {
  const auto parsed = Parse({"--ranks", "0", "--events", "udp://x", "--daemon", "x", "--nonsense"}, "");
  EXPECT_THAT(parsed, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("--ranks: must be 1 to 256, got 0"),
                                     HasSubstr("--events: must be tcp://"), HasSubstr("--daemon: is no address"),
                                     HasSubstr("--nonsense: unknown flag"), HasSubstr("--tenant: is required"))));
}

TEST(BridgeOptionsTest, WhatIsBadIsNotMissingToo) {
  EXPECT_THAT(Parse({"--model=", "--events", "udp://x", "--daemon", "x"}),
              StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("required"))));
  EXPECT_THAT(Parse({"--events", "tcp://a:1", "--daemon", "a:1", "--model"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--model: needs a value: NAME"));
  TempFolder folder;
  const std::string path = folder.Write(
      "b.yaml", "engine: {events: \"udp://x\"}\nengines: [{model: \"\"}, {replica: r}]\nreport: {daemons: [x]}\n");
  EXPECT_THAT(
      Parse({"--config", path.c_str()}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("engines[1].model: is required"), Not(HasSubstr("engines[0].model: is required")),
                     Not(HasSubstr("events: is required")), Not(HasSubstr("--daemon")))));
}

TEST(BridgeOptionsTest, AListWithoutDaemonsIsOneThatMisses) {
  TempFolder folder;
  const std::string path = folder.Write("b.yaml", "engine: {model: m, events: \"tcp://a:1\"}\nreport: {daemons: []}\n");
  EXPECT_THAT(Parse({"--config", path.c_str()}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--daemon: at least one is required"));
}

TEST(BridgeOptionsTest, TheSampleIsValid) {
  const auto parsed = Parse({"--config", ICACHE_SOURCE_DIR "/config/bridge.yaml", "--validate-only"});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_TRUE(parsed->validate_only);
  const BridgeOptions& options = parsed->options;
  ASSERT_EQ(options.engines.size(), 2);
  EXPECT_EQ(options.engines[1].replica, "qwen3-1");
  EXPECT_EQ(options.engines[1].events, "tcp://127.0.0.1:5657");
  EXPECT_EQ(options.engines[1].model, "Qwen/Qwen3-8B");
  EXPECT_EQ(options.engines[1].adapters.at(1), "sql-lora");
}

TEST(BridgeOptionsTest, TheSampleShowsTheDefaults) {
  const auto sample = Parse({"--config", ICACHE_SOURCE_DIR "/config/bridge.yaml"});
  ASSERT_THAT(sample, IsOk());
  const ReportOptions& report = sample->options.report;
  const ReportOptions defaults;
  EXPECT_EQ(report.batch_interval, defaults.batch_interval);
  EXPECT_EQ(report.batch_blocks, defaults.batch_blocks);
  EXPECT_EQ(report.max_queued_blocks, defaults.max_queued_blocks);
  EXPECT_EQ(report.lease_interval, defaults.lease_interval);
  EXPECT_EQ(report.stats_interval, defaults.stats_interval);
  EXPECT_EQ(report.ttl, defaults.ttl);
  EXPECT_EQ(report.resolve_interval, defaults.resolve_interval);
  EXPECT_EQ(report.write_timeout, defaults.write_timeout);
  EXPECT_EQ(sample->options.http_address, BridgeOptions().http_address);
  EXPECT_EQ(sample->options.engines[0].max_blocks, EngineOptions().max_blocks);
  EXPECT_EQ(sample->options.engines[0].gone_after, EngineOptions().gone_after);
}

TEST(BridgeOptionsTest, AFileNamesThePlaceOfAProblem) {
  TempFolder folder;
  const std::string path = folder.Write("b.yaml", "engine:\n  model: m\n  ranks: many\n  nonsense: 1\n");
  EXPECT_THAT(
      Parse({"--config", path.c_str()}),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("b.yaml:3:10: engine.ranks: "), HasSubstr("b.yaml:4:3: engine.nonsense: unknown key"))));
}

TEST(BridgeOptionsTest, AFlagWinsOverTheFile) {
  TempFolder folder;
  const std::string path = folder.Write(
      "b.yaml", "engine: {model: m, events: \"tcp://a:1\"}\nreport: {daemons: [\"a:1\", \"b:2\"], ttl: 1h}\n");
  const auto parsed = Parse({"--config", path.c_str(), "--model", "n", "--daemon", "c:3", "--daemon", "d:4"});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->options.engines[0].model, "n");
  EXPECT_THAT(parsed->options.report.daemons, ElementsAre("c:3", "d:4"));
  EXPECT_EQ(parsed->options.report.ttl, absl::Hours(1));
}

TEST(BridgeOptionsTest, AnAdapterIsNamedOnceInOnePlaceAndALaterPlaceWins) {
  const std::vector<const char*> flags = {"--model", "m",         "--events", "tcp://a:1", "--daemon",
                                          "a:1",     "--adapter", "1=a",      "--adapter", "01=b"};
  EXPECT_THAT(Parse(flags), StatusIs(absl::StatusCode::kInvalidArgument, "--adapter: names 1 twice"));
  TempFolder folder;
  const std::string path = folder.Write("b.yaml",
                                        "engine: {model: m, adapters: [1=a, 2=b]}\nreport: {daemons: [\"a:1\"]}\n"
                                        "engines: [{replica: r, events: \"tcp://a:1\"}, "
                                        "{replica: s, events: \"tcp://a:2\", adapters: [1=c]}]\n");
  const auto parsed = Parse({"--config", path.c_str()});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->options.engines[0].adapters, UnorderedElementsAre(Pair(1, "a"), Pair(2, "b")));
  EXPECT_THAT(parsed->options.engines[1].adapters, UnorderedElementsAre(Pair(1, "c")));
  const std::string twice = folder.Write(
      "c.yaml", "engine: {model: m, events: \"tcp://a:1\", adapters: [1=a, 1=a]}\nreport: {daemons: [\"a:1\"]}\n");
  EXPECT_THAT(Parse({"--config", twice.c_str()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("engine.adapters[1]: names 1 twice")));
}

TEST(BridgeOptionsTest, TwoEnginesNeedTwoNames) {
  TempFolder folder;
  const std::string path = folder.Write("b.yaml",
                                        "engine: {model: m, events: \"tcp://a:1\"}\nengines: [{}, {}]\n"
                                        "report: {daemons: [\"a:1\"]}\n");
  EXPECT_THAT(Parse({"--config", path.c_str()}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("engines[1].replica: \"host-1\" is taken")));
}

TEST(BridgeOptionsTest, NoEngineHasTheNameOfAnothersRank) {
  TempFolder folder;
  const auto parse = [&](const std::string& engines) {
    const std::string path =
        folder.Write("b.yaml", "engine: {model: m}\nengines: " + engines + "\nreport: {daemons: [\"a:1\"]}\n");
    return Parse({"--config", path.c_str()});
  };
  EXPECT_THAT(parse("[{replica: r, events: \"tcp://a:1\", ranks: 2}, {replica: \"r@0\", events: \"tcp://b:1\"}]"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("engines[1].replica: \"r@0\" is the name of a rank of \"r\"")));
  EXPECT_THAT(
      parse("[{replica: \"r@10\", events: \"tcp://a:1\", ranks: 2}, {replica: r, events: \"tcp://b:1\", ranks: 2}]"),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("engines[0].replica: \"r@10\"")));
  EXPECT_THAT(parse("[{replica: r, events: \"tcp://a:1\"}, {replica: \"r@0\", events: \"tcp://b:1\"}]"), IsOk());
  EXPECT_THAT(parse("[{replica: r, events: \"tcp://a:1\", ranks: 2}, {replica: \"r@a\", events: \"tcp://b:1\"}]"),
              IsOk());
  EXPECT_THAT(
      parse("[{replica: r, events: \"tcp://a:1\", ranks: 2}, {replica: \"r@0\", events: \"tcp://b:1\", model: n}]"),
      IsOk());
}

TEST(BridgeOptionsTest, EndpointsThatCannotWorkAreRefused) {
  const std::string long_path = "ipc://" + std::string(108, 'p');
  const auto with = [](std::vector<const char*> flags) {
    flags.insert(flags.end(), {"--model", "m", "--daemon", "a:1"});
    return Parse(flags);
  };
  const auto refuses = [](const char* what) { return StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)); };
  EXPECT_THAT(with({"--events", "tcp://a:0"}), refuses("--events: must have a port to connect to"));
  EXPECT_THAT(with({"--events", "tcp://*:0"}), IsOk());  // any that is free
  EXPECT_THAT(with({"--events", long_path.c_str()}), refuses("--events: must have a path of at most 107 bytes"));
  EXPECT_THAT(with({"--events", long_path.substr(0, long_path.size() - 1).c_str()}), IsOk());
  EXPECT_THAT(with({"--events", "ipc://e", "--replay", "ipc://e"}), refuses("--replay: must not be the endpoint"));
  EXPECT_THAT(with({"--events", "tcp://a:1", "--replay", "tcp://a:1"}), refuses("--replay: must not be the endpoint"));
  EXPECT_THAT(with({"--events", "tcp://a:1", "--replay", "tcp://a:2"}), IsOk());
  EXPECT_THAT(with({"--events", "tcp://a:1", "--replay", "tcp://a:2", "--ranks", "2"}),
              refuses("must not share ports"));
  EXPECT_THAT(with({"--events", "tcp://a:3", "--replay", "tcp://a:2", "--ranks", "2"}),
              refuses("must not share ports"));
  EXPECT_THAT(with({"--events", "tcp://a:1", "--replay", "tcp://a:3", "--ranks", "2"}), IsOk());
  EXPECT_THAT(with({"--events", "tcp://a:1", "--replay", "tcp://b:1", "--ranks", "2"}), IsOk());
  for (const char* url : {"http://", "http://:8000/metrics", "http:///metrics", "http://user@/metrics", "metrics"}) {
    EXPECT_THAT(with({"--events", "tcp://a:1", "--metrics-url", url}),
                refuses("--metrics-url: must be an http:// URL"));
  }
  EXPECT_THAT(with({"--events", "tcp://a:1", "--metrics-url", "https://[::1]:8000/metrics"}), IsOk());
}

TEST(BridgeOptionsTest, ADaemonIsAnAddressToConnectTo) {
  for (const char* daemon : {"127.0.0.1:0", "dns:icached:0", "0.0.0.0:9090", "[::]:9090"}) {
    EXPECT_THAT(Parse({"--model", "m", "--events", "tcp://a:1", "--daemon", daemon}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("--daemon: must be an address to connect to")))
        << daemon;
  }
  EXPECT_THAT(Parse({"--model", "m", "--events", "tcp://a:1", "--daemon", "[::1]:9090", "--daemon", "unix:/run/s"}),
              IsOk());
}

TEST(BridgeOptionsTest, TwoEnginesNeedTwoEventStreams) {
  TempFolder folder;
  const auto parse = [&](const std::string& engines) {
    const std::string path =
        folder.Write("b.yaml", "engine: {model: m}\nengines: " + engines + "\nreport: {daemons: [\"a:1\"]}\n");
    return Parse({"--config", path.c_str()});
  };
  const auto refuses =
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("engines[1].events: is another engine's"));
  EXPECT_THAT(parse("[{replica: r, events: \"tcp://a:1\"}, {replica: s, events: \"tcp://a:1\"}]"), refuses);
  EXPECT_THAT(parse("[{replica: r, ranks: 3, events: \"tcp://a:1\"}, {replica: s, events: \"tcp://a:3\"}]"), refuses);
  EXPECT_THAT(parse("[{replica: r, ranks: 2, events: \"tcp://a:1\"}, {replica: s, events: \"tcp://a:3\"}]"), IsOk());
  EXPECT_THAT(parse("[{replica: r, events: \"tcp://*:0\"}, {replica: s, events: \"tcp://*:0\"}]"), IsOk());
  // Behind one proxy.
  EXPECT_THAT(parse("[{replica: r, topic: a, events: \"tcp://a:1\"}, {replica: s, topic: b, events: \"tcp://a:1\"}]"),
              IsOk());
  EXPECT_THAT(parse("[{replica: r, topic: a, events: \"tcp://a:1\"}, {replica: s, topic: ab, events: \"tcp://a:1\"}]"),
              refuses);
}

TEST(BridgeOptionsTest, WhatIsOfTlsNeedsTls) {
  const auto with = [](std::vector<const char*> flags) {
    flags.insert(flags.end(), {"--model", "m", "--events", "tcp://a:1", "--daemon", "a:1"});
    return Parse(flags);
  };
  EXPECT_THAT(with({"--tls-ca-file", "ca", "--tls-server-name", "n"}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("--tls-ca-file: needs --tls"), HasSubstr("--tls-server-name: needs --tls"))));
  EXPECT_THAT(with({"--tls", "--tls-ca-file", "ca", "--tls-server-name", "n"}), IsOk());
}

TEST(BridgeOptionsTest, RanksArePortsFurtherOn) {
  EXPECT_EQ(EndpointOfRank("tcp://h:5557", 0), "tcp://h:5557");
  EXPECT_EQ(EndpointOfRank("tcp://h:5557", 3), "tcp://h:5560");
  EXPECT_THAT(Parse({"--model", "m", "--events", "ipc://x", "--daemon", "a:1", "--ranks", "2"}),
              StatusIs(absl::StatusCode::kInvalidArgument, "--events: must have a TCP port for each of 2 ranks"));
}

TEST(BridgeOptionsTest, HelpNamesEveryFlag) {
  const auto parsed = Parse({"--help"});
  ASSERT_THAT(parsed, IsOk());
  for (const char* flag : {"--model", "--daemon", "--clear-on-exit", "--http-address", "--validate-only"}) {
    EXPECT_THAT(*parsed->text, HasSubstr(flag));
  }
}

}  // namespace
}  // namespace icache
