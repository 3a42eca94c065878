// A CacheEvent off the wire, applied to a small index: it may remove and fence, but never add.
#include <cstddef>
#include <cstdint>

#include "icache/rpc/conversions.h"
#include "tests/fuzz/fuzz_index.h"

// A block lost in the middle leaves its two holders with two spans each instead of one.
constexpr int64_t kMaxCutBytes = 1024;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inferencecache::v1alpha1::CacheEvent message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  icache::testing::FuzzIndex fixture;
  const icache::IndexStats before = fixture.index->Stats();
  fixture.index->ApplyEvent(icache::CacheEventFromWire(message), fixture.now);
  fixture.RequireSound();
  const icache::IndexStats after = fixture.index->Stats();
  icache::testing::Require(after.entries <= before.entries, "an event has added an entry");
  const bool removed = after.entries < before.entries;
  icache::testing::Require(after.memory_bytes <= before.memory_bytes + (removed ? kMaxCutBytes : 0),
                           "an event has grown the index");
  return 0;
}
