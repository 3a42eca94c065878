#include "load/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;

constexpr char kFirst[] = R"({"timestamp": 5, "input_length": 1, "output_length": 0, "hash_ids": [1]})";
constexpr char kLater[] = R"({"timestamp": 6, "input_length": 1, "output_length": 0, "hash_ids": [2]})";

std::string Write(const std::string& content) {
  const std::string path =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".jsonl";
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

TEST(TraceFileTest, ReadsTheTraceSlice) {
  const auto trace = ReadTrace(ICACHE_TEST_DATA_DIR "/trace-slice.jsonl", 0);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->size(), 1000u);
  EXPECT_EQ(trace->front().input_tokens, 6758);
  EXPECT_EQ(trace->front().hash_ids.size(), 14u);
}

TEST(TraceFileTest, StopsAtTheNumberOfRequestsAskedFor) {
  const auto trace = ReadTrace(Write(std::string(kFirst) + "\n" + kLater + "\nnot a line of the format\n"), 2);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->size(), 2u);
}

TEST(TraceFileTest, TheLastLineNeedsNoLineFeed) {
  const auto trace = ReadTrace(Write(std::string(kFirst) + "\n" + kLater), 0);
  ASSERT_THAT(trace, IsOk());
  EXPECT_EQ(trace->size(), 2u);
}

TEST(TraceFileTest, NamesFileLineAndColumnOfABadLine) {
  const std::string path = Write(std::string(kFirst) + "\n{\"timestamp\": x}\n");
  EXPECT_THAT(ReadTrace(path, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, path + ":2:15: expected a whole number, 0 or more"));
}

TEST(TraceFileTest, RefusesAnEmptyLineAndAnEmptyFile) {
  const std::string path = Write(std::string(kFirst) + "\n\n" + kLater + "\n");
  EXPECT_THAT(ReadTrace(path, 0), StatusIs(absl::StatusCode::kInvalidArgument, path + ":2:1: expected '{'"));
  EXPECT_THAT(ReadTrace(Write(""), 0), StatusIs(absl::StatusCode::kInvalidArgument, path + ":1:1: no request"));
}

TEST(TraceFileTest, RefusesTimeThatGoesBack) {
  const std::string path = Write(std::string(kLater) + "\n" + kFirst + "\n");
  EXPECT_THAT(ReadTrace(path, 0), StatusIs(absl::StatusCode::kInvalidArgument, path + ":2:1: timestamp 5 after 6"));
}

TEST(TraceFileTest, RefusesALineThatIsTooLongWithoutReadingItWhole) {
  const std::string path = Write(std::string(kFirst) + "\n" + std::string(200'000, ' ') + "\n");
  EXPECT_THAT(ReadTrace(path, 0),
              StatusIs(absl::StatusCode::kInvalidArgument, path + ":2:65536: a line above 65536 bytes"));
}

TEST(TraceFileTest, AMissingFileIsNotFound) {
  EXPECT_THAT(ReadTrace("no/such/file.jsonl", 0), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace icache
