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

TEST(OutputTest, WhatTerminalsObeyAndYamlForbidsIsEscaped) {
  const ordered_json value = {{"del\x7f", "c1 \xc2\x9b, nel \xc2\x85, \xe2\x80\xa8, \xef\xbf\xbe, \xef\xbb\xbf, \x1b"}};
  const std::string text = R"("del\u007f")";
  const std::string escaped = R"("c1 \u009b, nel \u0085, \u2028, \ufffe, \ufeff, \u001b")";
  EXPECT_EQ(ToJsonText(value), "{" + text + ":" + escaped + "}");
  EXPECT_EQ(ToYaml(value), text + ": " + escaped + "\n");
  EXPECT_EQ(ordered_json::parse(ToJsonText(value)), value);
}

TEST(OutputTest, OtherCharactersStayAndBytesThatAreNoneAreReplaced) {
  EXPECT_EQ(ToJsonText("\xc2\xa0\xe6\xa8\xa1\xf0\x9f\x98\x80"), "\"\xc2\xa0\xe6\xa8\xa1\xf0\x9f\x98\x80\"");
  EXPECT_EQ(ToJsonText({{"\xff", "\xff"}}), "{\"\xef\xbf\xbd\":\"\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace icache
