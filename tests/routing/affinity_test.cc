#include "routing/affinity.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/testing/fake_index.h"

namespace icache {
namespace {

using std::string_view_literals::operator""sv;
using ::icache::testing::FakeIndex;

LookupKey ExactKey(std::string_view hash) {
  return {.kind = KeyKind::kExact, .hash = BlockHash(hash), .chain = {}, .tokens = 0};
}

LookupKey ChainKey(absl::Span<const std::string_view> hashes, absl::Span<const int32_t> tokens) {
  return {.kind = KeyKind::kChain, .hash = {}, .chain = Chain(BlockHashSpan(hashes), tokens), .tokens = 0};
}

TEST(SeedHasherTest, TakesTheFirstEightBytesBigEndian) {
  // The published SHA-256 of "abc" begins ba7816bf 8f01cfea.
  SeedHasher hasher;
  EXPECT_EQ(hasher.Hash(ExactKey("abc")), 0xba7816bf8f01cfeau);
}

TEST(SeedHasherTest, AKeyWithoutBytesHasNoSeed) {
  SeedHasher hasher;
  EXPECT_EQ(hasher.Hash({}), std::nullopt);
}

TEST(SeedHasherTest, AChainPutsALengthBeforeEachHash) {
  // contract/lookup.md step 9: "for each hash its length as 4 bytes big-endian then the hash".
  SeedHasher hasher;
  EXPECT_EQ(hasher.Hash(ChainKey({"abc", "de"}, {1, 1})), hasher.Hash(ExactKey("\0\0\0\3abc\0\0\0\2de"sv)));
}

TEST(SeedHasherTest, ChainsOfTheSameBytesCutDifferentlyDiffer) {
  SeedHasher hasher;
  EXPECT_NE(hasher.Hash(ChainKey({"abc", "de"}, {1, 1})), hasher.Hash(ChainKey({"ab", "cde"}, {1, 1})));
}

TEST(SeedHasherTest, AChainOfOneBlockIsNotItsHash) {
  SeedHasher hasher;
  EXPECT_NE(hasher.Hash(ChainKey({"abc"}, {1})), hasher.Hash(ExactKey("abc")));
}

TEST(SeedHasherTest, CountsAreNotPartOfTheSeed) {
  SeedHasher hasher;
  EXPECT_EQ(hasher.Hash(ChainKey({"abc"}, {1})), hasher.Hash(ChainKey({"abc"}, {64})));
}

TEST(SeedHasherTest, PackedAndSpelledChainsHaveOneSeed) {
  SeedHasher hasher;
  const std::vector<uint64_t> packed = {0x3132333435363738u, 1};
  const LookupKey packed_key{
      .kind = KeyKind::kChain, .hash = {}, .chain = Chain(BlockHashSpan(packed), 16), .tokens = 0};
  EXPECT_EQ(hasher.Hash(packed_key), hasher.Hash(ChainKey({"12345678", "\0\0\0\0\0\0\0\1"sv}, {16, 16})));
  EXPECT_EQ(hasher.Hash(packed_key), hasher.Hash(ExactKey("\0\0\0\x08"
                                                          "12345678"
                                                          "\0\0\0\x08\0\0\0\0\0\0\0\1"sv)));
}

TEST(SeedHasherTest, HashesSeedsOfManyKilobytes) {
  // SHA-256 of 100 blocks, block i being 64 bytes of value i, each after its length; from an independent program.
  std::vector<std::string> blocks;
  for (int i = 0; i < 100; ++i) blocks.emplace_back(64, static_cast<char>(i));
  const std::vector<std::string_view> hashes(blocks.begin(), blocks.end());
  const std::vector<int32_t> tokens(100, 1);
  SeedHasher hasher;
  EXPECT_EQ(hasher.Hash(ChainKey(hashes, tokens)), 0x9c4f6b6b85ab44afu);
}

class PickReplicaTest : public ::testing::Test {
 protected:
  std::string Pick(uint64_t seed_hash, const std::vector<std::string_view>& candidates = {}) {
    CandidateFilter filter;
    filter.Set(candidates);
    std::vector<std::string_view> scratch;
    return std::string(PickReplica(index_.view(), filter, seed_hash, &scratch));
  }

  FakeIndex index_;
};

TEST_F(PickReplicaTest, CountsThroughTheSortedReplicas) {
  index_.replicas = {"r0", "r1", "r2"};
  EXPECT_EQ(Pick(0), "r0");
  EXPECT_EQ(Pick(4), "r1");
  EXPECT_EQ(Pick(~uint64_t{0} - 1), "r2");  // 2^64 − 2 is 2 modulo 3
}

TEST_F(PickReplicaTest, NobodyIsPresentNobodyIsPicked) { EXPECT_EQ(Pick(7), ""); }

TEST_F(PickReplicaTest, CandidatesNarrowTheCircle) {
  // Step 9: "With candidates the pick is among those of them present in the scope".
  index_.replicas = {"r0", "r1", "r2"};
  EXPECT_EQ(Pick(0, {"r2", "gone", "r1", "r2"}), "r1");
  EXPECT_EQ(Pick(1, {"r2", "gone", "r1", "r2"}), "r2");
  EXPECT_EQ(Pick(2, {"r2", "gone", "r1", "r2"}), "r1");
}

TEST_F(PickReplicaTest, AbsentCandidatesAreNotPicked) {
  index_.replicas = {"r0"};
  EXPECT_EQ(Pick(0, {"gone"}), "");
}

}  // namespace
}  // namespace icache
