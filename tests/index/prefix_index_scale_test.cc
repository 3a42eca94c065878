// What only shows in numbers: many replicas on one prefix, slots that are used again, memory that is bounded and given
// back.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "icache/index/prefix_index.h"
#include "icache/index/sharded_index.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/fake_retention.h"
#include "tests/testing/observations.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

constexpr ScopeKey kScope = {"t", "m", "vllm"};

class PrefixIndexScaleTest : public ::testing::Test {
 protected:
  PrefixIndex& index() {
    if (index_ == nullptr) index_ = CreateShardedIndex(options_, &retention_).value();
    return *index_;
  }

  static std::string Name(size_t replica) { return "replica-" + std::to_string(replica); }

  void Store(size_t replica, const std::vector<uint64_t>& hashes) {
    clock_.Advance(absl::Microseconds(1));
    Apply(index(), {.replica_id = Name(replica), .prefixes = {Packed(hashes, 16)}}, clock_.Now());
  }
  void Evict(size_t replica, const std::vector<uint64_t>& hashes) {
    Apply(index(), {.replica_id = Name(replica), .evicted_hashes_u64 = hashes}, clock_.Now());
  }
  void Clear(size_t replica) {
    Apply(index(),
          {.type = CacheEventType::kAllCleared, .replica_id = Name(replica), .model_id = "m", .tenant_id = "t"},
          clock_.Now());
  }
  std::vector<uint64_t> Chain(size_t blocks) {
    std::vector<uint64_t> chain(blocks);
    for (uint64_t& hash : chain) hash = random_();
    return chain;
  }
  // Matched blocks by replica.
  std::vector<uint32_t> Depths(const std::vector<uint64_t>& hashes, size_t replicas) {
    std::vector<uint32_t> depths(replicas, 0);
    index().Read(kScope, [&](const ScopeView& view) {
      std::vector<ReplicaMatch> matches;
      view.MatchChain("", icache::Chain(BlockHashSpan(absl::MakeConstSpan(hashes)), 16), absl::InfinitePast(),
                      &matches);
      for (const ReplicaMatch& match : matches) {
        depths[std::stoul(std::string(match.replica_id.substr(8)))] = match.matched_blocks;
      }
    });
    return depths;
  }

  IndexOptions options_ = {.max_entries = 0};
  FakeRetention retention_;
  FakeClock clock_;
  std::mt19937_64 random_{1};
  std::unique_ptr<PrefixIndex> index_;
};

TEST_F(PrefixIndexScaleTest, FiveThousandReplicasHoldOnePrefixEachInItsOwnWay) {
  constexpr size_t kReplicas = 5000;
  const std::vector<uint64_t> chain = Chain(300);
  std::vector<uint32_t> expected(kReplicas);
  for (size_t r = 0; r < kReplicas; ++r) {
    expected[r] = static_cast<uint32_t>(1 + random_() % chain.size());
    Store(r, {chain.begin(), chain.begin() + expected[r]});
  }
  EXPECT_EQ(Depths(chain, kReplicas), expected);
  for (size_t r = 0; r < kReplicas; r += 2) {
    const auto lost = static_cast<uint32_t>(random_() % expected[r]);
    Evict(r, {chain[lost]});
    expected[r] = lost;
  }
  EXPECT_EQ(Depths(chain, kReplicas), expected);
  EXPECT_THAT(index().CheckInvariants(), IsOk());
  for (size_t r = 0; r < kReplicas; ++r) Clear(r);
  EXPECT_EQ(index().Stats().entries, 0);
  EXPECT_EQ(index().Stats().memory_bytes, 0);
}

TEST_F(PrefixIndexScaleTest, ALongScanEndsWhenItIsGivenUp) {
  // A run for each block, so that the scan has to look at each.
  const std::vector<uint64_t> hashes = Chain(1000);
  for (uint64_t hash : hashes) {
    for (size_t replica = 0; replica < 20; ++replica) Store(replica, {hash});
  }
  const auto scan = [&](bool gives_up, size_t* asked) {
    std::vector<ReplicaMatch> matches;
    index().Read(kScope, [&](const ScopeView& view) {
      const auto give_up = [&] {
        ++*asked;
        return gives_up;
      };
      view.MatchChain("", icache::Chain(BlockHashSpan(absl::MakeConstSpan(hashes)), 16), absl::InfinitePast(), give_up,
                      &matches);
    });
    return matches.at(0).matched_blocks;
  };
  size_t asked = 0;
  EXPECT_EQ(scan(/*gives_up=*/false, &asked), 1000u);
  EXPECT_GT(asked, 1u);
  asked = 0;
  EXPECT_LT(scan(/*gives_up=*/true, &asked), 1000u);
  EXPECT_EQ(asked, 1u);
}

TEST_F(PrefixIndexScaleTest, ReplicasThatComeAndGoLeaveNothingBehind) {
  const std::vector<uint64_t> shared = Chain(40);
  Store(0, shared);
  const int64_t alone = index().Stats().memory_bytes;
  for (size_t round = 0; round < 200; ++round) {
    for (size_t r = 1; r <= 20; ++r) Store(r, shared);
    ASSERT_EQ(Depths(shared, 21), std::vector<uint32_t>(21, 40));
    for (size_t r = 1; r <= 20; ++r) Clear(r);
    ASSERT_EQ(index().Stats().entries, 40);
  }
  EXPECT_THAT(index().CheckInvariants(), IsOk());
  EXPECT_EQ(index().Stats().memory_bytes, alone);
}

TEST_F(PrefixIndexScaleTest, MemoryStaysWithinItsBound) {
  options_.max_memory_bytes = 4 << 20;
  for (int i = 0; i < 6000; ++i) {
    Store(random_() % 8, Chain(1 + random_() % 100));
    ASSERT_LE(index().Stats().memory_bytes, options_.max_memory_bytes);
  }
  const IndexStats stats = index().Stats();
  EXPECT_GT(stats.memory_bytes, options_.max_memory_bytes * 95 / 100);
  EXPECT_GT(stats.evicted_for_memory[0], 0);
  EXPECT_EQ(stats.evicted_for_cap[0], 0);
  EXPECT_THAT(index().CheckInvariants(), IsOk());
}

TEST_F(PrefixIndexScaleTest, AFullIndexKeepsTheNewestWhole) {
  options_.max_entries = 50'000;
  std::vector<std::vector<uint64_t>> chains;
  for (int i = 0; i < 3000; ++i) {
    chains.push_back(Chain(64));
    Store(i % 4, chains.back());
    ASSERT_LE(index().Stats().entries, options_.max_entries);
  }
  const size_t kept = 50'000 / 64;
  for (size_t i = 0; i < chains.size(); ++i) {
    const std::vector<uint32_t> depths = Depths(chains[i], 4);
    const uint32_t depth = std::accumulate(depths.begin(), depths.end(), 0u);
    if (i >= chains.size() - kept) {
      ASSERT_EQ(depth, 64u) << i;
    } else if (i < chains.size() - kept - 1) {
      ASSERT_EQ(depth, 0u) << i;
    }
  }
}

}  // namespace
}  // namespace icache::testing
