#include "ctl/message_json.h"

#include <gmock/gmock.h>

#include "inferencecache/ops/v1alpha1/ops.pb.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

namespace wire = ::inferencecache::v1alpha1;

using ::icache::testing::IsOk;
using ::nlohmann::json;

TEST(MessageJsonTest, AMessageReadsBackAsItself) {
  wire::CacheStateUpdate update;
  update.set_replica_id("r0");
  update.set_timestamp_us(1234567890123456);
  update.set_retains_all(true);
  update.mutable_stats()->set_hit_rate(0.1f);
  wire::PrefixEntry* const entry = update.add_prefixes();
  entry->add_block_hashes(std::string("\x00\xff", 2));
  entry->add_block_token_counts(16);
  entry->set_tier(wire::CACHE_TIER_T2);
  update.add_evicted_hashes_u64(0xA1);
  wire::CacheStateUpdate copy;
  ASSERT_THAT(FromJson(json::parse(ToJson(update).dump()), &copy), IsOk());
  EXPECT_EQ(copy.SerializeAsString(), update.SerializeAsString());
}

TEST(MessageJsonTest, HashesAreHexadecimalAndFloatsShort) {
  wire::CacheStateUpdate update;
  update.mutable_stats()->set_hit_rate(0.1f);
  update.add_evicted_hashes("\xa1");
  update.add_evicted_hashes_u64(0xA1);
  const auto document = ToJson(update);
  EXPECT_EQ(document["evicted_hashes"][0], "a1");
  EXPECT_EQ(document["evicted_hashes_u64"][0], "00000000000000a1");
  EXPECT_EQ(document["stats"]["hit_rate"].dump(), "0.1");
}

TEST(MessageJsonTest, WhatIsAbsentIsLeftOutWhereItDiffersFromZero) {
  inferencecache::ops::v1alpha1::Policy policy;
  EXPECT_FALSE(ToJson(policy).contains("max_index_entries"));
  EXPECT_TRUE(ToJson(policy).contains("lookup_timeout_ms"));
  policy.set_max_index_entries(0);
  EXPECT_EQ(ToJson(policy)["max_index_entries"], 0);
}

TEST(MessageJsonTest, ProblemsSayWhereTheyAre) {
  const auto problem = [](const char* text) {
    wire::CacheStateUpdate update;
    return std::string(FromJson(json::parse(text), &update).message());
  };
  EXPECT_EQ(problem("[]"), "must be an object");
  EXPECT_EQ(problem(R"({"colour": 1})"), "colour: unknown field");
  EXPECT_EQ(problem(R"({"replica_id": 1})"), "replica_id: must be a string");
  EXPECT_EQ(problem(R"({"prefixes": {}})"), "prefixes: must be a list");
  EXPECT_EQ(problem(R"({"prefixes": [{}, {"colour": 1}]})"), "prefixes[1].colour: unknown field");
  EXPECT_EQ(problem(R"({"prefixes": [{"token_count": 2147483648}]})"),
            "prefixes[0].token_count: must be from -2147483648 to 2147483647");
  EXPECT_EQ(problem(R"({"prefixes": [{"tier": "HOT"}]})").rfind("prefixes[0].tier: must be one of CACHE_TIER_UNSP", 0),
            0u);
  EXPECT_EQ(problem(R"({"evicted_hashes_u64": ["a1"]})"),
            "evicted_hashes_u64[0]: must be a hash of 16 hexadecimal digits, or its number");
}

}  // namespace
}  // namespace icache
