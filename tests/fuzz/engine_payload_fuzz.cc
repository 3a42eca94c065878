// A payload of an engine's event socket, decoded and applied to a ledger: whatever its bytes, the ledger stays sound.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "icache/engine/engine_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view payload(reinterpret_cast<const char*>(data), size);
  icache::StreamOptions options;
  options.ledger.gpu_removal = size % 2 == 0 ? icache::GpuRemoval::kEvict : icache::GpuRemoval::kOffload;
  options.ledger.hashes_are_chained = size % 3 != 0;
  icache::EngineStream stream(options, [](uint64_t) {});
  const absl::Time start = absl::FromUnixSeconds(1'700'000'000);
  const absl::Time later = start + absl::Hours(2);
  // Twice, so that copies and parents that are known come up; and across a loss.
  for (const uint64_t sequence : {0, 1, 3}) stream.OnLive(sequence, payload, {start, start});
  stream.OnTick({later, later});
  for (const auto& [rank, replica] : stream.replicas()) {
    if (!replica->ledger.CheckInvariants().ok()) abort();
  }
  return 0;
}
