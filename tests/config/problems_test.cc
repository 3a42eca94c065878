#include "icache/config/problems.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_split.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::IsOk;
using testing::StatusIs;

TEST(ProblemsTest, NoneIsOk) { EXPECT_THAT(Problems().ToStatus(), IsOk()); }

TEST(ProblemsTest, EachIsOneLine) {
  Problems problems;
  FileProblems file("a.yaml", &problems);
  file.Add({3, 7}, "spec.evictionTTL", "must be > 0");
  file.Add({4, 1}, "", "not valid YAML");
  problems.Add("--max-entries: must be >= 0");
  EXPECT_THAT(problems.ToStatus(), StatusIs(absl::StatusCode::kInvalidArgument,
                                            "a.yaml:3:7: spec.evictionTTL: must be > 0\n"
                                            "a.yaml:4:1: not valid YAML\n"
                                            "--max-entries: must be >= 0"));
}

TEST(ProblemsTest, ReportIsBounded) {
  Problems problems;
  for (int i = 0; i < 1000; ++i) problems.Add("x");
  const std::string message(problems.ToStatus().message());
  const std::vector<std::string> lines = absl::StrSplit(message, '\n');
  EXPECT_EQ(lines.size(), Problems::kMaxReported + 1);
  EXPECT_EQ(lines.back(), "and 900 more problems");
}

TEST(ProblemsTest, QuotedTextStaysOnOneShortLine) {
  EXPECT_EQ(Quoted("a\nb\x1b"), "\"a\\nb\\033\"");
  EXPECT_EQ(Quoted(std::string(200, 'x')), "\"" + std::string(80, 'x') + "…\"");
}

TEST(ProblemsTest, CutsBetweenCharacters) {
  std::string text(79, 'x');
  text += "éé";
  EXPECT_EQ(Printable(text), std::string(79, 'x') + "…");
}

}  // namespace
}  // namespace icache
