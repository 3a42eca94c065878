// A CacheStateUpdate off the wire, applied to a small full index, whose invariants must hold afterwards.
#include <cstddef>
#include <cstdint>

#include "icache/rpc/conversions.h"
#include "tests/fuzz/fuzz_index.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  inferencecache::v1alpha1::CacheStateUpdate message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  icache::testing::FuzzIndex fixture;
  icache::StateUpdateView view;
  const icache::StateUpdate& update = view.Read(message);
  fixture.index->ApplyUpdate(update, fixture.now);
  fixture.RequireSound();
  fixture.index->Sweep(fixture.now + absl::Minutes(31));
  fixture.RequireSound();
  // Nothing can be newer than the update's arrival.
  icache::testing::Require(fixture.index->Stats().entries == 0, "an entry outlives its lifetime");
  return 0;
}
