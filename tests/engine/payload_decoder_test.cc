#include "icache/engine/payload_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <msgpack.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/testing/simulated_engine.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::Not;
using Json = nlohmann::json;

std::string Unhex(const std::string& hex) { return absl::HexStringToBytes(hex); }
EngineHash HashOf(const Json& hex) { return EngineHash::FromBytes(Unhex(hex.get<std::string>())); }

Json ReadCases() {
  std::ifstream file(ICACHE_TEST_DATA_DIR "/engine-payloads.json");
  return Json::parse(file);
}

std::string PayloadOf(const Json& test) {
  std::string payload = Unhex(test["payload_hex"]);
  if (test.contains("repeat_tail")) {
    for (int i = 0; i < test["repeat_tail"][1].get<int>(); ++i) payload += Unhex(test["repeat_tail"][0]);
  }
  return payload;
}

template <typename T, typename U>
void ExpectOptional(const Json& expected, const std::optional<U>& actual) {
  ASSERT_EQ(actual.has_value(), !expected.is_null());
  if (actual.has_value()) {
    EXPECT_EQ(T(*actual), expected.get<T>());
  }
}

void ExpectHashes(const Json& expected, const std::vector<EngineHash>& actual) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_TRUE(actual[i] == HashOf(expected[i]));
}

BlockKeys KeysOf(const Json& keys) {
  if (keys.is_null()) return {};
  if (keys.size() == 1 && keys[0].is_string()) return {BlockKeys::Kind::kOneText, {}};
  return {BlockKeys::Kind::kOther, {}};
}

void ExpectEvent(const Json& expected, const BlockStored& event) {
  ASSERT_EQ(expected["kind"], "BlockStored");
  ExpectHashes(expected["block_hashes"], event.block_hashes);
  ASSERT_EQ(event.parent.has_value(), !expected["parent_block_hash"].is_null());
  if (event.parent.has_value()) {
    EXPECT_TRUE(*event.parent == HashOf(expected["parent_block_hash"]));
  }
  EXPECT_EQ(event.token_ids, expected["token_ids"].get<std::vector<uint32_t>>());
  EXPECT_EQ(event.block_size, expected["block_size"].get<int32_t>());
  ExpectOptional<int64_t>(expected["lora_id"], event.lora_id);
  ExpectOptional<std::string>(expected["medium"], event.medium);
  ExpectOptional<std::string>(expected["lora_name"], event.lora_name);
  ExpectOptional<int64_t>(expected["group_idx"], event.group_idx);
  ExpectOptional<std::string>(expected["kv_cache_spec_kind"], event.spec_kind);
  const Json& keys = expected["extra_keys"];
  ASSERT_EQ(event.extra_keys.size(), keys.is_null() ? 0 : keys.size());
  for (size_t i = 0; i < event.extra_keys.size(); ++i) {
    EXPECT_EQ(event.extra_keys[i].kind, KeysOf(keys[i]).kind);
    if (event.extra_keys[i].kind == BlockKeys::Kind::kOneText) {
      EXPECT_EQ(event.extra_keys[i].text, keys[i][0]);
    }
  }
}
void ExpectEvent(const Json& expected, const BlockRemoved& event) {
  ASSERT_EQ(expected["kind"], "BlockRemoved");
  ExpectHashes(expected["block_hashes"], event.block_hashes);
  ExpectOptional<std::string>(expected["medium"], event.medium);
  ExpectOptional<int64_t>(expected["group_idx"], event.group_idx);
}
void ExpectEvent(const Json& expected, const AllBlocksCleared&) { EXPECT_EQ(expected["kind"], "AllBlocksCleared"); }
void ExpectEvent(const Json&, const LostRemoval&) { ADD_FAILURE() << "is no event that was read"; }

