#include "load/trace_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "load/random.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kLine[] =
    R"({"timestamp": 27, "input_length": 1025, "output_length": 3, "hash_ids": [0, 46, 9007199254740992]})";

TEST(TraceLineTest, ReadsEveryField) {
  const auto request = ParseTraceLine(kLine);
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->timestamp_ms, 27);
  EXPECT_EQ(request->input_tokens, 1025);
  EXPECT_EQ(request->output_tokens, 3);
  EXPECT_THAT(request->hash_ids, ElementsAre(0, 46, kMaxTraceNumber));
}

TEST(TraceLineTest, KeysComeInAnyOrderAndSpaceIsFree) {
  const auto request =
      ParseTraceLine("\t{ \"hash_ids\":[7] ,\"output_length\":0,\"input_length\":512,\"timestamp\":0 }\r");
  ASSERT_THAT(request, IsOk());
  EXPECT_EQ(request->input_tokens, 512);
  EXPECT_THAT(request->hash_ids, ElementsAre(7));
}

struct BadLine {
  std::string line;
  std::string message;  // the beginning of it
};

TEST(TraceLineTest, RefusesWhatIsNotOfTheFormatAndSaysWhere) {
  const std::vector<BadLine> rows = {
      {"", "1: expected '{'"},
      {"[]", "1: expected '{'"},
      {"{}", "2: expected '\"'"},
      {R"({"timestamp")", "13: expected ':'"},
      {R"({"timestamp: 0)", "15: expected '\"' to end the key"},
      {R"({"time\u0073tamp": 0})", "7: no key of the format has an escape in it"},
      {R"({"time": 0})", "9: a key other than"},
      {R"({"timestamp": -1})", "15: expected a whole number, 0 or more"},
      {R"({"timestamp": 01})", "17: a number with a leading zero"},
      {R"({"timestamp": 1.5})", "16: expected a whole number"},
      {R"({"timestamp": 1e3})", "16: expected a whole number"},
      {R"({"timestamp": "1"})", "15: expected a whole number, 0 or more"},
      {R"({"timestamp": null})", "15: expected a whole number, 0 or more"},
      {R"({"timestamp": 9007199254740993})", "30: a number above 9007199254740992"},
      {R"({"timestamp": 99999999999999999999})", "30: a number above 9007199254740992"},
      {R"({"input_length": 2147483648})", "27: a number above 2147483647"},
      {R"({"timestamp": 0, "timestamp": 0})", "30: a key that was there before"},
      {R"({"hash_ids": [1], "hash_ids": [1]})", "30: a key that was there before"},
      {R"({"hash_ids": []})", "15: expected a whole number, 0 or more"},
      {R"({"hash_ids": [1,]})", "17: expected a whole number, 0 or more"},
      {R"({"hash_ids": [1 2]})", "17: expected ']'"},
      {R"({"hash_ids": [[1]]})", "15: expected a whole number, 0 or more"},
      {R"({"hash_ids": 1})", "14: expected '['"},
      {R"({"timestamp": 0, "input_length": 1, "output_length": 0})", "56: one of timestamp"},
      {R"({"timestamp": 0, "input_length": 1, "hash_ids": [1]})", "53: one of timestamp"},
      {R"({"timestamp": 0, "input_length": 0, "output_length": 0, "hash_ids": [1]})",
       "73: input_length 0 needs 0 hash_ids"},
      {R"({"timestamp": 0, "input_length": 513, "output_length": 0, "hash_ids": [1]})", "75: input_length 513 needs 2"},
      {R"({"timestamp": 0, "input_length": 512, "output_length": 0, "hash_ids": [1, 2]})",
       "78: input_length 512 needs 1"},
      {std::string(kLine) + "x", "99: something after the object"},
      {std::string(kLine) + std::string(1, '\0'), "99: something after the object"},
      {std::string(kLine) + "\n" + kLine, "99: something after the object"},
      {std::string(kMaxTraceLineBytes + 1, ' '), "65536: a line above 65536 bytes"},
  };
  for (const BadLine& row : rows) {
    EXPECT_THAT(ParseTraceLine(row.line),
                StatusIs(absl::StatusCode::kInvalidArgument, ::testing::StartsWith(row.message)))
        << row.line.substr(0, 100);
  }
}

TEST(TraceLineTest, BoundsTheNumberOfIds) {
  std::string ids = "0";
  for (size_t i = 1; i < kMaxTraceHashIds; ++i) ids += ",0";
  const std::string begin = R"({"timestamp":0,"input_length":1048576,"output_length":0,"hash_ids":[)";
  EXPECT_THAT(ParseTraceLine(begin + ids + "]}"), IsOk());
  EXPECT_THAT(ParseTraceLine(begin + ids + ",0]}"),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("more than 2048 hash_ids")));
}

TEST(TraceLineTest, RefusesEveryTruncation) {
  const std::string line = kLine;
  for (size_t length = 0; length < line.size(); ++length) {
    EXPECT_THAT(ParseTraceLine(line.substr(0, length)), StatusIs(absl::StatusCode::kInvalidArgument)) << length;
  }
}

TEST(TraceLineTest, WhatCorruptLinesGiveIsWithinBounds) {
  SplitMix64 random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string line = kLine;
    for (uint64_t edits = 1 + random.Next() % 3; edits > 0; --edits) {
      line[random.Next() % line.size()] = "{}[]\",:0123456789-.e \0\xff"[random.Next() % 24];
    }
    const auto request = ParseTraceLine(line);
    if (!request.ok()) continue;
    const auto ids = static_cast<int64_t>(request->hash_ids.size());
    EXPECT_GT(request->input_tokens, kTraceIdTokens * (ids - 1)) << line;
    EXPECT_LE(request->input_tokens, kTraceIdTokens * ids) << line;
  }
}

}  // namespace
}  // namespace icache
