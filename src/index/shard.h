// Shard: the part of the index that one writer at a time changes, holding whole (tenant, model)s.
//
// Layout. A Model holds Scopes (by hash scheme) and Replicas; a Scope holds Partitions (by adapter) and the Presences
// of the replicas that have entries in it. Blocks live in Runs (run.h): stretches of hashes with spans that say which
// replica holds which part. The BlockTable leads from a block hash to (run, offset). The AgeTree of a Presence has its
// spans by age. A lease is one number in the Presence. docs/index-engine.md draws it.
//
// A run is never split and never moves. Chains that part inside a run go on in runs of their own; a hole is a gap
// between two spans. A block that nobody holds is *dead*: it leaves the table, but its hash stays in the run, so that a
// report which comes by revives it in place. A run whose last block dies is freed.
//
// Invariants, between steps (CheckInvariants):
//   S1  Nothing empty is kept: a run has live blocks, a partition prefixes, a presence entries, a scope presences, a
//       replica presences, stats or a fence, a model replicas.
//   S2  The counts of prefixes (partition, scope, model, tenant, model record, index), entries (presence, partition of
//       a presence, index) and runs (index) are exact, and, once credits are drained, so is Model::hot_prefixes.
//       partitions_by_name_ has exactly the partitions.
//   S3  Slots and presences of a scope name each other; Scope::by_name is sorted bytewise, and slots know
//       their places in it. Slots point to the stats of their replicas.
//   S4  The spans of a run are sorted by (slot, start), not empty, within the run, and those of a slot do not overlap;
//       neighbours that say the same are one span.
//   S5  A block is in the table exactly once while it is live, and not at all while it is dead; Run::live counts.
//   S6  Each live block counts on some span that covers it (Span::witness).
//   S7  Each presence is in the cap queue and, if it has witnesses, in its tenant's quota queue, under a recorded key
//       that is not above the true one.
//   S8  Trees are well-formed (AgeTree::CheckInvariants) and hold exactly the presence's spans; so is the table.
//
// Threads. Writers queue on write_mutex_. What holds blocks (runs, span lists, the table) they change under the
// readers' eyes, in the ways that run.h and block_table.h allow. Names, slots and stats they change with mutex_ held
// exclusively, which readers hold shared; those changes are small. What readers may still see is retired, and freed
// after an instant of exclusive mutex_. Writing methods work on a bounded number of blocks; what takes longer is a loop
// of steps in ShardedIndex.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "icache/index/prefix_index.h"
#include "index/age_tree.h"
#include "index/arena.h"
#include "index/block_table.h"
#include "index/eviction_key.h"
#include "index/eviction_queue.h"
#include "index/extents.h"
#include "index/index_context.h"
#include "index/retired.h"
#include "index/run.h"

namespace icache {

struct Model;
struct Replica;
struct Scope;

struct Partition {
  Partition(Scope* owner, std::string_view adapter, uint32_t number, uint64_t secret)
      : scope(owner), adapter_id(adapter), id(number), salt(secret) {}

  // Of a block hash in this partition: even, and not to be foreseen by who chooses the hashes.
  uint64_t Mix(const BlockHash& hash) const { return Mix(hash.IsPacked() ? hash.packed() : NumberOf(hash.wide())); }
  uint64_t Mix(uint64_t packed) const {
    const auto product = static_cast<unsigned __int128>(packed ^ salt) * 0x9E3779B97F4A7C15;
    return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
  }

  Scope* const scope;
  const std::string adapter_id;
  const uint32_t id;  // names the partition to runs
  const uint64_t salt;
  size_t prefixes = 0;
  bool emptied = false;  // is in Shard::emptied_

