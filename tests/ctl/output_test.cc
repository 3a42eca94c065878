#include "ctl/output.h"

#include <gtest/gtest.h>

namespace icache {
namespace {

using ::nlohmann::ordered_json;

TEST(OutputTest, YamlNestsMappingsAndLists) {
  EXPECT_EQ(ToYaml(ordered_json::parse(R"({"a": [1, {"b": [], "c": {"d": true}}], "e": {}})")),
            "a:\n"
            "  - 1\n"
            "  - b: []\n"
            "    c:\n"
            "      d: true\n"
            "e: {}\n");
  EXPECT_EQ(ToYaml(ordered_json::array()), "[]\n");
}

TEST(OutputTest, YamlQuotesWhatAReaderWouldTakeForAnotherType) {
  for (const char* text : {"yes", "NULL", "0123", "a: b", "- a", "#", "", "1.5", "~", "no", "line\nbreak"}) {
    EXPECT_EQ(ToYaml(ordered_json(text)), ordered_json(text).dump() + "\n") << text;
  }
  EXPECT_EQ(ToYaml(ordered_json("vllm-0.default")), "vllm-0.default\n");
}

}  // namespace
}  // namespace icache
