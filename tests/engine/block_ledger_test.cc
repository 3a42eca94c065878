#include "icache/engine/block_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <variant>
#include <vector>

#include "icache/fingerprint/fingerprint.h"
#include "tests/engine/mirror_sink.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::HeldContent;
using ::icache::testing::IsOk;
using ::icache::testing::MirrorSink;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

const absl::Time kNow = absl::FromUnixSeconds(1'700'000'000);

class BlockLedgerTest : public ::testing::Test {
 protected:
  BlockLedgerTest() { ledger_.Restart(/*known_from_start=*/true); }

  // Blocks of two tokens, named `hashes`; the tokens are (first token + 0, 1, 2, …).
  BlockStored Blocks(std::vector<uint64_t> hashes, std::optional<uint64_t> parent, uint32_t first_token) const {
    BlockStored event;
    for (const uint64_t hash : hashes) event.block_hashes.push_back(EngineHash(hash));
    if (parent) event.parent = EngineHash(*parent);
    event.token_ids.resize(2 * hashes.size());
    std::iota(event.token_ids.begin(), event.token_ids.end(), first_token);
    event.block_size = 2;
    return event;
  }
  void Store(std::vector<uint64_t> hashes, std::optional<uint64_t> parent = std::nullopt, uint32_t first_token = 1) {
    ledger_.Store(Blocks(std::move(hashes), parent, first_token));
  }
  void Store(BlockStored event, std::string_view medium) {
    event.medium = medium;
    ledger_.Store(event);
  }
  void Remove(uint64_t hash, std::optional<std::string_view> medium = std::nullopt,
              std::optional<int64_t> group = std::nullopt) {
    ledger_.Remove({{EngineHash(hash)}, medium, group}, kNow);
  }

  // What a daemon holds that was told everything so far.
  const testing::HeldContents& Told() {
    ledger_.Drain(&mirror_);
    EXPECT_THAT(ledger_.CheckInvariants(), IsOk());
    return mirror_.held;
  }
  int64_t Dropped(BlockDrop reason) const { return ledger_.drops()[static_cast<size_t>(reason)]; }

  LedgerOptions options_;
  BlockLedger ledger_{&options_};
  MirrorSink mirror_;
};

TEST_F(BlockLedgerTest, ChainsContinueTheirParent) {
  Store({1, 2});
  Store({3}, 2, 5);
  std::vector<uint64_t> hashes;
  ASSERT_THAT(FingerprintPrefixes(std::vector<uint32_t>{1, 2, 3, 4, 5, 6}, 2, std::nullopt, &hashes), IsOk());
  testing::HeldContents expected;
  for (int i = 0; i < 3; ++i) expected[{"", hashes[i]}] = {true, 2 * (i + 1)};
  EXPECT_EQ(Told(), expected);
}

TEST_F(BlockLedgerTest, BlocksOfAnUnknownParentAreDropped) {
  Store({1});
  Store({3, 4}, 99);
  EXPECT_THAT(Told(), SizeIs(1));
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 2);
}

TEST_F(BlockLedgerTest, TheParentOfTheFirstBlocksIsTheRoot) {
  Store({1}, 77);
  Store({2}, 77, 9);
  EXPECT_THAT(Told(), SizeIs(2));
}

TEST_F(BlockLedgerTest, TheParentOfABlockThatWasARootIsTheRoot) {
  Store({1});
  Store({1}, 77);
  Store({2}, 77, 9);
  EXPECT_THAT(Told(), SizeIs(2));
}

