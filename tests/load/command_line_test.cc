#include "load/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace icache {
namespace {

int RunWith(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "icache-load");
  return RunCommandLine(static_cast<int>(arguments.size()), arguments.data());
}

TEST(CommandLineTest, HelpIsNoError) {
  EXPECT_EQ(RunWith({"--help"}), 0);
  EXPECT_EQ(RunWith({"bench", "--help"}), 0);
}

TEST(CommandLineTest, HelpShowsTypesAndHowToWriteADuration) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunWith({"bench", "--help"}), 0);
  const std::string help = ::testing::internal::GetCapturedStdout();
  for (const char* text : {"--duration DURATION", "--address ADDRESS", "--tls-ca-file FILE", "--tls-server-name NAME",
                           "--token-file FILE", "as 30s, 2m or 500ms"}) {
    EXPECT_THAT(help, ::testing::HasSubstr(text));
  }
}

TEST(CommandLineTest, VersionIsThePrograms) {
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(RunWith({"--version"}), 0);
  EXPECT_THAT(::testing::internal::GetCapturedStdout(), ::testing::StartsWith("icache-load 0."));
}

TEST(CommandLineTest, AWrongCommandLineExitsWithTwo) {
  const std::vector<std::vector<const char*>> rows = {
      {},
      {"play"},
      {"replay"},
      {"replay", "--trace", "no/such/file"},
      {"replay", "--trace", __FILE__, "--load-cap", "0.9"},
      {"replay", "--trace", __FILE__, "--engines", "0"},
      {"replay", "--trace", __FILE__, "--load-window", "0s"},
      {"replay", "--trace", __FILE__, "--load-window", "soon"},
      {"bench", "--tls-ca-file", __FILE__},
      {"bench", "--tls-server-name", "name"},
      {"bench", "--tls", "--tls-cert-file", __FILE__},
      {"bench", "--tls", "--tls-key-file", __FILE__},
      {"bench", "--token-file", "no/such/file"},
      {"bench", "--packed", "--bytes"},
      {"bench", "--mode", "batch"},
      {"bench", "--hit-ratio", "1.5"},
      {"bench", "--duration", "1s", "--requests", "10"},
      {"bench", "--holders", "9", "--replicas", "8"},
      {"bench", "--connections", "8", "--concurrency", "4"},
      {"bench", "--connections", "1", "--threads", "2"},
  };
  for (const auto& row : rows) EXPECT_EQ(RunWith(row), 2) << ::testing::PrintToString(row);
}

TEST(CommandLineTest, ATraceThatIsNoTraceExitsWithOne) { EXPECT_EQ(RunWith({"replay", "--trace", __FILE__}), 1); }

}  // namespace
}  // namespace icache
