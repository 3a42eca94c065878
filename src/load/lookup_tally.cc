#include "load/lookup_tally.h"

#include <algorithm>

namespace icache {

void LookupTally::Merge(const LookupTally& other) {
  latency_ns.Merge(other.latency_ns);
  server_us.Merge(other.server_us);
  for (const auto& [reason, count] : other.reason_codes) reason_codes[reason] += count;
  for (const auto& [error, count] : other.errors) errors[error] += count;
  last_done_ns = std::max(last_done_ns, other.last_done_ns);
}

}  // namespace icache