TEST_F(BlockLedgerTest, ABlockThatWasRemovedIsNoRoot) {
  Store({1}, std::nullopt, 1);
  Store({2}, std::nullopt, 5);
  Remove(2);
  Store({1}, 2, 1);  // the same page, behind the one that is gone
  Store({3}, 2, 9);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 2);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, NoRootIsLearnedWhenTheStartWasMissed) {
  ledger_.Restart(/*known_from_start=*/false);
  Store({1}, 77);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, ABlockOfBeforeAClearIsNoRoot) {
  Store({1});
  ledger_.Clear();
  Store({2}, 1, 9);
  Store({3});
  Store({3}, 1);
  Store({4}, 1, 20);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, TheRootStaysWhatItIsWhenAllIsCleared) {
  Store({1}, 77);
  ledger_.Clear();
  Store({2}, 77, 9);
  Store({3}, 1, 20);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, AClearBeforeAnyBlockShowsTheRoot) {
  ledger_.Restart(/*known_from_start=*/false);
  ledger_.Clear();
  Store({1}, 77);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, AClearBehindLostEventsShowsNoRoot) {
  ledger_.MarkIncomplete();
  ledger_.Clear();
  Store({1}, 77);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, ARootThatNamesABlockIsNone) {
  Store({1}, 77);
  Store({77}, 1, 9);
  Store({2}, 77, 20);
  EXPECT_THAT(Told(), Contains(Pair(::testing::_, HeldContent{true, 6})));
  Remove(77);
  Store({3}, 77, 30);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
}

TEST_F(BlockLedgerTest, ABlockIsGoneWithItsLastCopy) {
  Store({1});
  Store({1});
  Remove(1);
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(1);
  EXPECT_THAT(Told(), IsEmpty());
  Remove(1);
  Store({1});
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, TheWarmestMediumThatRemainsIsReported) {
  Store({1});
  Store(Blocks({1}, std::nullopt, 1), "CPU");
  EXPECT_THAT(Told(), ElementsAre(Pair(::testing::_, HeldContent{true, 2})));
  Remove(1);
  EXPECT_THAT(Told(), ElementsAre(Pair(::testing::_, HeldContent{false, 2})));
  Remove(1, "DISK");
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(1, "CPU");
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AMediumMayHaveALongName) {
  const std::string medium(200, 'X');
  Store(Blocks({1}, std::nullopt, 1), medium);
  Remove(1, medium);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AnOffloadTierKeepsWhatTheGpuDropsForOneTtl) {
  options_.gpu_removal = GpuRemoval::kOffload;
  Store({1});
  Remove(1);
  EXPECT_THAT(Told(), ElementsAre(Pair(::testing::_, HeldContent{false, 2})));
  Remove(1);
  EXPECT_THAT(Told(), SizeIs(1));
  ledger_.ExpireOffloaded(kNow + options_.ttl - absl::Seconds(1));
  EXPECT_THAT(Told(), SizeIs(1));
  ledger_.ExpireOffloaded(kNow + options_.ttl);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, ComingAndGoingFromTheOffloadTierLeavesNoTrace) {
  options_.gpu_removal = GpuRemoval::kOffload;
  const auto come_and_go = [&](int times) {
    for (int i = 0; i < times; ++i) {
      Store({1});
      ledger_.Remove({{EngineHash(1)}, std::nullopt, std::nullopt}, kNow + absl::Seconds(i));
    }
    EXPECT_THAT(Told(), SizeIs(1));  // and the invariants hold
    return ledger_.memory_bytes();
  };
  EXPECT_EQ(come_and_go(1), come_and_go(1000));
}

TEST_F(BlockLedgerTest, OffloadedBlocksGoInTheOrderOfTheirTimes) {
  options_.gpu_removal = GpuRemoval::kOffload;
  Store({1});
  Store({2}, std::nullopt, 9);
  ledger_.Remove({{EngineHash(1)}, std::nullopt, std::nullopt}, kNow + absl::Seconds(9));
  Remove(2);
  ledger_.ExpireOffloaded(kNow + options_.ttl);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, WhatComesBackFromTheOffloadTierIsWarm) {
  options_.gpu_removal = GpuRemoval::kOffload;
  Store({1});
  Remove(1);
  Store({1});
  ledger_.ExpireOffloaded(kNow + options_.ttl);
  EXPECT_THAT(Told(), ElementsAre(Pair(::testing::_, HeldContent{true, 2})));
}

