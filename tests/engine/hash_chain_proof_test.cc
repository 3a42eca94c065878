#include "icache/engine/hash_chain_proof.h"

#include <gtest/gtest.h>

#include <utility>

namespace icache {
namespace {

// Hashes of two pages of two tokens, as SGLang chains them: 1 2, and 3 4 behind it. The third is of 3 4 alone.
constexpr uint64_t kFirst = 0x34fb5c825de7ca4a;
constexpr uint64_t kSecond = 0xc57b445f90651b9a;
constexpr uint64_t kSecondAlone = 0x8073c94ef47ecc86;

BlockStored Pages(std::vector<uint64_t> hashes, std::optional<uint64_t> parent, std::vector<uint32_t> tokens) {
  BlockStored event;
  for (const uint64_t hash : hashes) event.block_hashes.push_back(EngineHash(hash));
  if (parent) event.parent = EngineHash(*parent);
  event.token_ids = std::move(tokens);
  event.block_size = 2;
  return event;
}

TEST(HashChainProofTest, TwoPagesOfOneEventProveIt) {
  HashChainProof proof;
  proof.Look(Pages({kFirst, kSecond}, std::nullopt, {1, 2, 3, 4}));
  EXPECT_TRUE(proof.found());
}

TEST(HashChainProofTest, AnEventBehindAnotherProvesIt) {
  HashChainProof proof;
  proof.Look(Pages({kFirst}, std::nullopt, {1, 2}));
  EXPECT_FALSE(proof.found());  // a page alone could be hashed so as well
  proof.Look(Pages({9}, 8, {7, 7}));
  proof.Look(Pages({kSecond}, kFirst, {3, 4}));
  EXPECT_TRUE(proof.found());
}

TEST(HashChainProofTest, HashesOfPagesAloneProveNothing) {
  HashChainProof proof;
  proof.Look(Pages({kFirst, kSecondAlone}, std::nullopt, {1, 2, 3, 4}));
  proof.Look(Pages({kSecondAlone}, kFirst, {3, 4}));
  EXPECT_FALSE(proof.found());
}

TEST(HashChainProofTest, AnotherEngineHasToProveItAnew) {
  HashChainProof proof;
  proof.Look(Pages({kFirst, kSecond}, std::nullopt, {1, 2, 3, 4}));
  proof.Forget();
  EXPECT_FALSE(proof.found());
  proof.Look(Pages({kSecond}, kFirst, {3, 4}));
  EXPECT_FALSE(proof.found());
}

}  // namespace
}  // namespace icache
