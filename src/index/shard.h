// Shard: the part of the index that one lock guards, holding whole (tenant, model)s.
//
// Layout. A Model holds Scopes (by hash scheme) and Replicas. A Scope holds Partitions (by adapter), each a map from
// block hash to Prefix, and the Presences of the replicas that have entries in it. A Prefix lists its holders, sorted
// by the slot that each replica has in the scope; an Entry hangs on its Prefix and, ordered by age, on the EntryTree of
// its Presence. A lease is one number in the Presence.
//
// Invariants, between steps (CheckInvariants):
//   S1  Nothing empty is kept: a prefix has holders, a partition prefixes, a presence entries, a scope presences, a
//       replica presences, stats or a fence, a model replicas.
//   S2  The counts of prefixes (scope, model, tenant, model record, index) and entries (presence, partition of a
//       presence, index) are exact, and so is Model::hot_prefixes.
//   S3  Holders are sorted by slot, one per presence; slots and presences of a scope name each other; Scope::by_name is
//       sorted bytewise.
//   S4  Each prefix has exactly one witness among its entries.
//   S5  Each presence is in the cap queue, and in its tenant's quota queue if it has witnesses, under a recorded key
//       that is not above the true one.
//   S6  Trees are well-formed (EntryTree::CheckInvariants) and hold exactly the presence's entries.
//
// Thread-safe. Writing methods take the lock for a bounded number of blocks; what takes longer is a loop of steps in
// ShardedIndex, between which readers run.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "icache/index/prefix_index.h"
#include "index/entry.h"
#include "index/entry_tree.h"
#include "index/eviction_queue.h"
#include "index/index_context.h"
#include "index/segmented_map.h"
#include "index/slab.h"

namespace icache {

struct Model;
struct Replica;
struct Scope;

// One replica's copy of a prefix.
struct Holder {
  uint32_t slot = 0;  // of the replica in the scope
  EntryId entry = kNoEntry;
};

// The holder of `slot` in a sorted list, or where it would be inserted.
template <typename Holders>
auto FindHolder(Holders& holders, uint32_t slot) {
  return std::lower_bound(holders.begin(), holders.end(), slot,
                          [](const Holder& holder, uint32_t wanted) { return holder.slot < wanted; });
}

struct Partition {
  Partition(Scope* owner, std::string_view adapter) : scope(owner), adapter_id(adapter) {}

  using PackedMap = absl::flat_hash_map<uint64_t, PrefixId>;
  using WideMap = absl::flat_hash_map<std::string_view, PrefixId, StringHash, StringEqual>;

  PrefixId Find(const BlockHash& hash) const {
    return hash.IsPacked() ? packed.Find(hash.packed()) : wide.Find(hash.wide());
  }
  size_t size() const { return packed.size() + wide.size(); }

  Scope* const scope;
  const std::string adapter_id;
  SegmentedMap<PackedMap> packed;
  SegmentedMap<WideMap> wide;  // keys view Prefix::wide_bytes
};

// One block hash of a partition.
struct Prefix {
  BlockHash hash() const {
    return wide_bytes == nullptr ? BlockHash(packed) : BlockHash(std::string_view(wide_bytes.get(), wide_size));
  }

  Partition* partition = nullptr;
  uint64_t packed = 0;                 // an 8-byte hash
  std::unique_ptr<char[]> wide_bytes;  // any other
  uint8_t wide_size = 0;
  absl::InlinedVector<Holder, 2> holders;
  EntryId witness = kNoEntry;
  std::atomic<uint32_t> hot_holders{0};  // holders whose access count is hot; raised by readers too
};

// A replica in a scope, while it has entries there.
struct Presence {
  Presence(Scope* in, Replica* of) : scope(in), replica(of) {}

  // The time that counts for an entry of this presence.
  int64_t EffectiveSeen(const Entry& entry) const { return entry.seen_us > lease_us ? entry.seen_us : lease_us; }

  Scope* const scope;
  Replica* const replica;
  uint32_t slot = 0;
  int64_t lease_us = kNoTime;
  size_t entries = 0;
  EntryTree tree;
  absl::flat_hash_map<Partition*, size_t> partitions;  // number of entries in each
  EvictionQueue::Place cap_place;
  EvictionQueue::Place quota_place;
  bool unsettled = false;  // is in Shard::unsettled_
};

struct Replica {
  Replica(Model* in, std::string_view replica_id) : model(in), name(replica_id) {}