 private:
  static uint64_t NumberOf(std::string_view wide);
};

// A time that the writer changes while others read it. Copied only while they do not.
class SharedTime {
 public:
  SharedTime() = default;
  SharedTime(const SharedTime& other) : time_us_(other.Load()) {}
  SharedTime& operator=(const SharedTime& other) {
    Store(other.Load());
    return *this;
  }
  int64_t Load() const { return time_us_.load(std::memory_order_relaxed); }
  void Store(int64_t time_us) { time_us_.store(time_us, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> time_us_{kNoTime};
};

// A replica in a scope, while it has entries there.
struct Presence {
  Presence(Scope* in, Replica* of) : scope(in), replica(of) {}

  // When the lease was renewed last; kNoTime = it has none.
  int64_t lease_us() const;
  void set_lease_us(int64_t time_us);
  // The time that counts for a span of this presence.
  int64_t EffectiveSeen(int64_t seen_us) const { return std::max(seen_us, lease_us()); }

  Scope* const scope;
  Replica* const replica;
  uint32_t slot = 0;
  size_t entries = 0;
  AgeTree ages;
  absl::flat_hash_map<Partition*, size_t> partitions;  // number of entries in each
  EvictionQueue::Place cap_place;
  EvictionQueue::Place quota_place;
  // Not above the keys of what was added since the last Settle().
  EvictionKey new_cap_key = EvictionKey::Never();
  EvictionKey new_quota_key = EvictionKey::Never();
  bool unsettled = false;  // is in Shard::unsettled_
};

struct Replica {
  Replica(Model* in, std::string_view replica_id) : model(in), name(replica_id) {}

  // Nothing is known of it any more.
  bool IsEmpty() const { return presences.empty() && stats == nullptr && fence_us == kNoTime; }
  bool IsFenced(int64_t now_us) const { return fence_us != kNoTime && now_us < fence_expires_us; }

  Model* const model;
  std::unique_ptr<ReplicaStats> stats;
  const std::string name;
  absl::flat_hash_map<Scope*, std::unique_ptr<Presence>> presences;
  int64_t fence_us = kNoTime;          // messages stamped earlier are dropped …
  int64_t fence_expires_us = kNoTime;  // … until then
  bool counted_idle = false;           // in IndexCounters::idle_replicas
  // All replicas of the shard, for the sweep.
  Replica* previous = nullptr;
  Replica* next = nullptr;
};

struct Scope {
  // All that a lookup needs of a holder, so that it reads no more of it than this.
  struct Slot {
    Presence* presence = nullptr;  // null = free
    std::string_view name;
    const ReplicaStats* stats = nullptr;  // Replica::stats
    SharedTime lease_us = {};
    uint32_t name_order = 0;  // its place in by_name
  };

  Scope(Model* in, std::string_view scheme) : model(in), hash_scheme(scheme) {}

  // Tells the slots of by_name[first] and all after it where in by_name they stand.
  void NumberNames(size_t first);

  Model* const model;
  const std::string hash_scheme;
  StringNodeMap<Partition> partitions;
  const Partition* base = nullptr;  // the partition without an adapter
  std::vector<Slot> slots;
  std::vector<uint32_t> free_slots;
  std::vector<Presence*> by_name;  // bytewise
};

inline int64_t Presence::lease_us() const { return scope->slots[slot].lease_us.Load(); }
inline void Presence::set_lease_us(int64_t time_us) { scope->slots[slot].lease_us.Store(time_us); }

struct Model {
  Model(Directory<Tenant>::Ref in, Directory<ModelRecord>::Ref over_all)
      : tenant(std::move(in)), record(std::move(over_all)) {}

  Directory<Tenant>::Ref tenant;
  Directory<ModelRecord>::Ref record;
  std::atomic<int64_t> prefixes{0};
  int64_t hot_prefixes = 0;
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

// Consecutive blocks of a chain that are to be stored: [first, first + size) of it. Depths are positions in the chain.
struct BlockWrites {
  BlockHash hash(size_t i) const { return chain.hash(first + i); }
  // Cumulative.
  int32_t tokens(size_t i) const {
    return chain.is_uniform() ? static_cast<int32_t>(first + i + 1) * chain.tokens(0) : cumulative[first + i];
  }
  uint32_t depth(size_t i) const { return static_cast<uint32_t>(first + i); }
  BlockWrites Part(size_t from, size_t count) const {
    return {.chain = chain, .cumulative = cumulative, .first = first + from, .size = count};
  }

  const Chain& chain;
  absl::Span<const int32_t> cumulative;  // token counts of the chain, unless it is uniform
  size_t first = 0;
  size_t size = 0;
};

class Shard {
 public:
  // `context` is not owned. `number` is the shard's own, for the eviction queues.
  Shard(IndexContext* context, size_t number);
  ~Shard();
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  enum class Verdict { kDone, kMore, kFenced, kRefused };

  // Credits that may pile up before the lookup that earned the last of them applies them itself.
  static constexpr size_t kMaxCredits = 4096;

  // Whether a message is fenced off. Every other step checks it by itself.
  bool IsFenced(const Origin& origin) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // The same, and the records of the origin's tenant and model, made if need be.
  struct Admission {
    bool fenced;
    Directory<Tenant>::Ref tenant;
    Directory<ModelRecord>::Ref model;
  };
  Admission Admit(const Origin& origin) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);

  // Steps of writing. All answer kFenced, having done nothing, when the origin is fenced off.
  //
  // Adds or refreshes entries; at most kMaxRunBlocks blocks.
  Verdict Store(const Origin& origin, std::string_view adapter_id, Tier tier, const BlockWrites& blocks)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Removes the replica's entries of these hashes in one partition, unless seen after the origin's time.
  Verdict Evict(const Origin& origin, std::string_view adapter_id, absl::Span<const BlockHash> hashes)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // The same for one hash under every scheme and, when `adapter_id` is "", every adapter.
  Verdict EvictEverywhere(const Origin& origin, std::string_view adapter_id, BlockHash hash)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // The first step of a clear: fence (for `ttl_us` from now), stats, leases. kRefused: done, but the fence was refused
  // for the bound on idle replicas.
  Verdict BeginClear(const Origin& origin, int64_t ttl_us) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Removes up to about `budget` entries that the clear covers. kMore while some may be left.
  Verdict ContinueClear(const Origin& origin, size_t budget) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Renews the lease. kRefused: the replica holds nothing in the scope.
  Verdict RenewLease(const Origin& origin) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Replaces the replica's stats. kRefused: the bound on idle replicas.
  Verdict SetStats(const Origin& origin, const StatsReport& report) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Sets last_seen of the replica's stats, if it has any.
  Verdict TouchStats(const Origin& origin) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);

  // Frees up to about `budget` dead entries from where the last step stopped, adding their number to `freed`. False
  // when the round is complete.
  bool SweepStep(absl::Time now, size_t budget, size_t* freed) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);

