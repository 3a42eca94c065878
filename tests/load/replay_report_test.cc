#include "load/replay_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

PolicyResult Policy(std::string name, int64_t reused, std::vector<int64_t> computed) {
  int64_t prompt = reused;
  for (const int64_t tokens : computed) prompt += tokens;
  return {.policy = std::move(name),
          .totals = {.requests = 3, .prompt_tokens = prompt, .reused_tokens = reused},
          .computed_tokens = std::move(computed),
          .curve = {{.time_ms = 0, .hit_rate = 0}, {.time_ms = 90'000, .hit_rate = 0.25}}};
}

ReplayOutcome Outcome() {
  ReplayOutcome outcome;
  outcome.options.fleet.engines = 2;
  outcome.trace_path = "a trace";
  outcome.trace_ms = 90'000;
  outcome.index_prefixes = 41;
  outcome.result.policies = {Policy("hints", 4000, {3000, 3000}), Policy("round robin", 2000, {4000, 4000}),
                             Policy("best match", 4000, {6000, 0}), Policy("oracle", 5000, {2000, 3000})};
  outcome.result.reason_codes = {{"AFFINITY_HINT", 1}, {"PREFIX_MATCH", 2}};
  outcome.result.rows_checked = 5;
  outcome.result.held_prefixes = 41;
  return outcome;
}

TEST(ReplayReportTest, TheTextComparesThePolicies) {
  const std::string text = ReplayText(Outcome());
  EXPECT_THAT(text, HasSubstr("3 requests in 90 s of trace, 10,000 prompt tokens"));
  EXPECT_THAT(text,
              HasSubstr("hints          40.00 %          4,000            6,000                 2,000       1.00"));
  EXPECT_THAT(text,
              HasSubstr("best match     40.00 %          4,000            6,000                 2,000       2.00"));
  EXPECT_THAT(text, HasSubstr("PREFIX_MATCH 2 (66.7 %)"));
  EXPECT_THAT(text, HasSubstr("rows checked:    5, of them wrong: 0"));
  EXPECT_THAT(text, HasSubstr("41 prefixes, held by the engines: 41"));
}

TEST(ReplayReportTest, TheJsonHasTheSameNumbers) {
  const nlohmann::ordered_json json = ReplayJson(Outcome());
  EXPECT_EQ(json["trace"]["file"], "a trace");
  ASSERT_EQ(json["policies"].size(), 4u);
  EXPECT_EQ(json["policies"][0]["hit_rate"], 0.4);
  EXPECT_EQ(json["policies"][0]["tokens_saved_on_round_robin"], 2000);
  EXPECT_EQ(json["policies"][2]["imbalance"], 2);
  EXPECT_THAT(json["policies"][3]["tokens_computed_by_engine"], ElementsAre(2000, 3000));
  EXPECT_EQ(json["reason_codes"]["PREFIX_MATCH"], 2);
  EXPECT_EQ(json["prefixes"]["in_index"], 41);
}

TEST(ReplayReportTest, ThePictureHasALineAndBarsForEveryPolicy) {
  const std::string svg = ReplaySvg(Outcome());
  EXPECT_THAT(svg, ::testing::StartsWith("<svg "));
  EXPECT_THAT(svg, ::testing::EndsWith("</svg>\n"));
  const auto count = [&svg](const std::string& piece) {
    size_t found = 0;
    for (size_t at = svg.find(piece); at != std::string::npos; at = svg.find(piece, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<polyline"), 4u);
  EXPECT_EQ(count("<rect x="), 8u);
  EXPECT_EQ(count("<text"), count("</text>"));
  EXPECT_THAT(svg, HasSubstr("best match: max 2.00×"));
  EXPECT_THAT(svg, ::testing::Not(HasSubstr("nan")));
}

}  // namespace
}  // namespace icache
