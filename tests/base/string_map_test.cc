#include "icache/base/string_map.h"

#include <gmock/gmock.h>

#include <string>
#include <string_view>

namespace icache {
namespace {

TEST(StringMapTest, IsProbedWithViewsAndStringsAlike) {
  StringMap<int> map;
  map["llama-3-8b"] = 7;
  const std::string_view text = "models/llama-3-8b";
  ASSERT_TRUE(map.contains(text.substr(7)));
  EXPECT_EQ(map.find(text.substr(7))->second, 7);
  EXPECT_TRUE(map.contains(std::string("llama-3-8b")));
  EXPECT_FALSE(map.contains(text));
}

TEST(StringMapTest, TellsBytesAfterANulApart) {
  StringSet set;
  set.insert(std::string("a\0b", 3));
  EXPECT_FALSE(set.contains(std::string_view("a")));
  EXPECT_FALSE(set.contains(std::string_view("a\0c", 3)));
  EXPECT_TRUE(set.contains(std::string_view("a\0b", 3)));
}

TEST(StringNodeMapTest, ValuesStayWhereTheyAre) {
  StringNodeMap<int> map;
  const int* first = &map["first"];
  for (int i = 0; i < 1000; ++i) map[std::to_string(i)] = i;
  EXPECT_EQ(&map["first"], first);
}

}  // namespace
}  // namespace icache