TEST_F(BlockLedgerTest, AnAdapterWithoutANameIsNeverTheBaseModel) {
  options_.adapters[5] = "five";
  BlockStored event = Blocks({1}, std::nullopt, 1);
  event.lora_id = 4;
  ledger_.Store(event);
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_EQ(Dropped(BlockDrop::kUnknownAdapter), 1);
  event.lora_id = 5;
  ledger_.Store(event);
  EXPECT_EQ(Told().begin()->first.first, "five");
}

TEST_F(BlockLedgerTest, AParentOfAnotherAdapterIsUnknown) {
  Store({1});
  BlockStored event = Blocks({2}, 1, 9);
  event.lora_name = "a";
  ledger_.Store(event);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
}

TEST_F(BlockLedgerTest, WhatABaseEvictionTakesAlongIsToldAgain) {
  Store({1, 2});
  BlockStored adapted = Blocks({11, 12}, std::nullopt, 1);
  adapted.lora_name = "a";
  ledger_.Store(adapted);
  Told();
  Remove(2);
  Remove(12);
  Remove(1);
  MirrorSink changes;
  ledger_.Drain(&changes, BlockLedger::BaseEviction::kAllAdapters);
  EXPECT_THAT(changes.held, ElementsAre(Pair(Pair("a", ::testing::_), HeldContent{true, 2})));
  Remove(11);
  EXPECT_THAT(ledger_.CheckInvariants(), IsOk());
}

TEST_F(BlockLedgerTest, BlocksBehindASaltAreDropped) {
  BlockStored event = Blocks({1, 2, 3}, std::nullopt, 1);
  event.extra_keys = {{}, {BlockKeys::Kind::kOneText, "salt"}, {}};
  ledger_.Store(event);
  EXPECT_THAT(Told(), SizeIs(1));
  EXPECT_EQ(Dropped(BlockDrop::kExtraKeys), 2);
}

TEST_F(BlockLedgerTest, OtherCacheGroupsNeitherAddNorRemove) {
  Store({1});
  BlockStored event = Blocks({1}, std::nullopt, 1);
  event.group_idx = 1;
  event.spec_kind = "sliding_window";
  ledger_.Store(event);
  Remove(1, std::nullopt, 1);
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(1, std::nullopt, 0);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AGroupThatComesAsFullAttentionRemovesItsBlocks) {
  BlockStored event = Blocks({1}, std::nullopt, 1);
  event.group_idx = 1;
  event.spec_kind = "sliding_window";
  ledger_.Store(event);
  event.spec_kind = "full_attention";
  ledger_.Store(event);
  event.spec_kind = "sliding_window";
  ledger_.Store(event);
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(1, std::nullopt, 1);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, TheGroupsOfAnEngineThatMayBeGoneCountForNothing) {
  BlockStored event = Blocks({1}, std::nullopt, 1);
  event.group_idx = 1;
  event.spec_kind = "sliding_window";
  ledger_.Store(event);
  ledger_.MarkSuspect();
  ledger_.ForgetEngine();
  Store({1});
  Remove(1, std::nullopt, 1);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AGroupThatStoredNothingRemovesNothing) {
  BlockStored event = Blocks({1}, std::nullopt, 1);
  event.group_idx = 0;
  ledger_.Store(event);
  Remove(1, std::nullopt, 1);  // of a group whose blocks were lost on the way
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(1, std::nullopt, 0);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AGroupCountsForNothingWhereBlocksNameNone) {
  Store({1});
  Remove(1, std::nullopt, 1);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, AHashOfSeveralPositionsLosesThemAll) {
  Store({1, 2}, std::nullopt, 1);
  Store({2}, std::nullopt, 3);  // the same page as a root
  EXPECT_THAT(Told(), SizeIs(3));
  Store({5}, 2, 9);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  Remove(2);
  EXPECT_THAT(Told(), SizeIs(1));
}