  // Nothing is known of it any more.
  bool IsEmpty() const { return presences.empty() && stats == nullptr && fence_us == kNoTime; }
  bool IsFenced(int64_t now_us) const { return fence_us != kNoTime && now_us < fence_expires_us; }

  Model* const model;
  const std::string name;
  absl::flat_hash_map<Scope*, std::unique_ptr<Presence>> presences;
  std::unique_ptr<ReplicaStats> stats;
  int64_t fence_us = kNoTime;          // messages stamped earlier are dropped …
  int64_t fence_expires_us = kNoTime;  // … until then
  bool counted_idle = false;           // in IndexCounters::idle_replicas
  // All replicas of the shard, for the sweep.
  Replica* previous = nullptr;
  Replica* next = nullptr;
};

struct Scope {
  Scope(Model* in, std::string_view scheme) : model(in), hash_scheme(scheme) {}

  Model* const model;
  const std::string hash_scheme;
  int64_t prefixes = 0;
  StringNodeMap<Partition> partitions;
  std::vector<Presence*> slots;  // null = free
  std::vector<uint32_t> free_slots;
  std::vector<Presence*> by_name;  // bytewise
};

struct Model {
  Model(Directory<Tenant>::Ref in, Directory<ModelRecord>::Ref over_all)
      : tenant(std::move(in)), record(std::move(over_all)) {}

  Directory<Tenant>::Ref tenant;
  Directory<ModelRecord>::Ref record;
  int64_t prefixes = 0;
  std::atomic<int64_t> hot_prefixes{0};  // raised by readers too
  StringNodeMap<Scope> scopes;
  StringNodeMap<Replica> replicas;
};

// Who says something, about which scope, and when. `hash_scheme` is "" where it does not matter.
struct Origin {
  std::string_view tenant_id;
  std::string_view model_id;
  std::string_view hash_scheme;
  std::string_view replica_id;
  int64_t time_us = 0;   // not after now_us
  bool stamped = false;  // false passes every fence
  int64_t now_us = 0;
};

// One block to be stored.
struct BlockWrite {
  BlockHash hash;
  int32_t token_count = 0;  // cumulative
  uint32_t depth = 0;
};

class Shard {
 public:
  // `context` is not owned. `number` is the shard's own, for the eviction queues.
  Shard(IndexContext* context, size_t number);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  enum class Verdict { kDone, kMore, kFenced, kRefused };

  // Whether a message is fenced off. Every other step checks it by itself.
  bool IsFenced(const Origin& origin) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Steps of writing. All answer kFenced, having done nothing, when the origin is fenced off.
  //
  // Adds or refreshes entries. Callers bound the number of blocks.
  Verdict Store(const Origin& origin, std::string_view adapter_id, Tier tier, absl::Span<const BlockWrite> blocks)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes the replica's entries of these hashes in one partition, unless seen after the origin's time.
  Verdict Evict(const Origin& origin, std::string_view adapter_id, absl::Span<const BlockHash> hashes)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The same for one hash under every scheme and, when `adapter_id` is "", every adapter.
  Verdict EvictEverywhere(const Origin& origin, std::string_view adapter_id, BlockHash hash)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // The first step of a clear: fence (for `ttl_us` from now), stats, leases. kRefused: done, but the fence was refused
  // for the bound on idle replicas.
  Verdict BeginClear(const Origin& origin, int64_t ttl_us) ABSL_LOCKS_EXCLUDED(mutex_);
  // Removes up to `budget` entries that the clear covers. kMore while some may be left.
  Verdict ContinueClear(const Origin& origin, size_t budget) ABSL_LOCKS_EXCLUDED(mutex_);
  // Renews the lease. kRefused: the replica holds nothing in the scope.
  Verdict RenewLease(const Origin& origin) ABSL_LOCKS_EXCLUDED(mutex_);
  // Replaces the replica's stats. kRefused: the bound on idle replicas.
  Verdict SetStats(const Origin& origin, const StatsReport& report) ABSL_LOCKS_EXCLUDED(mutex_);
  // Sets last_seen of the replica's stats, if it has any.
  Verdict TouchStats(const Origin& origin) ABSL_LOCKS_EXCLUDED(mutex_);

  // Frees up to about `budget` dead entries from where the last step stopped, adding their number to `freed`. False
  // when the round is complete.
  bool SweepStep(absl::Time now, size_t budget, size_t* freed) ABSL_LOCKS_EXCLUDED(mutex_);

