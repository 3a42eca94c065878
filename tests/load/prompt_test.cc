#include "load/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "icache/fingerprint/fingerprint.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::testing::ElementsAreArray;

TraceRequest Prompt(std::vector<int64_t> ids, int32_t tokens) {
  return {.timestamp_ms = 0, .input_tokens = tokens, .output_tokens = 0, .hash_ids = std::move(ids)};
}

std::vector<uint64_t> ChainOf(const TraceRequest& request, int32_t block_size) {
  PromptExpander expander(block_size);
  const absl::Span<const uint64_t> chain = expander.Chain(request);
  return {chain.begin(), chain.end()};
}

TEST(PromptTest, EveryIdStandsFor512TokensButTheLast) {
  std::vector<uint32_t> tokens;
  ExpandTokens(Prompt({3, 4}, 700), &tokens);
  ASSERT_EQ(tokens.size(), 700u);
  EXPECT_EQ(tokens[511], TraceToken(3, 511));
  EXPECT_EQ(tokens[512], TraceToken(4, 0));
  EXPECT_EQ(tokens[699], TraceToken(4, 187));
}

TEST(PromptTest, TheChainIsTheFingerprintOfTheTokens) {
  const TraceRequest request = Prompt({3, 4}, 700);
  std::vector<uint32_t> tokens;
  ExpandTokens(request, &tokens);
  std::vector<uint64_t> expected;
  ASSERT_THAT(FingerprintPrefixes(tokens, 16, std::nullopt, &expected), IsOk());
  EXPECT_EQ(expected.size(), 43u);  // 700 / 16, the shorter tail dropped
  EXPECT_THAT(ChainOf(request, 16), ElementsAreArray(expected));
}

TEST(PromptTest, PromptsShareBlocksAsFarAsTheyShareIds) {
  const std::vector<uint64_t> one = ChainOf(Prompt({1, 2, 3}, 1536), 16);
  const std::vector<uint64_t> other = ChainOf(Prompt({1, 2, 4}, 1536), 16);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(one[i] == other[i], i < 64) << i;
}

TEST(PromptTest, APromptShorterThanABlockHasNoChain) { EXPECT_TRUE(ChainOf(Prompt({1}, 15), 16).empty()); }

}  // namespace
}  // namespace icache
