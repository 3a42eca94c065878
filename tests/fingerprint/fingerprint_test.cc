// Checks the fingerprint against the golden vectors that pin it (contract/fingerprint.md).
#include "icache/fingerprint/fingerprint.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "icache/base/block_hash.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct GoldenVector {
  std::string name;
  std::vector<uint32_t> tokens;
  int32_t block_size = 0;
  std::optional<uint64_t> parent;
  std::vector<uint64_t> content;
  std::vector<uint64_t> prefix;
  std::vector<std::string> prefix_hex;  // the wire's 8 bytes, in hex
};

uint64_t ParseDecimal(const nlohmann::json& text) { return std::stoull(text.get<std::string>()); }

std::vector<uint64_t> ParseHashes(const nlohmann::json& hashes) {
  std::vector<uint64_t> values;
  for (const nlohmann::json& hash : hashes) values.push_back(ParseDecimal(hash.at("u64")));
  return values;
}

std::vector<GoldenVector> LoadGoldenVectors() {
  std::ifstream file(std::string(ICACHE_TEST_DATA_DIR) + "/golden_vectors.json");
  const nlohmann::json document = nlohmann::json::parse(file);
  std::vector<GoldenVector> vectors;
  for (const nlohmann::json& json : document.at("vectors")) {
    GoldenVector vector;
    vector.name = json.at("name");
    vector.tokens = json.at("tokens").get<std::vector<uint32_t>>();
    vector.block_size = json.at("block_size");
    if (const nlohmann::json& parent = json.at("parent"); !parent.is_null()) {
      vector.parent = ParseDecimal(parent);
    }
    vector.content = ParseHashes(json.at("content"));
    vector.prefix = ParseHashes(json.at("prefix"));
    for (const nlohmann::json& hash : json.at("prefix")) vector.prefix_hex.push_back(hash.at("hex"));
    vectors.push_back(std::move(vector));
  }
  return vectors;
}

std::string HexOf(uint64_t hash) {
  char bytes[kPackedHashBytes];
  StoreBigEndian64(hash, bytes);
  std::string hex;
  for (char byte : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    hex += kDigits[static_cast<unsigned char>(byte) >> 4];
    hex += kDigits[static_cast<unsigned char>(byte) & 15];
  }
  return hex;
}

TEST(FingerprintTest, GoldenFileHasVectorsWithAndWithoutParent) {
  const std::vector<GoldenVector> vectors = LoadGoldenVectors();
  const auto has_parent = [](const GoldenVector& vector) { return vector.parent.has_value(); };
  EXPECT_TRUE(std::any_of(vectors.begin(), vectors.end(), has_parent));
  EXPECT_FALSE(std::all_of(vectors.begin(), vectors.end(), has_parent));
}

TEST(FingerprintTest, EveryGoldenContentHashIsReproduced) {
  for (const GoldenVector& vector : LoadGoldenVectors()) {
    SCOPED_TRACE(vector.name);
    const size_t block_size = static_cast<size_t>(vector.block_size);
    ASSERT_EQ(vector.content.size(), vector.tokens.size() / block_size);
    for (size_t i = 0; i < vector.content.size(); ++i) {
      EXPECT_EQ(ContentHash(absl::MakeConstSpan(vector.tokens).subspan(i * block_size, block_size)), vector.content[i])
          << "block " << i;
    }
  }
}

TEST(FingerprintTest, EveryGoldenPrefixHashIsReproduced) {
  for (const GoldenVector& vector : LoadGoldenVectors()) {
    SCOPED_TRACE(vector.name);
    std::vector<uint64_t> prefixes;
    ASSERT_THAT(FingerprintPrefixes(vector.tokens, vector.block_size, vector.parent, &prefixes), IsOk());
    EXPECT_EQ(prefixes, vector.prefix);
  }
}

TEST(FingerprintTest, GoldenWireBytesAreBigEndian) {
  for (const GoldenVector& vector : LoadGoldenVectors()) {
    SCOPED_TRACE(vector.name);
    for (size_t i = 0; i < vector.prefix.size(); ++i) EXPECT_EQ(HexOf(vector.prefix[i]), vector.prefix_hex[i]);
  }
}

TEST(FingerprintTest, PrefixHashesChainTheContentHashes) {
  for (const GoldenVector& vector : LoadGoldenVectors()) {
    SCOPED_TRACE(vector.name);
    std::optional<uint64_t> parent = vector.parent;
    for (size_t i = 0; i < vector.prefix.size(); ++i) {
      parent = parent.has_value() ? ChainHash(*parent, vector.content[i]) : vector.content[i];
      EXPECT_EQ(*parent, vector.prefix[i]) << "block " << i;
    }
  }
}

TEST(FingerprintTest, ContinuingAPrefixGivesTheHashesOfTheWhole) {
  std::vector<uint32_t> tokens(64);
  for (uint32_t i = 0; i < tokens.size(); ++i) tokens[i] = i * 7;
  std::vector<uint64_t> whole, head, tail;
  ASSERT_THAT(FingerprintPrefixes(tokens, 16, std::nullopt, &whole), IsOk());
  ASSERT_THAT(FingerprintPrefixes(absl::MakeConstSpan(tokens).first(32), 16, std::nullopt, &head), IsOk());
  ASSERT_THAT(FingerprintPrefixes(absl::MakeConstSpan(tokens).subspan(32), 16, head.back(), &tail), IsOk());
  head.insert(head.end(), tail.begin(), tail.end());
  EXPECT_EQ(head, whole);
}

TEST(FingerprintTest, DropsATailShorterThanABlock) {
  std::vector<uint64_t> prefixes = {1, 2, 3};
  ASSERT_THAT(FingerprintPrefixes(std::vector<uint32_t>(15), 16, std::nullopt, &prefixes), IsOk());
  EXPECT_THAT(prefixes, IsEmpty());
  ASSERT_THAT(FingerprintPrefixes(std::vector<uint32_t>(47), 16, std::nullopt, &prefixes), IsOk());
  EXPECT_THAT(prefixes, SizeIs(2));
}

TEST(FingerprintTest, RefusesABlockSizeBelowOne) {
  for (int32_t block_size : {0, -1, std::numeric_limits<int32_t>::min()}) {
    std::vector<uint64_t> prefixes = {1};
    EXPECT_THAT(FingerprintPrefixes(std::vector<uint32_t>(32), block_size, std::nullopt, &prefixes),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(std::to_string(block_size))));
    EXPECT_THAT(prefixes, IsEmpty());
  }
}

TEST(FingerprintTest, AcceptsTheLargestBlockSize) {
  std::vector<uint64_t> prefixes;
  ASSERT_THAT(
      FingerprintPrefixes(std::vector<uint32_t>(32), std::numeric_limits<int32_t>::max(), std::nullopt, &prefixes),
      IsOk());
  EXPECT_THAT(prefixes, IsEmpty());
}

}  // namespace
}  // namespace icache
