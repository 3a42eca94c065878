// PrefixIndex: which replicas are believed to hold which prompt prefixes.
//
// The index is flat: an *entry* is one (tenant, model, scheme, adapter, block hash, replica) with a token count, a
// last-seen time, a tier, an access count and the depth in the chain that last stored it. Chains are only a way to
// report and to ask for many blocks at once. Words: a *scope* is (tenant, model, scheme), a *partition* a scope with an
// adapter, a *prefix* one block hash of a partition however many replicas hold it. A replica is *present* in a scope
// while it has an entry there, dead or alive.
//
// This header is all that callers may know; ShardedIndex (sharded_index.h) is the engine behind it, and
// testing::NaiveIndex the model that it is checked against. Semantics: contract/index.md; matching: contract/lookup.md.
//
// Time is an argument everywhere. Instants are kept to the microsecond.
//
// Thread-safe. Reads never wait for a long write: a call that changes much does so in many small steps.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/index/name_list.h"
#include "icache/index/observation.h"
#include "icache/index/retention.h"

namespace icache {

struct ScopeKey {
  std::string_view tenant_id;
  std::string_view model_id;
  std::string_view hash_scheme;
};

// One replica that holds the asked prefix, or a leading run of the asked chain.
struct ReplicaMatch {
  std::string_view replica_id;  // valid as long as the view that gave it
  uint32_t slot = 0;            // names the replica to the view that gave it
  uint32_t name_order = 0;      // its place among the scope's replicas: ReplicaAt(name_order) is replica_id
  uint32_t matched_blocks = 0;  // leading blocks held, >= 1; 1 for an exact match
  int32_t matched_tokens = 0;   // chain: sum of the request's counts over the run; exact: the entry's token count
  int64_t last_seen_us = 0;     // Unix time, the oldest over the run, the lease taken into account
  Tier tier = Tier::kT1;        // the coldest over the run
  const ReplicaStats* stats = nullptr;  // of the replica in (tenant, model), or null; valid as long as the view
};

// The outermost key of a scope under which the index holds no prefix.
enum class KnownKeys { kIndexEmpty, kUnknownTenant, kUnknownModel, kUnknownHashScheme, kScopeKnown };

// One scope at one instant, for the duration of PrefixIndex::Read. Not thread-safe.
class ScopeView {
 public:
  // Both matchers replace `matches`, in no particular order. An entry whose effective last_seen is `expired_through` or
  // earlier does not exist for them. `matches` keeps its capacity, so a reused vector costs no allocation.
  //
  // Every replica that holds `hash` under `adapter_id`. O(holders).
  virtual void MatchHash(std::string_view adapter_id, BlockHash hash, absl::Time expired_through,
                         std::vector<ReplicaMatch>* matches) const = 0;
  // Every replica that holds block 0, each with its leading run. Runs of 0 tokens are included: what they are worth is
  // the caller's to say. O(sum over the matched blocks of their holders). A long scan asks `give_up` now and then; when
  // it says yes the scan ends, and `matches` is of no use.
  virtual void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                          absl::FunctionRef<bool()> give_up, std::vector<ReplicaMatch>* matches) const = 0;
  void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                  std::vector<ReplicaMatch>* matches) const {
    MatchChain(
        adapter_id, chain, expired_through, [] { return false; }, matches);
  }

  // Adds 1 to the access count of every entry that gave `matches` their tokens, once per entry; blocks of 0 tokens earn
  // nothing. `matches` must come from this view and the same question.
  virtual void CreditHash(std::string_view adapter_id, BlockHash hash,
                          absl::Span<const ReplicaMatch> matches) const = 0;
  virtual void CreditChain(std::string_view adapter_id, const Chain& chain,
                           absl::Span<const ReplicaMatch> matches) const = 0;

  // Replicas present in the scope, under any adapter. O(1).
  virtual size_t ReplicaCount() const = 0;
  // The i-th of them in bytewise order of their names; i < ReplicaCount(). O(1).
  virtual std::string_view ReplicaAt(size_t i) const = 0;
  virtual bool HasReplica(std::string_view replica_id) const = 0;
  // The lease of a replica in the scope; nullopt without one. O(1).
  virtual std::optional<absl::Time> LeaseOf(std::string_view replica_id) const = 0;

  // Calls `visit` for each stats row of (tenant, model), with whether its replica is present in the scope. Views and
  // references stay valid as long as this view. O(rows).
  virtual void ForEachStats(
      absl::FunctionRef<void(std::string_view replica_id, const ReplicaStats& stats, bool present)> visit) const = 0;

  // Adapters play no part. O(1).
  virtual KnownKeys Known() const = 0;

 protected:
  ~ScopeView() = default;
};

struct ReplicaState {
  std::string replica_id;
  ReplicaStats stats;
};

