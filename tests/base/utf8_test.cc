#include "icache/base/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace icache {
namespace {

struct Case {
  std::string_view bytes;
  size_t length;
};

TEST(Utf8Test, SequenceLengthIsThatOfWellFormedSequencesOnly) {
  const Case cases[] = {
      {"", 0},
      {"a", 1},
      {std::string_view("\0", 1), 1},
      {"\x7F", 1},
      {"\x80", 0},
      {"\xC1\xBF", 0},  // overlong
      {"\xC2\x80", 2},  // U+0080
      {"\xDF\xBF", 2},  // U+07FF
      {"\xC2", 0},      // cut
      {"\xC2\xC0", 0},
      {"\xE0\x9F\xBF", 0},      // overlong
      {"\xE0\xA0\x80", 3},      // U+0800
      {"\xED\x9F\xBF", 3},      // U+D7FF
      {"\xED\xA0\x80", 0},      // a surrogate
      {"\xEF\xBF\xBF", 3},      // U+FFFF
      {"\xE2\x82", 0},          // cut
      {"\xF0\x8F\xBF\xBF", 0},  // overlong
      {"\xF0\x90\x80\x80", 4},  // U+10000
      {"\xF4\x8F\xBF\xBF", 4},  // U+10FFFF
      {"\xF4\x90\x80\x80", 0},  // beyond
      {"\xF5\x80\x80\x80", 0},
      {"\xFF", 0},
      {"\xC3\xA9t\xC3\xA9", 2},  // only the first
  };
  for (const Case& c : cases) EXPECT_EQ(Utf8SequenceLength(c.bytes), c.length) << c.bytes;
}

TEST(Utf8Test, SanitizingReplacesEachBadByteAndNul) {
  EXPECT_EQ(SanitizedUtf8(std::string_view("a\0b\xE2\x82z", 6), 100),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD\xEF\xBF\xBDz");
}

TEST(Utf8Test, SanitizingKeepsWellFormedText) {
  EXPECT_EQ(SanitizedUtf8("caf\xC3\xA9 \xF0\x9F\x98\x80\n", 100), "caf\xC3\xA9 \xF0\x9F\x98\x80\n");
}

TEST(Utf8Test, SanitizingCutsBetweenCharacters) {
  EXPECT_EQ(SanitizedUtf8("a\xC3\xA9", 2), "a");
  EXPECT_EQ(SanitizedUtf8("a\xC3\xA9", 3), "a\xC3\xA9");
  EXPECT_EQ(SanitizedUtf8("\xFF", 2), "");
}

TEST(Utf8Test, OneBadByteMakesATextNoUtf8) {
  EXPECT_TRUE(IsUtf8("a\u00e9\u20ac"));
  EXPECT_TRUE(IsUtf8(""));
  EXPECT_FALSE(IsUtf8("ab\xff"));
}

}  // namespace
}  // namespace icache
