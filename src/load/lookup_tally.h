// LookupTally: what became of a bench's measured lookups. Thread-compatible: one per thread, then Merge().
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "load/latency_histogram.h"

namespace icache {

struct LookupTally {
  LatencyHistogram latency_ns;  // of answered and of failed calls, and of those that could not be sent any more
  LatencyHistogram server_us;   // lookup_latency_us of the answered ones
  std::map<std::string, int64_t> reason_codes;  // answered calls
  std::map<std::string, int64_t> errors;        // failed calls, by gRPC status; "UNSENT" for those never sent
  int64_t last_done_ns = 0;                     // when the last of them came back

  int64_t Answered() const { return static_cast<int64_t>(server_us.count()); }
  void Merge(const LookupTally& other);
};

}  // namespace icache
