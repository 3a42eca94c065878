#include "ctl/metrics_page.h"

#include <gmock/gmock.h>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

TEST(MetricsPageTest, SamplesAreReadWithTheirLabels) {
  const MetricsPage page = ReadMetrics(
      "# HELP calls Calls.\n"
      "calls{model=\"a\",reason=\"X\"} 2\n"
      "calls{model=\"b \\\"q\\\" \\n\",reason=\"X\",} 3.5e1 1700000000\n"
      "calls{model=\"a\",reason=\"Y\"} 4\n"
      "up 1\n");
  EXPECT_EQ(SumOf(page, "calls"), 41);
  EXPECT_EQ(SumOf(page, "up"), 1);
  EXPECT_EQ(SumOf(page, "absent"), 0);
  EXPECT_THAT(SumsBy(page, "calls", "reason"), ElementsAre(Pair("X", 37), Pair("Y", 4)));
  EXPECT_THAT(SumsBy(page, "calls", "model"), ElementsAre(Pair("a", 6), Pair("b \"q\" \n", 35)));
}

TEST(MetricsPageTest, LinesThatAreNoSamplesAreLeftOut) {
  for (const char* text : {"", "a", "a{", "a{b", "a{b=\"", "a{b=\"c", "a{b=\"c\"", "a{b=\"c\"}", "a{b=\"c\"} x", "{} 1",
                           "a NaN", "a +Inf"}) {
    EXPECT_EQ(SumOf(ReadMetrics(text), "a"), 0) << text;
  }
}

}  // namespace
}  // namespace icache