// An engine whose hashes depend on a page's tokens alone: blocks are named by their first token.
TEST_F(BlockLedgerTest, WhatWasDroppedOfAHashMakesItNoParent) {
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);
  Store({3}, 2, 3);
  Store({4}, std::nullopt, 4);
  Store({2}, 4, 2);
  Store({3}, 2, 3);  // behind 1 2 or 4 2, so it is dropped
  Store({5}, 3, 5);  // behind 1 2 3 or what was dropped
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 2);
  EXPECT_THAT(Told(), SizeIs(5));
}

TEST_F(BlockLedgerTest, WhatContinuesASaltIsNoParent) {
  Store({1});
  BlockStored salted = Blocks({2}, std::nullopt, 9);
  salted.extra_keys = {{BlockKeys::Kind::kOneText, "salt"}};
  ledger_.Store(salted);
  Store({1}, 2);
  Store({3}, 1, 5);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 2);
  EXPECT_THAT(Told(), SizeIs(1));
}

TEST_F(BlockLedgerTest, WhatWasDroppedOfAHashIsForgottenWithItsCopies) {
  Store({50}, std::nullopt, 50);
  Store({1}, 99, 1);
  Store({1}, 99, 1);
  Remove(1);
  Store({2}, 1, 9);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 3);
  Remove(1);
  Store({1});
  Store({3}, 1, 9);
  EXPECT_THAT(Told(), SizeIs(3));
}

TEST_F(BlockLedgerTest, ARemovalOfOneOfSeveralPositionsLeavesTheOthersUnknown) {
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);
  Store({4}, std::nullopt, 4);
  Store({2}, 4, 2);
  Remove(2);
  Store({2}, 1, 2);
  Store({3}, 2, 3);  // behind 1 2 or 4 2
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  EXPECT_THAT(Told(), SizeIs(3));
  Remove(2);
  EXPECT_THAT(Told(), SizeIs(2));
  Remove(2);
  Store({2}, 1, 2);
  Store({5}, 2, 5);
  EXPECT_THAT(Told(), SizeIs(4));
}

TEST_F(BlockLedgerTest, BehindALossNoHashOfSeveralPositionsIsAParent) {
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);
  Store({2}, std::nullopt, 2);
  ledger_.MarkSuspect();
  Store({1, 3}, std::nullopt, 1);
  Store({5}, 3, 5);  // among what was lost may be another 3
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  ledger_.Clear();
  Store({1, 3}, std::nullopt, 1);
  Store({5}, 3, 5);
  EXPECT_THAT(Told(), SizeIs(3));
}

TEST_F(BlockLedgerTest, ASecondPositionBehindALossCastsDoubt) {
  ledger_.MarkIncomplete();
  Store({1, 2});
  EXPECT_FALSE(ledger_.TakeDoubt());
  Store({2}, std::nullopt, 3);
  EXPECT_TRUE(ledger_.TakeDoubt());
  EXPECT_FALSE(ledger_.TakeDoubt());
}

TEST_F(BlockLedgerTest, NoDoubtIsCastWhereAllIsKnown) {
  Store({1, 2});
  Store({2}, std::nullopt, 3);
  EXPECT_FALSE(ledger_.TakeDoubt());
}

// Pages of an engine that may hash them alone. 1 2 is one, hashed as SGLang chains them, and 3 4 behind it is the
// other.
constexpr uint64_t kFirstPage = 0x34fb5c825de7ca4a;
constexpr uint64_t kSecondPage = 0xc57b445f90651b9a;

TEST_F(BlockLedgerTest, UnprovenHashesAreNoParentsBehindALoss) {
  options_.hashes_are_chained = false;
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 0);
  ledger_.MarkSuspect();
  ledger_.ForgetSuspects(ledger_.epoch());
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);  // and 2 may stand for what was missed as well
  Store({3}, 2, 3);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 2);
  EXPECT_THAT(Told(), SizeIs(1));
  EXPECT_FALSE(ledger_.TakeDoubt());
  ledger_.Clear();
  Store({1}, std::nullopt, 1);
  Store({2}, 1, 2);
  EXPECT_THAT(Told(), SizeIs(2));
}

