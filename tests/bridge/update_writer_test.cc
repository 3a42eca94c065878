#include "bridge/update_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/observations.h"

namespace icache {
namespace {

using ::icache::testing::BytesOf;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const ReplicaNames kNames = {"r", "m", "t", "vllm"};
const absl::Time kAt = absl::FromUnixMicros(5);

std::vector<Report> Write(size_t max_blocks, bool clear, const std::function<void(UpdateWriter&)>& tell) {
  UpdateWriter writer(&kNames, kAt, kAt, max_blocks, clear);
  tell(writer);
  return writer.Finish();
}

TEST(UpdateWriterTest, NothingToSayIsNoUpdate) {
  EXPECT_THAT(Write(10, false, [](UpdateWriter&) {}), IsEmpty());
}

TEST(UpdateWriterTest, AClearFencesAndThenClearsWhateverTheClockOfTheOneBefore) {
  const auto reports = Write(10, true, [](UpdateWriter&) {});
  ASSERT_THAT(reports, SizeIs(2));
  for (const Report& report : reports) {
    EXPECT_TRUE(report.update->clear());
    EXPECT_EQ(report.update->replica_id(), "r");
  }
  EXPECT_EQ(reports[0].update->timestamp_us(), 5);
  EXPECT_EQ(reports[1].update->timestamp_us(), 0);  // the daemon's now
}

TEST(UpdateWriterTest, WhatIsToldBehindAClearIsStamped) {
  const std::vector<uint64_t> hashes = {1};
  const auto reports = Write(10, true, [&](UpdateWriter& w) { w.OnHeld({"", true, 0, 16, hashes}); });
  ASSERT_THAT(reports, SizeIs(3));
  EXPECT_FALSE(reports[2].update->clear());
  EXPECT_EQ(reports[2].update->timestamp_us(), 5);
}

TEST(UpdateWriterTest, ChainsFromTheRootArePacked) {
  const std::vector<uint64_t> hashes = {1, 2};
  const auto reports = Write(10, false, [&](UpdateWriter& w) { w.OnHeld({"", true, 0, 16, hashes}); });
  ASSERT_THAT(reports, SizeIs(1));
  const auto& entry = reports[0].update->prefixes(0);
  EXPECT_THAT(entry.block_hashes_u64(), ElementsAre(1, 2));
  EXPECT_EQ(entry.tokens_per_block(), 16);
  EXPECT_THAT(entry.block_hashes(), IsEmpty());
}

TEST(UpdateWriterTest, AContinuationCarriesItsCounts) {
  const std::vector<uint64_t> hashes = {1, 2, 3};
  const auto reports = Write(10, false, [&](UpdateWriter& w) { w.OnHeld({"a", false, 64, 16, hashes}); });
  const auto& entry = reports.at(0).update->prefixes(0);
  EXPECT_THAT(entry.block_hashes(), ElementsAre(BytesOf(1), BytesOf(2), BytesOf(3)));
  EXPECT_THAT(entry.block_token_counts(), ElementsAre(80, 16, 16));
  EXPECT_EQ(entry.adapter_id(), "a");
  EXPECT_EQ(entry.tier(), inferencecache::v1alpha1::CACHE_TIER_T2);
}

TEST(UpdateWriterTest, LongRunsAreCutAndGoOnWhereTheyWere) {
  const std::vector<uint64_t> hashes = {1, 2, 3};
  const auto reports = Write(2, false, [&](UpdateWriter& w) { w.OnHeld({"", true, 0, 16, hashes}); });
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_THAT(reports[0].update->prefixes(0).block_hashes_u64(), ElementsAre(1, 2));
  EXPECT_THAT(reports[1].update->prefixes(0).block_token_counts(), ElementsAre(48));
  EXPECT_EQ(reports[0].blocks, 2);
}

TEST(UpdateWriterTest, EvictionsGoUnderTheirAdapter) {
  const auto reports = Write(10, false, [](UpdateWriter& w) {
    w.OnEvicted("", 1);
    w.OnEvicted("a", 2);
    w.OnEvicted("", 3);
  });
  ASSERT_THAT(reports, SizeIs(2));
  EXPECT_EQ(reports[0].update->adapter_id(), "");
  EXPECT_THAT(reports[0].update->evicted_hashes_u64(), ElementsAre(1, 3));
  EXPECT_EQ(reports[1].update->adapter_id(), "a");
  EXPECT_THAT(reports[1].update->evicted_hashes_u64(), ElementsAre(2));
}

}  // namespace
}  // namespace icache
