#include "icache/config/yaml.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

// A document in one line: quoted scalars in quotes, null as ~.
std::string Show(const YamlNode& node) {
  std::vector<std::string> parts;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "~";
    case YamlNode::Kind::kScalar:
      return node.quoted ? absl::StrCat("\"", node.text, "\"") : node.text;
    case YamlNode::Kind::kSequence:
      for (const YamlNode* item : node.items) parts.push_back(Show(*item));
      return absl::StrCat("[", absl::StrJoin(parts, ","), "]");
    case YamlNode::Kind::kMapping:
      for (const auto& field : node.fields)
        parts.push_back(absl::StrCat(std::string(field.key), ":", Show(*field.value)));
      return absl::StrCat("{", absl::StrJoin(parts, ","), "}");
  }
  return "";
}

struct Outcome {
  std::vector<std::string> documents;
  absl::Status status;
};

Outcome Read(std::string_view text) {
  Outcome outcome;
  Problems problems;
  const FileProblems file("f", &problems);
  ReadYaml(text, file, [&](const YamlNode& document) { outcome.documents.push_back(Show(document)); });
  outcome.status = problems.ToStatus();
  return outcome;
}

TEST(YamlTest, ReadsEveryDocument) {
  const Outcome outcome = Read("a: 1\nb: [x, 'y', ~]\n---\n- {c: d}\n---\n---\nlast\n");
  EXPECT_THAT(outcome.status, IsOk());
  EXPECT_THAT(outcome.documents, ElementsAre("{a:1,b:[x,\"y\",~]}", "[{c:d}]", "~", "last"));
}

TEST(YamlTest, BlankTextHasNoDocument) {
  for (const char* text : {"", "\n", "  \n\t\n", "# only a comment\n", "\xEF\xBB\xBF"}) {
    const Outcome outcome = Read(text);
    EXPECT_THAT(outcome.status, IsOk()) << text;
    EXPECT_THAT(outcome.documents, ElementsAre()) << text;
  }
}

TEST(YamlTest, PlacesCountFromOne) {
  Problems problems;
  const FileProblems file("f", &problems);
  ReadYaml("a: 1\nb:\n  c: x\n", file, [&](const YamlNode& document) {
    EXPECT_EQ(file.At(document.place), "f:1:1");
    EXPECT_EQ(file.At(document.fields[1].place), "f:2:1");
    EXPECT_EQ(file.At(document.fields[1].value->fields[0].place), "f:3:3");
    EXPECT_EQ(file.At(document.fields[1].value->fields[0].value->place), "f:3:6");
  });
}

TEST(YamlTest, RefusesDuplicateKeys) {
  const Outcome outcome = Read("a: 1\nb: {c: 1, d: 2, \"c\": 3}\na: 2\n");
  EXPECT_THAT(outcome.status, StatusIs(kBad,
                                       "f:2:17: b.c: is here twice, first in line 2\n"
                                       "f:3:1: a: is here twice, first in line 1"));
}

TEST(YamlTest, RefusesKeysThatAreNoStrings) {
  EXPECT_THAT(Read("? [a, b]\n: c\n").status, StatusIs(kBad, HasSubstr("f:1:3: a key must be a string")));
  EXPECT_THAT(Read("{a: {~: c}}\n").status, StatusIs(kBad, "f:1:6: a: a key must be a string"));
}

TEST(YamlTest, AliasesRepeatTheirAnchor) {
  EXPECT_THAT(Read("a: &x [1]\nb: *x\n").documents, ElementsAre("{a:[1],b:[1]}"));
}

TEST(YamlTest, RefusesAnAliasInsideItsAnchor) {
  EXPECT_THAT(Read("a: &x {b: [*x]}\n").status, StatusIs(kBad, "f:1:12: a.b[0]: an alias inside its own anchor"));
}

TEST(YamlTest, RefusesWhatIsNoYaml) {
  for (const char* text : {"a: [1", "a: 1\n]\n", "a: b: c\n", "a: \"x\n", "a: 'x\n\n\n", "a: *nope\n", "a: 1\n- b\n",
                           "%YAML 3.0\n---\na\n", "{a: 1"}) {
    EXPECT_THAT(Read(text).status, StatusIs(kBad, HasSubstr("not valid YAML"))) << text;
  }
}