  // Evicts entries of this shard, at most `budget`, while `over()` and the first victim of all is here; counts them in
  // `evicted` (by algorithm).
  void EvictForBound(absl::FunctionRef<bool()> over, size_t budget, std::atomic<int64_t>* evicted)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // Evicts prefixes of one tenant likewise while it has more than `quota`. Returns their number.
  int64_t EvictForQuota(Tenant* tenant, int64_t quota, size_t budget) ABSL_LOCKS_EXCLUDED(mutex_);
  // Records the keys of all presences of a tenant anew, after its algorithm changed.
  void RequeueTenant(const Tenant* tenant) ABSL_LOCKS_EXCLUDED(mutex_);

  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const ABSL_LOCKS_EXCLUDED(mutex_);
  CacheState GetState(std::string_view tenant_id, std::string_view model_id) const ABSL_LOCKS_EXCLUDED(mutex_);

  // Adds what this shard holds to `counted`, for the index to compare with its counters.
  absl::Status CheckInvariants(IndexStats* counted) const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  class View;

  struct ModelKey {
    std::string tenant_id;
    std::string model_id;
  };
  struct ModelKeyView {
    ModelKeyView(std::string_view tenant, std::string_view model) : tenant_id(tenant), model_id(model) {}
    ModelKeyView(const ModelKey& key)
        : tenant_id(key.tenant_id), model_id(key.model_id) {}  // NOLINT: implicit, for maps
    std::string_view tenant_id;
    std::string_view model_id;
  };
  struct ModelKeyHash {
    using is_transparent = void;
    size_t operator()(const ModelKeyView& key) const {
      return absl::HashOf(StringHash()(key.tenant_id), StringHash()(key.model_id));
    }
  };
  struct ModelKeyEqual {
    using is_transparent = void;
    bool operator()(const ModelKeyView& a, const ModelKeyView& b) const {
      return a.tenant_id == b.tenant_id && a.model_id == b.model_id;
    }
  };
  using ModelMap = absl::node_hash_map<ModelKey, Model, ModelKeyHash, ModelKeyEqual>;

  const Model* FindModel(std::string_view tenant_id, std::string_view model_id) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  Model* FindModel(std::string_view tenant_id, std::string_view model_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Replica* FindReplica(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static bool FencesOff(const Replica* replica, const Origin& origin);

  // Find or make. What is made is not counted as kept before it holds something; Settle() ends the step.
  Replica& MakeReplica(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Scope& MakeScope(Model& model, std::string_view hash_scheme) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Partition& MakePartition(Scope& scope, std::string_view adapter_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Presence& MakePresence(Scope& scope, Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PrefixId MakePrefix(Partition& partition, const BlockHash& hash) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  void StoreBlock(Partition& partition, Presence& presence, Tier tier, int64_t seen_us, const BlockWrite& block)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the entry and whatever it leaves empty, but for presences and what holds them: Settle() sees to those.
  void RemoveEntry(EntryId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Removes the entry of one hash of a presence unless it was seen after `time_us`.
  void EvictEntry(const Partition& partition, const Presence& presence, const BlockHash& hash, int64_t time_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemovePrefix(PrefixId id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void MoveWitness(Prefix& prefix, EntryId to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The freshest entry of a prefix, the deepest of equals, `favourite` before others of its kind.
  EntryId Freshest(const Prefix& prefix, EntryId favourite) const ABSL_SHARED_LOCKS_REQUIRED(mutex_);

  // The presence's keys may have fallen, or it may be empty: Settle() must look at it.
  void Unsettle(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Ends a step: queues what needs it and frees presences, scopes, replicas and models that hold nothing. References
  // to any of them are void afterwards.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Frees the replica, and its model, if empty; else counts it as idle or not. One that turns idle beyond the bound is
  // emptied first.
  void SettleReplica(Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DestroyPresence(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropStats(Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  EntryTree::Victim FirstVictim(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether one more replica may be kept for its stats or fence alone.
  bool HasRoomForIdle() const;
  void Account(int64_t bytes);

  IndexContext* const context_;
  const size_t number_;

  mutable SharedMutex mutex_;
  EntrySlab entries_ ABSL_GUARDED_BY(mutex_);
  Slab<Prefix> prefixes_ ABSL_GUARDED_BY(mutex_);
  ModelMap models_ ABSL_GUARDED_BY(mutex_);
  std::vector<Presence*> unsettled_ ABSL_GUARDED_BY(mutex_);
  Replica* replicas_ ABSL_GUARDED_BY(mutex_) = nullptr;  // head of the list of all
  Replica* sweep_next_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool sweeping_ ABSL_GUARDED_BY(mutex_) = false;  // a round is under way
};

}  // namespace icache
