#include "icache/index/observation.h"

namespace icache {

Tier TierFromWire(int32_t value) {
  switch (value) {
    case 0:
    case 1:
      return Tier::kT1;
    case 2:
      return Tier::kT2;
    case 3:
      return Tier::kT3;
    default:
      return Tier::kUnknown;
  }
}

std::string_view DropReasonName(DropReason reason) {
  switch (reason) {
    case DropReason::kMalformedUpdate:
      return "malformed_update";
    case DropReason::kMalformedEntry:
      return "malformed_entry";
    case DropReason::kMalformedEviction:
      return "malformed_eviction";
    case DropReason::kMalformedEvent:
      return "malformed_event";
    case DropReason::kMissingScheme:
      return "missing_scheme";
    case DropReason::kFenced:
      return "fenced";
    case DropReason::kStaleTimestamp:
      return "stale_timestamp";
    case DropReason::kLeaseRefused:
      return "lease_refused";
    case DropReason::kReplicaLimit:
      return "replica_limit";
  }
  return "unknown";
}

}  // namespace icache
