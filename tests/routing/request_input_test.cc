#include "routing/request_input.h"

#include <gmock/gmock.h>

#include <limits>
#include <string>

#include "icache/fingerprint/fingerprint.h"

namespace icache {
namespace {

using std::string_view_literals::operator""sv;

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();
const std::string kTooLong(65, 'x');

// A request with storage for its lists.
struct Input {
  std::vector<std::string_view> block_hashes = {};
  std::vector<int32_t> block_token_counts = {};
  std::vector<uint64_t> block_hashes_u64 = {};
  int32_t tokens_per_block = 0;
  std::string_view prefix_hash = {};
  int32_t prefix_token_count = 0;
  std::vector<uint32_t> token_ids = {};
  std::string_view prompt_text = {};

  LookupRequest Request() const {
    LookupRequest request;
    request.model_id = "model";
    request.chain = {.block_hashes = block_hashes,
                     .block_token_counts = block_token_counts,
                     .block_hashes_u64 = block_hashes_u64,
                     .tokens_per_block = tokens_per_block};
    request.prefix_hash = prefix_hash;
    request.prefix_token_count = prefix_token_count;
    request.token_ids = token_ids;
    request.prompt_text = prompt_text;
    return request;
  }
};

std::vector<uint32_t> Ids(size_t count) { return std::vector<uint32_t>(count, 7); }

class ResolveKeyTest : public ::testing::Test {
 protected:
  std::optional<LookupKey> Resolve(const Input& input, bool chain_matching = true) {
    CachePolicy policy;
    policy.enable_chain_matching = chain_matching;
    const LookupRequest request = input.Request();
    return ResolveKey(request, ResolveChain(request.chain, options_.max_chain_blocks), policy, options_,
                      &prefix_hashes_);
  }