// The parser gives an empty document for these, and the next one begins at the same place.
TEST(YamlTest, EndsWhereTheParserMakesNoProgress) {
  for (const char* text : {",", ",a", ", - }", "--- ,\n", "a: 1\n---\n,\n"}) {
    EXPECT_THAT(Read(text).status, StatusIs(kBad, HasSubstr("not valid YAML"))) << text;
  }
}

TEST(YamlTest, SyntaxErrorsKeepWhatTheDocumentsBeforeSay) {
  const Outcome outcome = Read("a: 1\na: 2\n---\nb: [\n");
  EXPECT_THAT(outcome.documents, ElementsAre("{a:1}"));
  EXPECT_THAT(outcome.status, StatusIs(kBad, HasSubstr("f:2:1: a: is here twice, first in line 1\nf:4:4: not valid")));
}

TEST(YamlTest, RefusesBytesThatAreNoText) {
  struct Row {
    std::string text;
    const char* place;
  };
  for (const auto& [text, place] : {
           Row{"a: 1\nb: \x04\nc: 2\n", "f:2:4:"},  // where the parser would stop reading
           Row{std::string("a\0b", 3), "f:1:2:"},   // NUL
           Row{"a: \x7f", "f:1:4:"},                // DEL
           Row{"a: \x80", "f:1:4:"},                // a tail without a head
           Row{"a: \xC0\x80", "f:1:4:"},            // overlong
           Row{"a: \xE0\x9F\xBF", "f:1:4:"},        // overlong
           Row{"a: \xED\xA0\x80", "f:1:4:"},        // a surrogate
           Row{"a: \xF4\x90\x80\x80", "f:1:4:"},    // beyond Unicode
           Row{"a: \xE2\x82", "f:1:4:"},            // cut short
           Row{"\xFF\xFE"
               "a\0",
               "f:1:1:"},  // UTF-16
       }) {
    EXPECT_THAT(Read(text).status, StatusIs(kBad, HasSubstr(place))) << place;
  }
  EXPECT_THAT(Read("a: \"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"\r\n").documents, ElementsAre("{a:\"é€😀\"}"));
}

TEST(YamlTest, SurvivesDeepNesting) {
  for (const char* piece : {"[", "{a: ", "- ", "? ", ": ", "[{", "- {"}) {
    std::string text;
    for (int i = 0; i < 2'000; ++i) text += piece;
    EXPECT_THAT(Read(text).status, StatusIs(kBad)) << piece;
  }
  std::string text = "a: x\n";
  for (int i = 0; i < 700; ++i) text = absl::StrCat(text, std::string(i, ' '), "a:\n");
  EXPECT_THAT(Read(text).status, StatusIs(kBad));
  EXPECT_THAT(Read("a:\n  " + std::string(2'000, '[')).status, StatusIs(kBad, HasSubstr("nested too deeply")));
}

TEST(YamlTest, BoundsTheValuesOfOneDocument) {
  std::string text = "[";
  for (size_t i = 0; i < kMaxYamlNodes; ++i) text += "1,";
  const Outcome outcome = Read(absl::StrCat("a: 1\n---\n", text, "{b: [c]}]\n---\nd: 1\n"));
  EXPECT_THAT(outcome.status, StatusIs(kBad, "f:2:1: a document holds at most 100000 values"));
  EXPECT_THAT(outcome.documents, ElementsAre("{a:1}"));  // the reading ends there
}

TEST(YamlTest, AliasesDoNotMultiply) {
  std::string text = "a0: &a0 [x, x]\n";
  for (int i = 1; i < 60; ++i) absl::StrAppend(&text, "a", i, ": &a", i, " [*a", i - 1, ", *a", i - 1, "]\n");
  Problems problems;
  size_t fields = 0;
  ReadYaml(text, FileProblems("f", &problems), [&](const YamlNode& document) { fields = document.fields.size(); });
  EXPECT_EQ(fields, 60u);
  EXPECT_THAT(problems.ToStatus(), IsOk());
}

TEST(YamlTest, ExplicitTypesAreNoScalars) {
  Problems problems;
  ReadYaml("!!str 5", FileProblems("f", &problems),
           [&](const YamlNode& document) { EXPECT_THAT(ScalarOf(document), StatusIs(kBad, HasSubstr("explicit"))); });
}

}  // namespace
}  // namespace icache
