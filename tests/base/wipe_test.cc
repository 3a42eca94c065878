#include "icache/base/wipe.h"

#include <gtest/gtest.h>

#include <string>

namespace icache {
namespace {

TEST(WipeTest, TextIsEmptyAndItsBytesAreGone) {
  std::string text(100, 's');
  const char* const bytes = text.data();
  Wipe(&text);
  EXPECT_TRUE(text.empty());
  for (size_t i = 0; i < 100; ++i) ASSERT_EQ(bytes[i], '\0') << i;  // still the string's own
}

}  // namespace
}  // namespace icache