TEST_F(BlockLedgerTest, ProvenHashesAreParentsBehindALoss) {
  options_.hashes_are_chained = false;
  Store({kFirstPage, kSecondPage});
  ledger_.MarkSuspect();
  Store({kFirstPage, kSecondPage});
  Store({5}, kSecondPage, 5);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 0);
  EXPECT_THAT(Told(), SizeIs(3));
}

TEST_F(BlockLedgerTest, TheProofMayComeBehindTheLoss) {
  options_.hashes_are_chained = false;
  ledger_.Restart(/*known_from_start=*/false);
  Store({1}, std::nullopt, 21);
  Store({2}, 1, 23);
  Store({kFirstPage});
  Store({kSecondPage}, kFirstPage, 3);
  Store({3}, 1, 25);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  EXPECT_THAT(Told(), SizeIs(4));
}

TEST_F(BlockLedgerTest, ANewEngineHasToProveItsHashesAnew) {
  options_.hashes_are_chained = false;
  Store({kFirstPage, kSecondPage});
  ledger_.Restart(/*known_from_start=*/false);
  Store({1});
  Store({2}, 1, 3);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
}

TEST_F(BlockLedgerTest, AnEngineThatMayBeAnotherHasToProveItsHashesAnew) {
  options_.hashes_are_chained = false;
  Store({kFirstPage, kSecondPage});
  ledger_.MarkSuspect();
  ledger_.ForgetEngine();
  Store({1});
  Store({2}, 1, 3);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
}

TEST_F(BlockLedgerTest, ThatHashesStandForSeveralBlocksOutlivesTheEngine) {
  Store({1, 2});
  Store({2}, std::nullopt, 3);
  ledger_.Restart(/*known_from_start=*/false);
  Store({1});
  Store({2}, 1, 3);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  ledger_.Restart(/*known_from_start=*/true);
  Store({1});
  Store({2}, 1, 3);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
}

TEST_F(BlockLedgerTest, WhatIsKnownOfDroppedBlocksIsBounded) {
  options_.max_blocks = 10;
  ledger_.Restart(/*known_from_start=*/false);
  for (uint64_t hash = 100; hash < 100'000; ++hash) Store({hash}, 99);
  EXPECT_LT(ledger_.memory_bytes(), 4096);
  EXPECT_THAT(Told(), IsEmpty());
  // What is not known any more counts where hashes stand for several blocks.
  Store({1, 2});
  Store({3}, 2, 9);
  EXPECT_THAT(Told(), SizeIs(3));
  Store({2}, std::nullopt, 3);
  Store({4}, 3, 20);
  EXPECT_THAT(Told(), SizeIs(4));
}

TEST_F(BlockLedgerTest, WhatWasDroppedIsForgottenWithTheSuspects) {
  Store({50}, std::nullopt, 50);
  Store({1}, 99);
  ledger_.MarkSuspect();
  Store({1});
  Store({2}, 1, 9);
  EXPECT_THAT(Told(), SizeIs(1));
  ledger_.ForgetSuspects(ledger_.epoch());
  Store({3}, 1, 9);
  EXPECT_THAT(Told(), SizeIs(2));
}

// An engine's radix tree of pages of one token each, whose hashes are made of that token alone.
class PageHashEngine {
 public:
  explicit PageHashEngine(uint64_t seed) : random_(seed) {}

  // A page is stored behind another, or one without pages behind it is removed.
  KvEvent Next() { return pages_.size() < 3 || Pick(100) < 55 ? KvEvent(Store()) : KvEvent(Remove()); }
  // The content of the pages that may be claimed.
  std::set<uint64_t> Held() const {
    std::set<uint64_t> held;
    for (const auto& [tokens, salted] : pages_) {
      std::vector<uint64_t> hashes;
      EXPECT_THAT(FingerprintPrefixes(tokens, 1, std::nullopt, &hashes), IsOk());
      if (!salted) held.insert(hashes.back());
    }
    return held;
  }

 private:
  using Path = std::vector<uint32_t>;

  size_t Pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }

  BlockStored Store() {
    Path path;
    bool salted = Pick(10) == 0;
    if (!pages_.empty() && Pick(4) > 0) std::tie(path, salted) = *std::next(pages_.begin(), Pick(pages_.size()));
    const bool is_root = path.empty();
    BlockStored event;
    if (!is_root) event.parent = EngineHash(path.back());
    path.push_back(static_cast<uint32_t>(1 + Pick(12)));
    event.block_hashes = {EngineHash(path.back())};
    event.token_ids = {path.back()};
    event.block_size = 1;
    if (salted && is_root) event.extra_keys = {{BlockKeys::Kind::kOneText, "salt"}};
    // What is there is not announced again. A salted tree stands apart, though its hashes do not.
    if (!pages_.try_emplace(path, salted).second) return Store();
    return event;
  }
  BlockRemoved Remove() {
    while (true) {
      const auto page = std::next(pages_.begin(), Pick(pages_.size()));
      const auto after = std::next(page);
      const Path& path = page->first;
      if (after != pages_.end() && after->first.size() > path.size() &&
          std::equal(path.begin(), path.end(), after->first.begin())) {
        continue;
      }
      const BlockRemoved event{{EngineHash(path.back())}, std::nullopt, std::nullopt};
      pages_.erase(page);
      return event;
    }
  }

  std::mt19937_64 random_;
  std::map<Path, bool> pages_;  // whether it is salted
};

