#include "icache/config/command_line.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "config/settings.h"
#include "tests/config/temp_folder.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempFolder;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

absl::StatusOr<CommandLine> Parse(std::vector<std::string> arguments) {
  std::vector<const char*> argv = {"icached"};
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  return ParseCommandLine(static_cast<int>(argv.size()), argv.data());
}

TEST(CommandLineTest, WithoutFlagsEverythingIsDefault) {
  const auto parsed = Parse({});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_FALSE(parsed->text.has_value());
  EXPECT_FALSE(parsed->validate_only);
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    EXPECT_EQ(ValueText(setting, parsed->options), ValueText(setting, defaults)) << setting.key;
  }
}

TEST(CommandLineTest, NoArgumentsAtAllAreNoFlags) {
  const char* const argv[] = {nullptr};
  EXPECT_THAT(ParseCommandLine(0, argv), IsOk());
}

TEST(CommandLineTest, ReadsTheFlagsThatOthersRelyOn) {
  const auto parsed = Parse({"--grpc-address", "127.0.0.1:1", "--grpc-address=unix:/run/x", "--http-address",
                             "127.0.0.1:2", "--policy-path", "p.yaml", "--engine-block-size", "32", "--max-entries=7",
                             "--model-block-size", "org/m=a=64", "--model-block-size", "b=8", "--validate-only"});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_TRUE(parsed->validate_only);
  const DaemonOptions& options = parsed->options;
  EXPECT_THAT(options.grpc_addresses, ElementsAre("127.0.0.1:1", "unix:/run/x"));
  EXPECT_EQ(options.http_address, "127.0.0.1:2");
  EXPECT_EQ(options.policy_path, "p.yaml");
  EXPECT_EQ(options.router.block_size, 32);
  EXPECT_EQ(options.index.max_entries, 7);
  EXPECT_EQ(options.router.block_size_by_model.at("org/m=a"), 64);
  EXPECT_EQ(options.router.block_size_by_model.at("b"), 8);
}

TEST(CommandLineTest, EverySettingHasAWorkingFlag) {
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    std::string value = ValueText(setting, defaults);
    if (IsNamed(setting)) value = "m=1";
    EXPECT_THAT(Parse({std::string(setting.flag), value}), IsOk()) << setting.flag;
    EXPECT_THAT(Parse({std::string(setting.flag) + "=" + value}), IsOk()) << setting.flag;
  }
}

TEST(CommandLineTest, FlagsWinOverTheFile) {
  const TempFolder folder;
  const std::string config = folder.Write("icached.yaml", R"(
grpc: {address: ["127.0.0.1:1", "127.0.0.1:2"]}
index: {max_entries: 1, hot_threshold: 2}
models: {a: {block_size: 8}, b: {block_size: 8}}
)");
  const auto parsed =
      Parse({"--max-entries", "9", "--config", config, "--grpc-address", "127.0.0.1:3", "--model-block-size", "b=32"});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_EQ(parsed->options.index.max_entries, 9);
  EXPECT_EQ(parsed->options.index.hot_threshold, 2);
  EXPECT_THAT(parsed->options.grpc_addresses, ElementsAre("127.0.0.1:3"));
  EXPECT_EQ(parsed->options.router.block_size_by_model.at("a"), 8);
  EXPECT_EQ(parsed->options.router.block_size_by_model.at("b"), 32);
}

TEST(CommandLineTest, AFileIsCheckedEvenWhereFlagsWin) {
  const TempFolder folder;
  const std::string config = folder.Write("icached.yaml", "index: {max_entries: -5}\n");
  EXPECT_THAT(Parse({"--config", config, "--max-entries", "9"}),
              StatusIs(kBad, config + ":1:22: index.max_entries: must be >= 0, got -5"));
}

