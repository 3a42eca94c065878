#include "icache/base/block_hash.h"

#include <gmock/gmock.h>

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace icache {
namespace {

using std::string_view_literals::operator""sv;

constexpr int32_t kMaxInt32 = std::numeric_limits<int32_t>::max();

TEST(BigEndianTest, StoresTheMostSignificantByteFirst) {
  char bytes[8];
  StoreBigEndian64(0x0102030405060708u, bytes);
  EXPECT_EQ(std::string_view(bytes, 8), "\x01\x02\x03\x04\x05\x06\x07\x08"sv);
}

TEST(BigEndianTest, LoadInvertsStore) {
  for (uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{0xff00ff00ff00ff00u}, ~uint64_t{0}}) {
    char bytes[8];
    StoreBigEndian64(value, bytes);
    EXPECT_EQ(LoadBigEndian64(bytes), value);
  }
}

TEST(BlockHashTest, EightBytesAndTheirBigEndianNumberAreTheSameHash) {
  EXPECT_EQ(BlockHash("\x80\0\0\0\0\0\0\x2a"sv), BlockHash(0x800000000000002au));
  EXPECT_TRUE(BlockHash("12345678"sv).IsPacked());
  EXPECT_EQ(BlockHash("12345678"sv).size(), 8u);
}

TEST(BlockHashTest, OtherWidthsKeepTheirBytes) {
  const BlockHash hash("a\0b"sv);
  EXPECT_FALSE(hash.IsPacked());
  EXPECT_EQ(hash.wide(), "a\0b"sv);
  EXPECT_EQ(hash.size(), 3u);
}

TEST(BlockHashTest, EqualityComparesBytesAndWidth) {
  EXPECT_EQ(BlockHash("abc"sv), BlockHash("abc"sv));
  EXPECT_FALSE(BlockHash("abc"sv) == BlockHash("abd"sv));
  EXPECT_FALSE(BlockHash("abc"sv) == BlockHash("abc\0"sv));
  EXPECT_FALSE(BlockHash(3u) == BlockHash("abc"sv));
  EXPECT_FALSE(BlockHash(1u) == BlockHash(2u));
}

TEST(BlockHashTest, ValidHashesHaveOneToSixtyFourBytes) {
  for (size_t bytes : {1, 7, 8, 9, 63, 64}) EXPECT_TRUE(BlockHash(std::string_view(std::string(bytes, 'x'))).IsValid());
  for (size_t bytes : {0, 65, 1000}) EXPECT_FALSE(BlockHash(std::string_view(std::string(bytes, 'x'))).IsValid());
  EXPECT_FALSE(BlockHash().IsValid());
}

TEST(BlockHashSpanTest, ReadsBothForms) {
  const std::vector<uint64_t> numbers = {1, 2};
  const std::vector<std::string_view> bytes = {"\0\0\0\0\0\0\0\1"sv, "wide"sv};
  const BlockHashSpan packed(numbers);
  const BlockHashSpan spelled(bytes);
  EXPECT_EQ(packed.size(), 2u);
  EXPECT_EQ(packed[0], spelled[0]);
  EXPECT_EQ(spelled[1], BlockHash("wide"sv));
  EXPECT_EQ(packed.packed().size(), 2u);
  EXPECT_TRUE(spelled.packed().empty());
}

// One way to fill the four wire fields, with storage for what they point to.
struct Fields {
  std::vector<std::string> hashes;
  std::vector<int32_t> counts;
  std::vector<uint64_t> packed;
  int32_t tokens_per_block = 0;

  ResolvedChain Resolve(size_t max_blocks = 65'536) {
    views.assign(hashes.begin(), hashes.end());
    return ResolveChain({.block_hashes = views,
                         .block_token_counts = counts,
                         .block_hashes_u64 = packed,
                         .tokens_per_block = tokens_per_block},
                        max_blocks);
  }

  std::vector<std::string_view> views = {};
};

TEST(ResolveChainTest, TellsTheFormsApart) {
  const std::string longest(64, 'x');
  const std::string too_long(65, 'x');
  struct {
    const char* what;
    Fields fields;
    ChainForm form;
  } rows[] = {
      {"no field", {}, ChainForm::kAbsent},
      {"tokens_per_block alone", {{}, {}, {}, 16}, ChainForm::kAbsent},
      {"negative tokens_per_block alone", {{}, {}, {}, -1}, ChainForm::kAbsent},

      // contract/lookup.md step 3: "A chain whose arrays differ in length".
      {"hashes without counts", {{"a", "b"}, {}, {}, 0}, ChainForm::kMismatched},
      {"counts without hashes", {{}, {64}, {}, 0}, ChainForm::kMismatched},
      {"more hashes than counts", {{"a", "b"}, {64}, {}, 0}, ChainForm::kMismatched},
      {"more counts than hashes", {{"a"}, {64, 64}, {}, 0}, ChainForm::kMismatched},
      {"unequal arrays are not rescued by a packed chain", {{"a", "b"}, {64}, {1}, 16}, ChainForm::kMismatched},
      {"unequal arrays with a bad hash", {{"", "b"}, {64}, {}, 0}, ChainForm::kMismatched},

      // "a negative count, an empty hash, a hash over 64 bytes … counts add up beyond int32, is malformed".
      {"negative count", {{"a", "b"}, {64, -1}, {}, 0}, ChainForm::kMalformed},
      {"empty hash", {{"a", ""}, {64, 64}, {}, 0}, ChainForm::kMalformed},
      {"hash over 64 bytes", {{"a", too_long}, {64, 64}, {}, 0}, ChainForm::kMalformed},
      {"sum beyond int32", {{"a", "b"}, {kMaxInt32, 1}, {}, 0}, ChainForm::kMalformed},
      {"sum far beyond int64's half",
       {{"a", "b", "c"}, {kMaxInt32, kMaxInt32, kMaxInt32}, {}, 0},
       ChainForm::kMalformed},

      {"hash of 64 bytes", {{longest}, {64}, {}, 0}, ChainForm::kValid},
      {"count of zero", {{"a"}, {0}, {}, 0}, ChainForm::kValid},
      {"sum of exactly int32's maximum", {{"a", "b"}, {kMaxInt32 - 1, 1}, {}, 0}, ChainForm::kValid},
      {"repeated hash", {{"a", "a"}, {1, 1}, {}, 0}, ChainForm::kValid},

      // contract/wire.md "Extensions": "must be > 0 with it, else malformed".
      {"packed", {{}, {}, {1, 2}, 16}, ChainForm::kValid},
      {"packed without tokens_per_block", {{}, {}, {1, 2}, 0}, ChainForm::kMalformed},
      {"packed with negative tokens_per_block", {{}, {}, {1, 2}, -16}, ChainForm::kMalformed},
      {"packed sum beyond int32", {{}, {}, {1, 2}, kMaxInt32}, ChainForm::kMalformed},
      {"packed sum of exactly int32's maximum", {{}, {}, {1}, kMaxInt32}, ChainForm::kValid},
      // "103 beside block_token_counts alone is malformed".
      {"packed beside counts", {{}, {64, 64}, {1, 2}, 16}, ChainForm::kMalformed},
      // "Beside block_hashes, 103 and 104 are ignored, whatever their values".
      {"hashes win over packed", {{"a"}, {64}, {1, 2}, -1}, ChainForm::kValid},
  };
  for (auto& row : rows) EXPECT_EQ(row.fields.Resolve().form, row.form) << row.what;
}

TEST(ResolveChainTest, MoreBlocksThanAllowedAreMalformed) {
  Fields bytes{{"a", "b", "c"}, {1, 1, 1}, {}, 0, {}};
  EXPECT_EQ(bytes.Resolve(3).form, ChainForm::kValid);
  EXPECT_EQ(bytes.Resolve(2).form, ChainForm::kMalformed);
  Fields packed{{}, {}, {1, 2, 3}, 16, {}};
  EXPECT_EQ(packed.Resolve(3).form, ChainForm::kValid);
  EXPECT_EQ(packed.Resolve(2).form, ChainForm::kMalformed);
}

TEST(ResolveChainTest, UnequalArraysBeyondTheLimitAreStillMismatched) {
  Fields fields{{"a", "b", "c"}, {1}, {}, 0, {}};
  EXPECT_EQ(fields.Resolve(1).form, ChainForm::kMismatched);
}

TEST(ResolveChainTest, AChainCarriesItsBlocks) {
  Fields fields{{"a", "b"}, {64, 16}, {}, 0, {}};
  const ResolvedChain resolved = fields.Resolve();
  ASSERT_EQ(resolved.chain.size(), 2u);
  EXPECT_EQ(resolved.chain.hash(0), BlockHash("a"sv));
  EXPECT_EQ(resolved.chain.hash(1), BlockHash("b"sv));
  EXPECT_EQ(resolved.chain.tokens(0), 64);
  EXPECT_EQ(resolved.chain.tokens(1), 16);
  EXPECT_EQ(resolved.total_tokens, 80);
}

TEST(ResolveChainTest, APackedChainHasOneCountForAllBlocks) {
  Fields fields{{}, {}, {7, 9}, 32, {}};
  const ResolvedChain resolved = fields.Resolve();
  ASSERT_EQ(resolved.chain.size(), 2u);
  EXPECT_EQ(resolved.chain.hash(1), BlockHash(9u));
  EXPECT_EQ(resolved.chain.tokens(0), 32);
  EXPECT_EQ(resolved.chain.tokens(1), 32);
  EXPECT_EQ(resolved.total_tokens, 64);
}

}  // namespace
}  // namespace icache