  // Evicts entries of this shard, at most `budget`, while `excess()` (how many are too many) is positive and the first
  // victim of all is here; counts them in `evicted` (by algorithm).
  void EvictForBound(absl::FunctionRef<int64_t()> excess, int64_t budget, int64_t now_us, std::atomic<int64_t>* evicted)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Evicts prefixes of one tenant likewise while it has more than `quota`. Returns their number.
  int64_t EvictForQuota(Tenant* tenant, int64_t quota, size_t budget, int64_t now_us)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // Queues all presences of a tenant anew, after its algorithm changed.
  void RequeueTenant(const Tenant* tenant) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);

  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader)
      ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  CacheState GetState(std::string_view tenant_id, std::string_view model_id) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);
  // The shard's part of PrefixIndex::ListHeld.
  void ListModels(std::string_view tenant_id, NameList* names) ABSL_LOCKS_EXCLUDED(mutex_);
  void ListSchemes(std::string_view tenant_id, std::string_view model_id, NameList* names) ABSL_LOCKS_EXCLUDED(mutex_);

  // The shard's part of PrefixIndex::ListPartitions: adds its partitions to `found`, of which only the first `limit`
  // are of interest.
  void ListPartitions(std::string_view tenant_id, const std::optional<PartitionName>& after, size_t limit,
                      std::map<PartitionName, PartitionState>* found) ABSL_LOCKS_EXCLUDED(write_mutex_);
  ScopeReplicas ListReplicas(const ScopeKey& key, std::string_view after, size_t limit)
      ABSL_LOCKS_EXCLUDED(write_mutex_);

  // Adds what this shard holds to `counted`, for the index to compare with its counters.
  absl::Status CheckInvariants(IndexStats* counted) ABSL_LOCKS_EXCLUDED(write_mutex_, mutex_);

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

  // Orders partitions by their PartitionName.
  struct ByName {
    using is_transparent = void;
    using Names = std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>;
    static Names NamesOf(const Partition* partition);
    static Names NamesOf(const Names& names) { return names; }
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return NamesOf(a) < NamesOf(b);
    }
  };

  // What a lookup has earned for blocks [first, end) of a run, as held by one slot.
  struct Credit {
    RunRef run = 0;
    uint32_t slot = 0;
    uint32_t first = 0;
    uint32_t end = 0;
  };

  // Tells BlockTable of the blocks behind its places.
  class Blocks;

  // The lists of spans of one slot in a run: [first, last).
  struct SlotRange {
    size_t first = 0;
    size_t last = 0;
  };

  // ---- Finding and making (shard.cc) ----
  const Model* FindModel(std::string_view tenant_id, std::string_view model_id) const;
  Model* FindModel(std::string_view tenant_id, std::string_view model_id);
  Replica* FindReplica(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  static Replica* FindReplica(Model* model, std::string_view replica_id);
  static bool FencesOff(const Replica* replica, const Origin& origin);
  // Make, or find or make. What is made is not counted as kept before it holds something; EndStep() sees to that.
  Replica& MakeReplica(const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  Scope& MakeScope(Model& model, std::string_view hash_scheme) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Partition& MakePartition(Scope& scope, std::string_view adapter_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  Presence& MakePresence(Scope& scope, Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // ---- Blocks (shard_blocks.cc) ----
  Run& RunAt(RunRef ref) const { return *reinterpret_cast<Run*>(arena_.At(ref)); }
  // Where a block is, or run 0. For readers too.
  Place Find(const Partition& partition, uint64_t mixed, const BlockHash& hash) const;
  static SlotRange RangeOf(absl::Span<const StoredSpan> spans, uint32_t slot);
  static bool IsLive(const Run& run, uint32_t offset);
  void StoreBlocks(Partition& partition, Presence& presence, Tier tier, int64_t seen_us, const BlockWrites& blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Makes a run of the leading blocks that are in none, given to the presence. Returns their number, which is 0 when
  // the first block is in a run already.
  size_t StoreNewRun(Partition& partition, Presence& presence, Tier tier, int64_t seen_us, const BlockWrites& blocks,
                     absl::Span<const uint64_t> mixed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Lets the presence hold blocks of a run from `offset` on as reported.
  void Hold(RunRef ref, uint32_t offset, Presence& presence, Tier tier, int64_t seen_us, const BlockWrites& blocks)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Appends spans of one presence that say of blocks [from, to) of a run what `blocks`, reported for the run's blocks
  // from `offset` on, says.
  static void Report(const BlockWrites& blocks, uint32_t offset, uint32_t from, uint32_t to, Span span, int32_t step,
                     absl::InlinedVector<Span, 4>* spans);
  // Takes blocks [first, end) of a run from a presence, where it has seen them at `time_us` or before. Returns their
  // number.
  size_t Release(RunRef ref, uint32_t first, uint32_t end, Presence& presence, int64_t time_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Releases hashes of one partition, runs of which are taken at once.
  void ReleaseHashes(Partition& partition, Presence& presence, absl::Span<const BlockHash> hashes, int64_t time_us)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Whether somebody else knows the last witnessed block of a presence's span to be younger. If so the span no longer
  // stands for what that other span covers.
  bool PassOn(RunRef ref, const Span& span, Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Takes one block from all who hold it.
  void ReleaseFromAll(RunRef ref, uint32_t offset) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Replaces the spans of `range`, all the presence's, by `fresh`, of which there must be some in the run at last.
  void Rewrite(RunRef ref, Presence& presence, SlotRange range, absl::Span<Span> fresh)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Publishes a list made by Rewrite.
  void Publish(Run& run, absl::Span<const StoredSpan> old, SlotRange range, absl::Span<const Span> fresh)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void SetLeaf(RunRef ref, uint32_t slot, uint32_t start, uint32_t leaf) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Blocks that somebody has used often enough to be hot.
  BlockSet HotBlocks(const Run& run) const;
  // Takes dead blocks out of the table.
  void Forget(RunRef ref, const BlockSet& dead, Partition& partition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void CountPrefixes(Partition& partition, int64_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void CountEntries(Partition& partition, Presence& presence, int64_t change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Spans that had been passed over as witnesses count again where `blocks` have lost a holder.
  void RestoreWitnesses(RunRef ref, uint32_t first, uint32_t end) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  void NoteQuotaKey(Presence& presence, const Span& span) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  Presence& PresenceAt(const Run& run, uint32_t slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) {
    return *partitions_[run.partition()]->scope->slots[slot].presence;
  }
  AgeTree::Spans SpansOf(const Presence& presence) const { return AgeTree::Spans(&arena_, presence.slot); }

  // ---- Changes (shard_blocks.cc) ----
  // Tells the observer, if it listens, that a presence has been seen to hold blocks of a run or has lost them, as of
  // change_us_.
  void TellBlocks(CacheEventType type, const Run& run, const BlockSet& blocks, const Presence& presence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // The same of blocks [first, end) that have been stored.
  void TellStored(const Run& run, uint32_t first, uint32_t end, const Presence& presence)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // The same of what concerns the whole replica.
  void TellReplica(CacheEventType type, const Origin& origin) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  // ---- Credits (shard_blocks.cc) ----
  void Earn(const Credit& credit) const ABSL_LOCKS_EXCLUDED(credit_mutex_);
  void DrainCredits() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(credit_mutex_);
  void Apply(const Credit& credit) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);

  // ---- Steps (shard.cc) ----
  // The presence's keys may have fallen, or it may be empty: EndStep() must look at it.
  void Unsettle(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Ends a step: queues what needs it, frees partitions, presences, scopes, replicas and models that hold nothing, and
  // retired memory now and then. References to any of them are void afterwards.
  void EndStep() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Its parts.
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  void FreePartitions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Frees the replica, and its model, if empty; else counts it as idle or not. One that turns idle beyond the bound is
  // emptied first.
  void SettleReplica(Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  void DestroyPresence(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  void PublishStats(Replica& replica, std::unique_ptr<ReplicaStats> stats) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void DropStats(Replica& replica) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  void FreeRetired() ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_) ABSL_LOCKS_EXCLUDED(mutex_);
  AgeTree::Victim FirstVictim(Presence& presence) ABSL_EXCLUSIVE_LOCKS_REQUIRED(write_mutex_);
  // Whether one more replica may be kept for its stats or fence alone.
  bool HasRoomForIdle() const;
  void Account(int64_t bytes);

  IndexContext* const context_;
  const size_t number_;
  const uint64_t secret_;  // what salts are made of

  // Changed by the writer as their files say, read by anybody who holds mutex_.
  Arena arena_;
  Extents extents_;
  Retired retired_;
  BlockTable table_;
  // Changed with both locks held, read with either.
  ModelMap models_;

  mutable SharedMutex mutex_ ABSL_ACQUIRED_AFTER(write_mutex_);
  mutable Mutex write_mutex_;
  LeafSlab leaves_ ABSL_GUARDED_BY(write_mutex_);
  std::vector<Partition*> partitions_ ABSL_GUARDED_BY(write_mutex_);  // by id; null = free
  std::vector<uint32_t> free_partitions_ ABSL_GUARDED_BY(write_mutex_);
  absl::btree_set<const Partition*, ByName> partitions_by_name_ ABSL_GUARDED_BY(write_mutex_);
  std::vector<Partition*> emptied_ ABSL_GUARDED_BY(write_mutex_);
  std::vector<Presence*> unsettled_ ABSL_GUARDED_BY(write_mutex_);
  // When the step at hand changes blocks; kNoTime = it does so without telling. Each step that changes blocks sets it.
  int64_t change_us_ ABSL_GUARDED_BY(write_mutex_) = kNoTime;
  size_t list_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;        // of span lists
  int64_t block_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;      // accounted for runs, lists, table and leaves
  int64_t peak_bytes_ ABSL_GUARDED_BY(write_mutex_) = 0;       // most of block_bytes_ since it was 0
  Replica* replicas_ ABSL_GUARDED_BY(write_mutex_) = nullptr;  // head of the list of all
  Replica* sweep_next_ ABSL_GUARDED_BY(write_mutex_) = nullptr;
  bool sweeping_ ABSL_GUARDED_BY(write_mutex_) = false;  // a round is under way

  mutable Mutex credit_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  mutable std::vector<Credit> credits_ ABSL_GUARDED_BY(credit_mutex_);
  mutable std::atomic<size_t> credit_count_{0};  // of credits_
};

}  // namespace icache