  RouterOptions options_;
  std::vector<uint64_t> prefix_hashes_;
};

enum class Outcome { kNoHint, kNothing, kExact, kChain };

Outcome OutcomeOf(const std::optional<LookupKey>& key) {
  if (!key.has_value()) return Outcome::kNoHint;
  switch (key->kind) {
    case KeyKind::kNothing:
      return Outcome::kNothing;
    case KeyKind::kExact:
      return Outcome::kExact;
    case KeyKind::kChain:
      return Outcome::kChain;
  }
  return Outcome::kNoHint;
}

TEST_F(ResolveKeyTest, FollowsTheOrderOfInputs) {
  const struct {
    const char* what;
    Input input;
    Outcome with_chains;     // enableChainMatching: true
    Outcome without_chains;  // enableChainMatching: false
    int32_t tokens_with = 0;
    int32_t tokens_without = 0;
  } kRows[] = {
      // contract/lookup.md step 3: "none: an exact lookup of nothing".
      {"no input", {}, Outcome::kNothing, Outcome::kNothing},
      {"a count alone", {.prefix_token_count = 99}, Outcome::kNothing, Outcome::kNothing, 99, 99},
      {"tokens_per_block alone", {.tokens_per_block = 16}, Outcome::kNothing, Outcome::kNothing},

      // "Explicit key". Without chain matching: "else, if chain fields were there, NO_HINT".
      {"chain", {.block_hashes = {"a"}, .block_token_counts = {64}}, Outcome::kChain, Outcome::kNoHint, 64},
      {"packed chain", {.block_hashes_u64 = {1, 2}, .tokens_per_block = 16}, Outcome::kChain, Outcome::kNoHint, 32},
      {"hash", {.prefix_hash = "h", .prefix_token_count = 5}, Outcome::kExact, Outcome::kExact, 5, 5},
      // "With a chain, the chain is matched and prefix_hash is ignored"; and the reverse without chain matching.
      {"chain and hash",
       {.block_hashes = {"a"}, .block_token_counts = {64}, .prefix_hash = "h", .prefix_token_count = 5},
       Outcome::kChain,
       Outcome::kExact,
       64,
       5},
      {"chain and overlong hash",
       {.block_hashes = {"a"}, .block_token_counts = {64}, .prefix_hash = kTooLong},
       Outcome::kChain,
       Outcome::kNoHint,
       64},
      {"overlong hash", {.prefix_hash = kTooLong}, Outcome::kNoHint, Outcome::kNoHint},
      {"overlong hash and ids", {.prefix_hash = kTooLong, .token_ids = Ids(16)}, Outcome::kNoHint, Outcome::kNoHint},
      {"hash and ids", {.prefix_hash = "h", .token_ids = Ids(16)}, Outcome::kExact, Outcome::kExact},

      // "A chain whose arrays differ in length: NO_HINT."
      {"hashes without counts", {.block_hashes = {"a"}}, Outcome::kNoHint, Outcome::kNoHint},
      {"counts without hashes", {.block_token_counts = {64}}, Outcome::kNoHint, Outcome::kNoHint},
      {"unequal arrays and a hash",
       {.block_hashes = {"a"}, .prefix_hash = "h", .prefix_token_count = 5},
       Outcome::kNoHint,
       Outcome::kExact,
       0,
       5},
      {"unequal arrays and ids",
       {.block_hashes = {"a"}, .token_ids = Ids(40)},
       Outcome::kNoHint,
       Outcome::kExact,
       0,
       32},
      {"unequal arrays and a prompt", {.block_hashes = {"a"}, .prompt_text = "hi"}, Outcome::kNoHint, Outcome::kNoHint},

      // "… is malformed: NO_HINT."
      {"negative count", {.block_hashes = {"a"}, .block_token_counts = {-1}}, Outcome::kNoHint, Outcome::kNoHint},
      {"empty hash", {.block_hashes = {""}, .block_token_counts = {64}}, Outcome::kNoHint, Outcome::kNoHint},
      {"overlong block", {.block_hashes = {kTooLong}, .block_token_counts = {64}}, Outcome::kNoHint, Outcome::kNoHint},
      {"sum beyond int32",
       {.block_hashes = {"a", "b"}, .block_token_counts = {kMaxInt32, 1}},
       Outcome::kNoHint,
       Outcome::kNoHint},
      {"packed without tokens_per_block", {.block_hashes_u64 = {1}}, Outcome::kNoHint, Outcome::kNoHint},
      {"packed beside counts",
       {.block_token_counts = {64}, .block_hashes_u64 = {1}, .tokens_per_block = 64},
       Outcome::kNoHint,
       Outcome::kNoHint},
      {"malformed chain and a hash",
       {.block_hashes = {""}, .block_token_counts = {64}, .prefix_hash = "h"},
       Outcome::kNoHint,
       Outcome::kExact},

      // "token_ids: … fewer than one block: NO_HINT"; without chains matched "by their last block's hash".
      {"ids", {.token_ids = Ids(40)}, Outcome::kChain, Outcome::kExact, 32, 32},
      {"one block of ids", {.token_ids = Ids(16)}, Outcome::kChain, Outcome::kExact, 16, 16},
      {"too few ids", {.token_ids = Ids(15)}, Outcome::kNoHint, Outcome::kNoHint},
      {"too few ids and a prompt", {.token_ids = Ids(15), .prompt_text = "hi"}, Outcome::kNoHint, Outcome::kNoHint},
      {"chain and ids",
       {.block_hashes = {"a"}, .block_token_counts = {64}, .token_ids = Ids(32)},
       Outcome::kChain,
       Outcome::kExact,
       64,
       32},

      // "prompt_text: No tokenizer for the model … NO_HINT".
      {"prompt", {.prompt_text = "hi"}, Outcome::kNoHint, Outcome::kNoHint},
      {"hash and prompt", {.prefix_hash = "h", .prompt_text = "hi"}, Outcome::kExact, Outcome::kExact},
      {"ids and prompt", {.token_ids = Ids(16), .prompt_text = "hi"}, Outcome::kChain, Outcome::kExact, 16, 16},
      {"chain and prompt",
       {.block_hashes = {"a"}, .block_token_counts = {64}, .prompt_text = "hi"},
       Outcome::kChain,
       Outcome::kNoHint,
       64},
  };
  for (const auto& row : kRows) {
    const std::optional<LookupKey> with = Resolve(row.input);
    EXPECT_EQ(OutcomeOf(with), row.with_chains) << row.what;
    EXPECT_EQ(with.has_value() ? with->tokens : 0, row.tokens_with) << row.what;
    const std::optional<LookupKey> without = Resolve(row.input, /*chain_matching=*/false);
    EXPECT_EQ(OutcomeOf(without), row.without_chains) << row.what;
    EXPECT_EQ(without.has_value() ? without->tokens : 0, row.tokens_without) << row.what;
  }
}

TEST_F(ResolveKeyTest, IdsBecomeTheChainOfTheirFingerprint) {
  const Input input{.token_ids = {1, 2, 3, 4, 5, 6, 7}};
  options_.block_size = 3;
  std::vector<uint64_t> expected;
  ASSERT_TRUE(FingerprintPrefixes(input.token_ids, 3, std::nullopt, &expected).ok());
  const std::optional<LookupKey> key = Resolve(input);
  ASSERT_TRUE(key.has_value());
  ASSERT_EQ(key->chain.size(), 2u);
  EXPECT_EQ(key->chain.hash(0), BlockHash(expected[0]));
  EXPECT_EQ(key->chain.hash(1), BlockHash(expected[1]));
  EXPECT_EQ(key->chain.tokens(1), 3);
}

TEST_F(ResolveKeyTest, WithoutChainsIdsBecomeTheirLastBlock) {
  const Input input{.token_ids = Ids(40)};
  std::vector<uint64_t> expected;
  ASSERT_TRUE(FingerprintPrefixes(input.token_ids, 16, std::nullopt, &expected).ok());
  const std::optional<LookupKey> key = Resolve(input, /*chain_matching=*/false);
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->hash, BlockHash(expected[1]));
}

TEST_F(ResolveKeyTest, AModelsOwnBlockSizeComesFirst) {
  options_.block_size = 16;
  options_.block_size_by_model["model"] = 4;
  options_.block_size_by_model["other"] = 1;
  const std::optional<LookupKey> key = Resolve({.token_ids = Ids(10)});
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->chain.size(), 2u);
  EXPECT_EQ(key->tokens, 8);
}

