#include "icache/base/prometheus_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

using Labels = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> NamesOn(std::string_view page) {
  std::vector<std::string> names;
  ForEachSample(page, [&](const PrometheusSample& sample) { names.emplace_back(sample.name); });
  return names;
}

std::vector<double> ValuesOn(std::string_view page) {
  std::vector<double> values;
  ForEachSample(page, [&](const PrometheusSample& sample) { values.push_back(sample.value); });
  return values;
}

Labels LabelsOn(std::string_view page) {
  Labels labels;
  ForEachSample(page, [&](const PrometheusSample& sample) {
    ForEachLabel(sample.labels,
                 [&](std::string_view name, std::string value) { labels.emplace_back(name, std::move(value)); });
  });
  return labels;
}

TEST(PrometheusTextTest, ReadsNameAndValueWithAndWithoutATimestamp) {
  EXPECT_THAT(NamesOn("a 1\nb:c_total 2.5 1700000000000\r\n\nd\t3\n"), ElementsAre("a", "b:c_total", "d"));
  EXPECT_THAT(ValuesOn("a 1\nb:c_total 2.5 1700000000000\r\n\nd\t3\n"), ElementsAre(1, 2.5, 3));
}

TEST(PrometheusTextTest, ReadsALastLineWithoutALineFeed) { EXPECT_THAT(ValuesOn("a 1\nb 2"), ElementsAre(1, 2)); }

TEST(PrometheusTextTest, TellsValuesThatAreNotFinite) {
  const std::vector<double> values = ValuesOn("a NaN\na +Inf\na -Inf\n");
  ASSERT_EQ(values.size(), 3u);
  EXPECT_TRUE(std::isnan(values[0]));
  EXPECT_GT(values[1], 1e308);
  EXPECT_LT(values[2], -1e308);
}

TEST(PrometheusTextTest, ReadsLabelsInTheirOrder) {
  EXPECT_THAT(LabelsOn(R"(a{b="1",c="two"} 1)"), ElementsAre(Pair("b", "1"), Pair("c", "two")));
  EXPECT_THAT(LabelsOn(R"(a { } 1)"), IsEmpty());
  EXPECT_THAT(LabelsOn(R"(a{ b="1" , c="2" ,} 1)"), ElementsAre(Pair("b", "1"), Pair("c", "2")));
}

TEST(PrometheusTextTest, UnescapesLabels) {
  EXPECT_THAT(LabelsOn(R"(a{b="q\"b\\n\n}, c=\"",d="{"} 1)"),
              ElementsAre(Pair("b", "q\"b\\n\n}, c=\""), Pair("d", "{")));
}

TEST(PrometheusTextTest, PassesOverWhatIsNoSample) {
  for (const char* line : {"# HELP a b", "a", "a{", "a{b", "a{b=", "a{b=\"", "a{b=\"c", "a{b=\"c\\", "a{b=\"c\"",
                           "a{} x", "a{b=\"c\"}", "a ", "#", " ", "}", "a{b}=\"c\" 1"}) {
    EXPECT_THAT(ValuesOn(line), IsEmpty()) << line;
    EXPECT_THAT(ValuesOn(std::string(line) + "\nnext 1\n"), ElementsAre(1)) << line;
  }
}

}  // namespace
}  // namespace icache
