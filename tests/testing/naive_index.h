// NaiveIndex: the index as plainly as it can be written, the model that engines are checked against.
//
// One ordered map from the full key of an entry to the entry, one map each for stats rows, fences and leases; every
// question is answered by scanning. It shares no code with any engine but the value types and ResolveChain().
//
// Where contract/index.md leaves a choice free (which of equally good victims an eviction takes), the model takes the
// first in key order, unless it is told to follow another index: ApplyUpdateLike() then looks what that index has let
// go, checks that this was a legal choice, and makes the same one.
//
// Not modelled: the memory cap, and the slot of a ReplicaMatch, which is always 0. Not thread-safe.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/index/prefix_index.h"
#include "icache/index/sharded_index.h"

namespace icache::testing {

class NaiveIndex final : public PrefixIndex {
 public:
  // `retention` must outlive the index. Of `options`, max_memory_bytes and shard_count mean nothing here.
  NaiveIndex(const IndexOptions& options, const RetentionSource* retention)
      : options_(options), retention_(retention) {}

  // Applies `update`, which `other` has just applied at the same time, and evicts what `other` evicted. Requires that
  // both held the same before. Error: Internal when some retained entry or prefix should have gone before one that
  // `other` evicted.
  absl::StatusOr<ApplyResult> ApplyUpdateLike(const StateUpdate& update, absl::Time now, const PrefixIndex& other);

  ApplyResult ApplyUpdate(const StateUpdate& update, absl::Time now) override;
  ApplyResult ApplyEvent(const CacheEvent& event, absl::Time now) override;
  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const override;
  CacheState GetState(std::string_view tenant_id, std::string_view model_id) const override;
  size_t Sweep(absl::Time now) override;
  IndexStats Stats() const override;
  bool HoldsModel(std::string_view model_id) const override;
  void ForEachModel(absl::FunctionRef<void(std::string_view model_id, const ModelStats& stats)> visit) const override;
  void ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const override;
  std::vector<PartitionState> ListPartitions(std::string_view tenant_id, const std::optional<PartitionName>& after,
                                             size_t limit) const override;
  ScopeReplicas ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) const override;
  void ForEachQuotaTenant(
      absl::FunctionRef<void(std::string_view tenant_id, int64_t evicted_prefixes)> visit) const override;
  // Nothing here is stored twice, so nothing can disagree.
  absl::Status CheckInvariants() const override { return absl::OkStatus(); }

  // One prefix: a hash of a partition.
  struct PrefixKey {
    std::string tenant = {};
    std::string model = {};
    std::string scheme = {};
    std::string adapter = {};
    std::string hash = {};
    auto operator<=>(const PrefixKey&) const = default;
  };
  struct EntryKey {
    PrefixKey prefix = {};
    std::string replica = {};
    auto operator<=>(const EntryKey&) const = default;
  };
  struct Entry {
    int32_t token_count = 0;
    absl::Time last_seen;  // its own, without the lease
    Tier tier = Tier::kT1;
    int64_t access_count = 0;
    int64_t depth = 0;
  };
  using Entries = std::map<EntryKey, Entry>;
  // The place of an entry or a prefix in the order of eviction; the smallest goes first.
  // Source: contract/index.md "Eviction".
  struct Rank {
    int64_t access_count = 0;
    absl::Time last_seen = absl::InfinitePast();
    int64_t depth = 0;

    friend bool operator<(const Rank& a, const Rank& b) {
      return std::tie(a.access_count, a.last_seen, b.depth) < std::tie(b.access_count, b.last_seen, a.depth);
    }
  };

  // All that is held, for tests that want to pick something that exists.
  const Entries& entries() const { return entries_; }

 private:
  class View;

  // One replica of one (tenant, model).
  struct RowKey {
    std::string tenant = {};
    std::string model = {};
    std::string replica = {};
    auto operator<=>(const RowKey&) const = default;
  };
  // One replica of one scope.
  struct LeaseKey {
    std::string tenant = {};
    std::string model = {};
    std::string scheme = {};
    std::string replica = {};
    auto operator<=>(const LeaseKey&) const = default;
  };
  struct Fence {
    absl::Time cleared_at;  // what is stamped earlier is dropped
    absl::Time expires_at;  // one TTL from the clear's arrival, as the TTL was then
  };
  // A stretch of entries_.
  struct Range {
    Entries::iterator first;
    Entries::iterator last;
    Entries::iterator begin() const { return first; }
    Entries::iterator end() const { return last; }
  };

  // The entries whose key is `low` up to and including the field `deepest`. Later fields of `low` must be empty.
  Range EntriesUnder(PrefixKey low, std::string PrefixKey::*deepest) const;
  // Calls `remove` on each of them and removes those for which it is true.
  void RemoveIf(Range range, absl::FunctionRef<bool(const EntryKey&, const Entry&)> remove);

  // ApplyUpdate() without the eviction, and its parts in their order. `at` is the update's time.
  ApplyResult Absorb(const StateUpdate& update, absl::Time now);
  void Clear(const RowKey& row, std::optional<absl::Time> stamped_at, absl::Time now, DropCounts* dropped);
  void EvictHash(const StateUpdate& update, BlockHash hash, absl::Time at, DropCounts* dropped);
  void StorePrefix(const StateUpdate& update, const PrefixReport& report, absl::Time at, ApplyResult* result);
  void TakeLease(const StateUpdate& update, absl::Time at, DropCounts* dropped);
  void StoreStats(const RowKey& row, const StatsReport& stats, absl::Time at, DropCounts* dropped);

  // The quota of `tenant`, then the cap. `other` as in ApplyUpdateLike(), or null.
  absl::Status EnforceBounds(const std::string& tenant, const PrefixIndex* other);
  absl::Status EnforceQuota(const std::string& tenant, const PrefixIndex* other);
  absl::Status EnforceCap(const PrefixIndex* other);
  // In the order of cap evictions.
  Rank CapRank(const EntryKey& key, const Entry& entry) const;

  bool HasFence(const RowKey& row, absl::Time now) const;
  // Whether a fence in force drops what is stamped `stamped_at`.
  bool IsFenced(const RowKey& row, std::optional<absl::Time> stamped_at, absl::Time now) const;
  bool HoldsEntries(const RowKey& row) const;
  bool HoldsEntries(const LeaseKey& key) const;
  // Whether `row` may be kept for its stats or fence: it has entries, or the bound on idle replicas leaves room.
  bool HasRoomFor(const RowKey& row) const;
  // The entry's own last_seen or its lease, whichever is later.
  absl::Time EffectiveLastSeen(const EntryKey& key, const Entry& entry) const;
  // To call after entries or stats rows have gone: ends the leases of replicas that have no entry left in the scope,
  // and forgets when models that hold nothing were last reported.
  void ForgetUnheld();

  const IndexOptions options_;
  const RetentionSource* const retention_;

  mutable Entries entries_;  // Read() is const, yet credits change access counts
  std::map<RowKey, ReplicaStats> stats_;
  std::map<RowKey, Fence> fences_;
  std::map<LeaseKey, absl::Time> leases_;
  std::map<std::string, absl::Time> last_applied_;  // by model
  std::map<std::string, int64_t> quota_evicted_;    // prefixes, by tenant that has lost some
  IndexStats counters_;                             // its counters; the gauges are counted when asked for
};

}  // namespace icache::testing