TEST_F(ResolveKeyTest, TooManyIdsAreRefused) {
  // "More than 1,048,576 ids …: NO_HINT", by default.
  EXPECT_TRUE(Resolve({.token_ids = Ids(1'048'576)}).has_value());
  EXPECT_FALSE(Resolve({.token_ids = Ids(1'048'577)}).has_value());
}

TEST_F(ResolveKeyTest, ChainsBeyondTheLimitAreRefused) {
  // "more than 65,536 blocks", by default.
  Input input{.block_hashes_u64 = std::vector<uint64_t>(65'536, 1), .tokens_per_block = 16};
  EXPECT_TRUE(Resolve(input).has_value());
  input.block_hashes_u64.push_back(1);
  EXPECT_FALSE(Resolve(input).has_value());
}

TEST_F(ResolveKeyTest, AnExactKeyKeepsAllItsBytes) {
  const std::optional<LookupKey> key = Resolve({.prefix_hash = "a\0b"sv});
  ASSERT_TRUE(key.has_value());
  EXPECT_EQ(key->hash, BlockHash("a\0b"sv));
}

TEST(HasChainTest, CountsMalformedChainsButNotUnequalArrays) {
  const struct {
    const char* what;
    Input input;
    bool has_chain;
  } kRows[] = {
      // Step 2: "block_hashes not empty and as long as block_token_counts, or a packed chain".
      {"nothing", {}, false},
      {"chain", {.block_hashes = {"a"}, .block_token_counts = {64}}, true},
      {"packed chain", {.block_hashes_u64 = {1}, .tokens_per_block = 16}, true},
      {"hashes alone", {.block_hashes = {"a"}}, false},
      {"counts alone", {.block_token_counts = {64}}, false},
      {"hash", {.prefix_hash = "h"}, false},
      {"ids", {.token_ids = Ids(16)}, false},
      // contract/wire.md "Extensions": "a malformed one passes requireChain".
      {"malformed chain", {.block_hashes = {""}, .block_token_counts = {64}}, true},
      {"malformed packed chain", {.block_hashes_u64 = {1}}, true},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(HasChain(ResolveChain(row.input.Request().chain)), row.has_chain) << row.what;
  }
}

}  // namespace
}  // namespace icache