// The answer of GetCacheState.
struct CacheState {
  std::vector<ReplicaState> replicas;  // ordered by replica_id
  int64_t total_prefixes = 0;
  int64_t hot_prefixes = 0;  // prefixes of which some holder's access count is at or above the hot threshold
};

// Full name of a partition; ordered by its fields, bytewise.
struct PartitionName {
  std::string tenant_id;
  std::string model_id;
  std::string hash_scheme;
  std::string adapter_id;
  auto operator<=>(const PartitionName&) const = default;
};

struct PartitionState {
  PartitionName name;
  int64_t prefixes = 0;        // >= 1
  int64_t scope_replicas = 0;  // present in its scope, under any adapter; >= 1
};

// One replica that is present in a scope. Times count the lease.
struct PresenceState {
  std::string replica_id;
  int64_t entries = 0;     // >= 1
  int64_t partitions = 0;  // in which it has entries, >= 1
  absl::Time oldest_seen;  // of its entries
  absl::Time newest_seen;
  std::optional<absl::Time> lease;    // nullopt = none
  std::optional<ReplicaStats> stats;  // of the replica in (tenant, model); nullopt = none
};

struct ScopeReplicas {
  size_t total = 0;                     // present in the scope
  std::vector<PresenceState> replicas;  // those that were asked for, ordered by replica_id
};

// Counters and gauges over the index's life; each value is exact while nothing writes.
struct IndexStats {
  int64_t prefixes = 0;
  int64_t entries = 0;
  int64_t runs = 0;          // stretches of blocks stored as one: how far chains are in one piece
  int64_t memory_bytes = 0;  // what the index accounts for
  // Entries evicted so far, [algorithm] with kLru and kLfu as indices.
  int64_t evicted_for_cap[2] = {0, 0};
  int64_t evicted_for_memory[2] = {0, 0};
  int64_t expired[2] = {0, 0};
};

struct ModelStats {
  int64_t prefixes = 0;     // distinct, over all tenants
  int64_t stats_rows = 0;   // over all tenants
  absl::Time last_applied;  // of the last applied update; InfinitePast() if none since the model came to be held
};

class PrefixIndex {
 public:
  virtual ~PrefixIndex() = default;

  // Applies one update, then enforces the tenant's quota and the index's bounds. Never fails: bad parts are dropped and
  // counted in the result. `now` dates unstamped updates and caps stamps. O(blocks named + entries evicted).
  virtual ApplyResult ApplyUpdate(const StateUpdate& update, absl::Time now) = 0;

  // Applies one event; `applied` is false only for malformed and fenced ones. O(log n) per removed entry.
  virtual ApplyResult ApplyEvent(const CacheEvent& event, absl::Time now) = 0;

  // Calls `reader` exactly once, on this thread, with the view of one scope (known or not). Holds a lock that keeps
  // writers of that (tenant, model) out, so `reader` must be quick and must not call the index.
  virtual void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const = 0;

  virtual CacheState GetState(std::string_view tenant_id, std::string_view model_id) const = 0;

  // Frees dead entries, stats rows and fences, in small steps between which lookups and writers run. Returns the
  // number of entries freed.
  virtual size_t Sweep(absl::Time now) = 0;

  virtual IndexStats Stats() const = 0;

  // Whether any tenant's `model_id` holds an entry or a stats row. O(1).
  virtual bool HoldsModel(std::string_view model_id) const = 0;
  // Calls `visit` for each model that does, in no order. `visit` must not call the index.
  virtual void ForEachModel(
      absl::FunctionRef<void(std::string_view model_id, const ModelStats& stats)> visit) const = 0;

  // Adds the names of what holds prefixes to `names`: all tenants; the tenant's models when `tenant_id` is not ""; the
  // hash schemes of its model when `model_id` is not "" either. For operators: O(tenants), O(models) or O(schemes).
  virtual void ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const = 0;

  // The first `limit` partitions, in the order of their names, that come after `after` and belong to `tenant_id`; all
  // of them without `after`, of all tenants when `tenant_id` is "". For operators: writers of one shard at a time wait,
  // lookups do not. O(shards * log(partitions) + shards * limit), in practice far less.
  virtual std::vector<PartitionState> ListPartitions(std::string_view tenant_id,
                                                     const std::optional<PartitionName>& after, size_t limit) const = 0;
  // The first `limit` replicas of a scope, in the order of their names, that come after `after`; "" comes before all.
  // For operators, likewise. O(limit * log(entries)).
  virtual ScopeReplicas ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) const = 0;

  // Calls `visit` for each tenant that has a quota, with the prefixes evicted for it so far. `visit` must not call the
  // index.
  virtual void ForEachQuotaTenant(
      absl::FunctionRef<void(std::string_view tenant_id, int64_t evicted_prefixes)> visit) const = 0;

  // For tests: OK, or an Internal error naming the invariant that does not hold. O(everything); locks everything.
  virtual absl::Status CheckInvariants() const = 0;
};

}  // namespace icache