TEST(CommandLineTest, NamesTheFlagThatIsWrong) {
  struct Row {
    std::vector<std::string> arguments;
    const char* message;
  };
  for (const auto& [arguments, message] : {
           Row{{"--max-entrys", "5"}, "--max-entrys: unknown flag\n5: only flags are expected"},
           Row{{"--max-entrys=5"}, "--max-entrys: unknown flag"},
           Row{{"-v"}, "-v: unknown flag"},
           Row{{"serve"}, "serve: only flags are expected"},
           Row{{""}, ": only flags are expected"},
           Row{{"--"}, "--: unknown flag"},
           Row{{"--max-entries"}, "--max-entries: needs a value: N"},
           Row{{"--policy-path", "--validate-only"}, "--policy-path: needs a value: PATH"},
           Row{{"--config"}, "--config: needs a value: FILE"},
           Row{{"--max-entries", "-5"}, "--max-entries: must be >= 0, got -5"},
           Row{{"--max-entries", ""}, "--max-entries: must be an integer, got \"\""},
           Row{{"--max-entries=1", "--max-entries=1"}, "--max-entries: given more than once"},
           Row{{"--validate-only=yes"}, "--validate-only: takes no value"},
           Row{{"--model-block-size", "m"}, "--model-block-size: must be NAME=VALUE, got \"m\""},
           Row{{"--model-block-size", "=16"}, "--model-block-size: needs a name of 1 to 512 bytes"},
           Row{{"--model-block-size=m=0"}, "--model-block-size: must be 1 to 2147483647, got 0"},
           Row{{"--model-block-size=m=1", "--model-block-size=m=2"},
               "--model-block-size: \"m\" is given more than once"},
           Row{{"--grpc-address", "localhost"}, "--grpc-address: is no address: \"localhost\" has no port"},
           Row{{"--config", "/nonexistent/icached.yaml"},
               "/nonexistent/icached.yaml: cannot be read: No such file or directory"},
       }) {
    EXPECT_THAT(Parse(arguments), StatusIs(kBad, message)) << arguments.front();
  }
}

TEST(CommandLineTest, GathersTheProblemsOfFlagsAndFile) {
  const TempFolder folder;
  const std::string config = folder.Write("icached.yaml", "log: {level: loud}\nx: 1\n");
  EXPECT_THAT(Parse({"--nope", "--max-entries=x", "--config=" + config, "--drain-delay=2h"}),
              StatusIs(kBad, "--nope: unknown flag\n" + config +
                                 ":1:14: log.level: must be one of debug, info, warn, error, got \"loud\"\n" + config +
                                 ":2:1: x: unknown key\n"
                                 "--max-entries: must be an integer, got \"x\"\n"
                                 "--drain-delay: must be 0 to 1h, got 2h"));
}

TEST(CommandLineTest, OneAddressCannotServeTwice) {
  EXPECT_THAT(Parse({"--grpc-address=localhost:1", "--http-address=localhost:1"}),
              StatusIs(kBad, "--http-address: \"localhost:1\" is taken by grpc.address"));
  EXPECT_THAT(Parse({"--grpc-address=unix:/a", "--grpc-address=unix:/a"}),
              StatusIs(kBad, "--grpc-address: \"unix:/a\" is taken by grpc.address"));
  EXPECT_THAT(Parse({"--grpc-address=localhost:0", "--http-address=localhost:0"}), IsOk());
  EXPECT_THAT(Parse({"--grpc-address=0.0.0.0:8080"}),
              StatusIs(kBad, "http.address: \"0.0.0.0:8080\" is taken by grpc.address"));

  const TempFolder folder;
  const std::string config = folder.Write("icached.yaml", "http: {address: \"0.0.0.0:9090\"}\n");
  EXPECT_THAT(Parse({"--config", config}),
              StatusIs(kBad, config + ":1:17: http.address: \"0.0.0.0:9090\" is taken by grpc.address"));
}

TEST(CommandLineTest, HelpNamesEveryFlagAndKey) {
  for (const char* flag : {"--help", "-h"}) {
    const auto parsed = Parse({"--nope", flag});
    ASSERT_THAT(parsed, IsOk());
    for (const Setting& setting : Settings()) {
      EXPECT_THAT(parsed->text.value(), HasSubstr(std::string(setting.flag) + " " + std::string(setting.value_name)));
      EXPECT_THAT(parsed->text.value(), HasSubstr("[" + std::string(setting.key) + "; "));
    }
  }
}

TEST(CommandLineTest, VersionIsOneLine) {
  const auto parsed = Parse({"--version"});
  ASSERT_THAT(parsed, IsOk());
  EXPECT_THAT(parsed->text.value(), ::testing::MatchesRegex("icached [0-9.]+\n"));
}

}  // namespace
}  // namespace icache