class PageHashTest : public ::testing::TestWithParam<uint64_t> {
 protected:
  PageHashTest() { ledger_.Restart(/*known_from_start=*/true); }

  void Apply(const KvEvent& event) {
    if (const auto* stored = std::get_if<BlockStored>(&event)) ledger_.Store(*stored);
    if (const auto* removed = std::get_if<BlockRemoved>(&event)) ledger_.Remove(*removed, kNow);
  }
  void ExpectNothingWrongIsClaimed() {
    ledger_.Drain(&mirror_);
    ASSERT_THAT(ledger_.CheckInvariants(), IsOk());
    const std::set<uint64_t> held = engine_.Held();
    for (const auto& [key, content] : mirror_.held) ASSERT_THAT(held, Contains(key.second));
  }

  LedgerOptions options_;
  BlockLedger ledger_{&options_};
  MirrorSink mirror_;
  PageHashEngine engine_{GetParam()};
};

TEST_P(PageHashTest, NothingWrongIsEverClaimed) {
  size_t claims = 0;
  for (int i = 0; i < 2000; ++i) {
    Apply(engine_.Next());
    ExpectNothingWrongIsClaimed();
    claims += mirror_.held.size();
  }
  EXPECT_GT(claims, 0);
}

TEST_P(PageHashTest, BehindALossNothingWrongOutlivesTheSuspects) {
  for (int i = 0; i < 300; ++i) Apply(engine_.Next());
  for (int round = 0; round < 50; ++round) {
    for (int i = 0; i < 3; ++i) engine_.Next();
    ledger_.MarkSuspect();
    for (int i = 0; i < 30; ++i) Apply(engine_.Next());
    ledger_.ForgetSuspects(ledger_.epoch());
    ExpectNothingWrongIsClaimed();
  }
}