TEST(PayloadDecoderTest, ReadsEveryKnownPayloadAsItIsMeant) {
  PayloadDecoder decoder;
  for (const Json& test : ReadCases()) {
    SCOPED_TRACE(test["name"].get<std::string>());
    const std::string payload = PayloadOf(test);
    const Json& expected = test["expect"];
    absl::StatusOr<KvBatch> batch = decoder.Decode(payload);
    ASSERT_EQ(batch.ok(), expected["accepted"].get<bool>()) << batch.status();
    if (!batch.ok()) continue;
    EXPECT_EQ(batch->time, absl::UnixEpoch() + absl::Seconds(expected["ts"].get<double>()));
    ExpectOptional<int64_t>(expected["rank"], batch->rank);
    EXPECT_EQ(batch->malformed_events, expected["dropped_events"].get<size_t>());
    std::erase_if(batch->events, [](const KvEvent& event) { return std::holds_alternative<LostRemoval>(event); });
    ASSERT_EQ(batch->events.size(), expected["events"].size());
    for (size_t i = 0; i < batch->events.size(); ++i) {
      std::visit([&](const auto& event) { ExpectEvent(expected["events"][i], event); }, batch->events[i]);
    }
  }
}

// The events of a batch, written in JSON, as one letter each.
std::string KindsOf(const Json& events) {
  const std::vector<uint8_t> payload = Json::to_msgpack({1.5, events});
  PayloadDecoder decoder;
  const auto batch = decoder.Decode({reinterpret_cast<const char*>(payload.data()), payload.size()});
  if (!batch.ok()) return batch.status().ToString();
  std::string kinds;
  for (const KvEvent& event : batch->events) kinds += "SRCL"[event.index()];
  return kinds;
}

TEST(PayloadDecoderTest, WhatMayHaveRemovedBlocksLeavesAMark) {
  EXPECT_EQ(KindsOf(Json::parse(R"([["BlockRemoved", [1]], ["BlockRemoved", [1, null]], ["AllBlocksCleared"]])")),
            "RLC");
  for (const char* event :
       {R"(["BlockRemoved", [1], 7])", R"(["BlockRemoved"])", "[7]", "[]", R"({"type": null})", "5"}) {
    const Json lost = Json::parse(event);
    EXPECT_EQ(KindsOf({Json::parse(R"(["AllBlocksCleared"])"), lost, lost}), "CL") << event;
  }
  EXPECT_EQ(KindsOf(Json::parse(R"([["BlockStored", []], ["SomethingNew", 1]])")), "");
}

TEST(PayloadDecoderTest, TruncatedPayloadsAreRefused) {
  testing::SimulatedEngine engine({});
  PayloadDecoder decoder;
  for (int i = 0; i < 20; ++i) {
    const std::string payload = engine.Publish(1).payload;
    EXPECT_THAT(decoder.Decode(payload), IsOk());
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_THAT(decoder.Decode(payload.substr(0, size)), Not(IsOk()));
    }
  }
}

TEST(PayloadDecoderTest, FlippedBitsDoNoHarm) {
  testing::SimulatedEngine engine({});
  std::mt19937_64 random(3);
  PayloadDecoder decoder;
  for (int i = 0; i < 5000; ++i) {
    std::string payload = engine.Publish(1).payload;
    for (int flips = 0; flips < 3; ++flips) payload[random() % payload.size()] ^= static_cast<char>(1 << random() % 8);
    (void)decoder.Decode(payload);
  }
}

TEST(PayloadDecoderTest, MorePartsThanTheBoundAreRefused) {
  msgpack::sbuffer payload;
  msgpack::packer<msgpack::sbuffer> packer(&payload);
  packer.pack_array(2).pack(1.5).pack_array(kMaxPayloadValues);
  for (size_t i = 0; i < kMaxPayloadValues; ++i) packer.pack_nil();
  PayloadDecoder decoder;
  EXPECT_THAT(decoder.Decode({payload.data(), payload.size()}), StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(PayloadDecoderTest, MoreBytesThanTheBoundAreRefused) {
  PayloadDecoder decoder;
  EXPECT_THAT(decoder.Decode(std::string(kMaxPayloadBytes + 1, '\xC0')),
              StatusIs(absl::StatusCode::kResourceExhausted));
}

TEST(EngineHashTest, ThePatternIsTheNameHoweverItIsWritten) {
  EXPECT_TRUE(EngineHash(UINT64_MAX) == EngineHash(static_cast<uint64_t>(int64_t{-1})));
  EXPECT_TRUE(EngineHash::FromBytes(std::string("\0\0\0\0\0\0\0\7", 8)) == EngineHash(7));
  EXPECT_FALSE(EngineHash::FromBytes(std::string(32, '\0')) == EngineHash(0));
}

}  // namespace
}  // namespace icache
