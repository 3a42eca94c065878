#include "icache/engine/block_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
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

TEST_F(BlockLedgerTest, AHashOfSeveralPositionsLosesThemAll) {
  Store({1, 2}, std::nullopt, 1);
  Store({2}, std::nullopt, 3);  // the same page as a root
  EXPECT_THAT(Told(), SizeIs(3));
  Store({5}, 2, 9);
  EXPECT_EQ(Dropped(BlockDrop::kUnknownParent), 1);
  Remove(2);
  EXPECT_THAT(Told(), SizeIs(1));
}

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
