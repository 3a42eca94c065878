#include "ctl/table.h"

#include <gmock/gmock.h>

namespace icache {
namespace {

Table Fleet() {
  Table table({{"REPLICA"}, {"TOKENS", Table::Align::kRight}, {"NOTE"}});
  table.AddRow({"vllm-0", "6,752", {"good", Tone::kGood}});
  table.AddRow({"é", "1", "-"});
  return table;
}

TEST(TableTest, ColumnsAreAlignedAndLinesHaveNoTail) {
  EXPECT_EQ(Fleet().Render({}),
            "REPLICA  TOKENS  NOTE\n"
            "vllm-0    6,752  good\n"
            "é             1  -\n");
}

TEST(TableTest, WhatIsTooWideIsStackedWhole) {
  EXPECT_EQ(Fleet().Render({.width = 20, .color = false}),
            "REPLICA  vllm-0\n"
            "TOKENS   6,752\n"
            "NOTE     good\n"
            "\n"
            "REPLICA  é\n"
            "TOKENS   1\n"
            "NOTE     -\n");
  EXPECT_EQ(Fleet().Render({.width = 21, .color = false}), Fleet().Render({}));
}

TEST(TableTest, ColoursTakeNoRoom) {
  EXPECT_THAT(Fleet().Render({.width = 21, .color = true}), ::testing::HasSubstr("6,752  \033[32mgood\033[0m\n"));
}

}  // namespace
}  // namespace icache