TEST_P(PageHashTest, BehindALossNothingWrongIsClaimedThoughNoHashHasShownItself) {
  options_.hashes_are_chained = false;
  for (int round = 0; round < 200; ++round) {
    ledger_.Restart(/*known_from_start=*/false);  // amid the engine's life
    mirror_.held.clear();
    for (int i = 0; i < 20; ++i) {
      Apply(engine_.Next());
      ExpectNothingWrongIsClaimed();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, PageHashTest, ::testing::Range<uint64_t>(1, 6));

TEST_F(BlockLedgerTest, AContentOfSeveralHashesLastsAsLongAsOneOfThem) {
  Store({1});
  Store({2});
  Remove(1);
  EXPECT_THAT(Told(), SizeIs(1));
  Remove(2);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, BlocksOfAnotherSizeThanConfiguredAreDropped) {
  options_.block_size = 16;
  Store({1});
  EXPECT_EQ(Dropped(BlockDrop::kBlockSize), 1);
}

TEST_F(BlockLedgerTest, AFullLedgerDropsWhatIsNew) {
  options_.max_blocks = 2;
  Store({1, 2, 3});
  EXPECT_THAT(Told(), SizeIs(2));
  EXPECT_EQ(Dropped(BlockDrop::kLedgerFull), 1);
}

TEST_F(BlockLedgerTest, WhatIsGoneMakesRoomBeforeItIsTold) {
  options_.max_blocks = 2;
  Store({1, 2});
  Remove(2);
  Remove(1);
  Store({3, 4}, std::nullopt, 9);
  EXPECT_THAT(Told(), SizeIs(2));
  EXPECT_EQ(Dropped(BlockDrop::kLedgerFull), 0);
}

TEST_F(BlockLedgerTest, WhatIsGoneAndNotToldIsBounded) {
  options_.max_blocks = 2;
  for (uint32_t i = 1; i < 1000; ++i) {
    Store({i}, std::nullopt, 3 * i);
    Remove(i);
  }
  EXPECT_LE(ledger_.changed_blocks(), 4);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, PositionsOfOneHashAreBounded) {
  for (uint32_t i = 0; i < 1100; ++i) Store({1}, std::nullopt, 3 * i);
  EXPECT_THAT(Told(), SizeIs(1024));
  EXPECT_EQ(Dropped(BlockDrop::kLedgerFull), 1100 - 1024);
  Remove(1);
  EXPECT_THAT(Told(), IsEmpty());
}

TEST_F(BlockLedgerTest, HashesOfOneContentAreBounded) {
  options_.max_blocks = 100;
  for (uint64_t hash = 0; hash < 300; ++hash) Store({hash});
  EXPECT_THAT(Told(), SizeIs(1));
  EXPECT_EQ(Dropped(BlockDrop::kLedgerFull), 100);
}

TEST_F(BlockLedgerTest, SuspectsAreNotReportedUntilStoredAgain) {
  Store({1, 2});
  ledger_.MarkSuspect();
  MirrorSink all;
  ledger_.ReportAll(&all);
  EXPECT_THAT(all.held, IsEmpty());
  EXPECT_EQ(ledger_.suspect_blocks(), 2);
  Store({1});
  EXPECT_EQ(ledger_.suspect_blocks(), 1);
  ledger_.ReportAll(&all);
  EXPECT_THAT(all.held, SizeIs(1));
  EXPECT_THAT(ledger_.CheckInvariants(), IsOk());
}

TEST_F(BlockLedgerTest, ARemovedSuspectIsGoneWhateverItsCopies) {
  Store({1});
  Store({1});
  EXPECT_THAT(Told(), SizeIs(1));
  ledger_.MarkSuspect();
  Remove(1);
  EXPECT_THAT(Told(), IsEmpty());
  EXPECT_EQ(ledger_.held_blocks(), 0);
}

TEST_F(BlockLedgerTest, ForgottenSuspectsAreGone) {
  Store({1, 2});
  ledger_.MarkSuspect();
  Store({3}, 2, 5);
  ledger_.ForgetSuspects(ledger_.epoch());
  EXPECT_EQ(ledger_.held_blocks(), 1);
  EXPECT_EQ(ledger_.suspect_blocks(), 0);
  MirrorSink all;
  ledger_.ReportAll(&all);
  EXPECT_THAT(all.held, SizeIs(1));
  EXPECT_THAT(ledger_.CheckInvariants(), IsOk());
}

TEST_F(BlockLedgerTest, AChainIsReportedInOneRun) {
  Store({1, 2, 3});
  Store({4, 5}, 3, 7);
  EXPECT_THAT(Told(), SizeIs(5));
  EXPECT_EQ(mirror_.runs, 1);
  Store({6}, 2, 99);
  MirrorSink all;
  ledger_.ReportAll(&all);
  EXPECT_EQ(all.runs, 2);
  EXPECT_THAT(all.held, SizeIs(6));
}

}  // namespace
}  // namespace icache
