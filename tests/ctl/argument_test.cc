#include "ctl/argument.h"

#include <gmock/gmock.h>

#include <fstream>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ArgumentTest, AFileIsReadWhereAnAtSaysSo) {
  const std::string path = ::testing::TempDir() + "/argument-test";
  std::ofstream(path) << "1 2";
  EXPECT_EQ(ReadArgument("@" + path).value(), "1 2");
  EXPECT_EQ(ReadArgument("1 2").value(), "1 2");
  EXPECT_THAT(ReadArgument("@" + path + ".absent"), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(ArgumentTest, HashesArePartedByCommasOrSpace) {
  EXPECT_THAT(ParseHashes("a1, 0xB2\n\tc3").value(), ElementsAre("\xa1", "\xb2", "\xc3"));
  EXPECT_THAT(ParseHashes("").value(), IsEmpty());
}

TEST(ArgumentTest, WhatIsNoHashIsNamed) {
  for (const std::string& text : {std::string("a1 zz"), std::string("abc"), std::string("0x"), std::string(130, 'a')}) {
    EXPECT_THAT(ParseHashes(text), StatusIs(absl::StatusCode::kInvalidArgument)) << text;
  }
}

TEST(ArgumentTest, TokenIdsAreNumbersOf32Bits) {
  EXPECT_THAT(ParseTokenIds("[1, 2,4294967295]").value(), ElementsAre(1, 2, 4294967295));
  EXPECT_THAT(ParseTokenIds("4294967296"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(ParseTokenIds("-1"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace icache
