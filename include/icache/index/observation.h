// What engines tell the index, as plain values.
//
// All string views, spans and hashes point into the caller's message and need to live only for the call.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"

namespace icache {

// Longest tenant, model, scheme, adapter or replica name that an observation may carry.
inline constexpr size_t kMaxNameBytes = 512;

// Where a replica keeps a block, warmest first. Larger is colder. Source: contract/wire.md CacheTier.
enum class Tier : uint8_t {
  kT1 = 1,       // the engine's own KV cache; also what a report without a tier means
  kT2 = 2,       // external offload
  kT3 = 3,       // remote
  kUnknown = 4,  // a tier that this server does not know: colder than all others, told to clients as UNSPECIFIED
};

// The tier of a wire value: 0 is T1, 1 to 3 themselves, anything else kUnknown.
Tier TierFromWire(int32_t value);

// What one replica last said of itself, per (tenant, model).
struct ReplicaStats {
  int64_t cache_memory_bytes = 0;
  float hit_rate = 0;  // of the replica's prefix cache, usually 0..1; never NaN or infinite once stored
  float pressure = 0;  // of the replica's KV memory, usually 0..1; never NaN or infinite once stored
  std::string client_version;
  int64_t t2_hit_tokens = 0;
  int64_t t2_query_tokens = 0;
  absl::Time last_seen;  // set by a stats report and by REPLICA_UPDATED; ages the row
  absl::Time reported;   // set by a stats report only; ages pressure and hit_rate
};

// One PrefixEntry of an update, unchecked.
struct PrefixReport {
  ChainFields chain;
  std::string_view prefix_hash;  // "" = none
  int32_t token_count = 0;       // of prefix_hash
  int32_t tier = 0;              // wire value
  std::string_view adapter_id;   // "" = the update's adapter
};

// The stats of an update, unchecked; the update's replica is their key.
struct StatsReport {
  int64_t cache_memory_bytes = 0;
  float hit_rate = 0;
  float pressure = 0;
  std::string_view client_version;
  int64_t t2_hit_tokens = 0;
  int64_t t2_query_tokens = 0;
};

// One CacheStateUpdate, unchecked. Applied in this order: clear, evictions, prefixes, lease, stats.
struct StateUpdate {
  std::string_view replica_id;
  std::string_view model_id;
  std::string_view tenant_id;
  std::string_view hash_scheme;
  std::string_view adapter_id;                        // "" = the base model
  std::optional<absl::Time> stamped_at;               // nullopt = unstamped, which means now
  bool clear = false;                                 // extension 102
  absl::Span<const std::string_view> evicted_hashes;  // extension 103
  absl::Span<const uint64_t> evicted_hashes_u64;      // extension 104
  absl::Span<const PrefixReport> prefixes;
  bool retains_all = false;  // extension 101: the lease
  std::optional<StatsReport> stats;
};

enum class CacheEventType {
  kUnspecified,  // also any type that this server does not know
  kPrefixAdded,
  kPrefixEvicted,
  kReplicaUpdated,
  kAllCleared,
};

// One CacheEvent, unchecked.
struct CacheEvent {
  CacheEventType type = CacheEventType::kUnspecified;
  std::string_view replica_id;
  std::string_view model_id;
  std::string_view tenant_id;
  std::string_view prefix_hash;          // PREFIX_EVICTED only
  std::string_view adapter_id;           // PREFIX_EVICTED only: "" = every adapter
  std::optional<absl::Time> stamped_at;  // nullopt = unstamped, which means now
};

// Why a part of an observation was not taken (or, for kStaleTimestamp, looks wrong). The label values of
// inferencecache_ingest_dropped_total; documented in docs/metrics.md.
enum class DropReason : size_t {
  kMalformedUpdate,    // an empty or overlong name: the whole update, stats included
  kMalformedEntry,     // one PrefixEntry: no hash, a bad hash, count, sum or adapter, arrays of unequal length
  kMalformedEviction,  // one evicted hash: empty or longer than 64 bytes
  kMalformedEvent,     // an event without replica, model or tenant, or PREFIX_EVICTED without a usable hash
  kMissingScheme,      // one PrefixEntry or evicted hash of an update without hash_scheme
  kFenced,             // one update or event stamped earlier than the clear that fences its replica
  kStaleTimestamp,     // one update stamped more than 24 h ago; it is applied all the same
  kLeaseRefused,       // a lease without scheme, or of a replica that holds nothing in the scope
  kReplicaLimit,       // stats or a fence beyond the bound on replicas without entries
};
inline constexpr size_t kDropReasonCount = 9;

// The metric label: "malformed_update", "stale_timestamp", …
std::string_view DropReasonName(DropReason reason);

// How many parts were dropped, by reason.
class DropCounts {
 public:
  void Add(DropReason reason, size_t count = 1) { counts_[static_cast<size_t>(reason)] += count; }
  size_t operator[](DropReason reason) const { return counts_[static_cast<size_t>(reason)]; }
  size_t Total() const {
    size_t total = 0;
    for (size_t count : counts_) total += count;
    return total;
  }

 private:
  std::array<size_t, kDropReasonCount> counts_ = {};
};

struct ApplyResult {
  bool applied = false;       // false: malformed or fenced, nothing has changed
  size_t entries_stored = 0;  // entries added or refreshed
  DropCounts dropped;
};

}  // namespace icache
