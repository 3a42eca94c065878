// Writing to a shard: the steps of observations, of the sweep and of eviction.
#include "index/shard.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

namespace icache {
namespace {

// What the index accounts for one object of each kind: the object, its slot in the tables that find it at their usual
// load, and the allocator's own share. Names come on top.
constexpr int64_t kEntryBytes = sizeof(Entry);
constexpr int64_t kPrefixBytes = sizeof(Prefix) + 28;
constexpr int64_t kWideBytes = 48;  // the allocation of a wide hash and its larger table slot
constexpr int64_t kPartitionBytes = sizeof(Partition) + 160;
constexpr int64_t kPresenceBytes = sizeof(Presence) + 320;  // two queue nodes, a partition's slot, the scope's lists
constexpr int64_t kScopeBytes = sizeof(Scope) + 64;
constexpr int64_t kReplicaBytes = sizeof(Replica) + 64;
constexpr int64_t kStatsBytes = sizeof(ReplicaStats) + 16;
constexpr int64_t kModelBytes = sizeof(Model) + 512;  // the tenant's and the model's records included

// Longest client_version that is kept.
constexpr size_t kMaxClientVersionBytes = 512;

float FiniteOrZero(float value) { return std::isfinite(value) ? value : 0; }

// The first `limit` bytes of `text`, cut before a UTF-8 sequence that would not fit whole.
std::string_view Truncated(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

// Whether `a` says more than `b` about how young their prefix is: seen later, or as late and deeper.
bool IsFresher(const Entry& a, const Entry& b) {
  return std::tuple(a.presence->EffectiveSeen(a), a.depth) > std::tuple(b.presence->EffectiveSeen(b), b.depth);
}

int64_t HeapBytes(const absl::InlinedVector<Holder, 2>& holders) {
  return holders.capacity() <= 2 ? 0 : static_cast<int64_t>(holders.capacity() * sizeof(Holder) + 16);
}

}  // namespace

Shard::Shard(IndexContext* context, size_t number) : context_(context), number_(number) {}

Shard::~Shard() {
  // The slabs do not destroy what lives in them; a prefix may own heap memory.
  WriterLock lock(&mutex_);
  for (auto& [key, model] : models_) {
    for (auto& [scheme, scope] : model.scopes) {
      for (auto& [adapter, partition] : scope.partitions) {
        const auto destroy = [&](const auto&, PrefixId id) ABSL_NO_THREAD_SAFETY_ANALYSIS { prefixes_[id].~Prefix(); };
        partition.packed.ForEach(destroy);
        partition.wide.ForEach(destroy);
      }
    }
  }
}

// ---- Finding and making ---------------------------------------------------------------------------------------------

const Model* Shard::FindModel(std::string_view tenant_id, std::string_view model_id) const {
  auto found = models_.find(ModelKeyView(tenant_id, model_id));
  return found == models_.end() ? nullptr : &found->second;
}

Model* Shard::FindModel(std::string_view tenant_id, std::string_view model_id) {
  auto found = models_.find(ModelKeyView(tenant_id, model_id));
  return found == models_.end() ? nullptr : &found->second;
}

Replica* Shard::FindReplica(const Origin& origin) {
  Model* const model = FindModel(origin.tenant_id, origin.model_id);
  if (model == nullptr) return nullptr;
  auto found = model->replicas.find(origin.replica_id);
  return found == model->replicas.end() ? nullptr : &found->second;
}

bool Shard::FencesOff(const Replica* replica, const Origin& origin) {
  return replica != nullptr && origin.stamped && replica->IsFenced(origin.now_us) && origin.time_us < replica->fence_us;
}

Replica& Shard::MakeReplica(const Origin& origin) {
  Model* model = FindModel(origin.tenant_id, origin.model_id);
  if (model == nullptr) {
    auto tenant = context_->tenants.Acquire(origin.tenant_id);
    auto record = context_->models.Acquire(origin.model_id);
    model = &models_
                 .try_emplace(ModelKey{std::string(origin.tenant_id), std::string(origin.model_id)}, std::move(tenant),
                              std::move(record))
                 .first->second;
    Account(kModelBytes + static_cast<int64_t>(origin.tenant_id.size() + origin.model_id.size()));
  }
  auto found = model->replicas.find(origin.replica_id);
  if (found != model->replicas.end()) return found->second;
  Replica& replica =
      model->replicas.try_emplace(std::string(origin.replica_id), model, origin.replica_id).first->second;
  replica.next = replicas_;
  if (replicas_ != nullptr) replicas_->previous = &replica;
  replicas_ = &replica;
  Account(kReplicaBytes + static_cast<int64_t>(2 * origin.replica_id.size()));
  return replica;
}

Scope& Shard::MakeScope(Model& model, std::string_view hash_scheme) {
  auto found = model.scopes.find(hash_scheme);
  if (found != model.scopes.end()) return found->second;
  Account(kScopeBytes + static_cast<int64_t>(2 * hash_scheme.size()));
  return model.scopes.try_emplace(std::string(hash_scheme), &model, hash_scheme).first->second;
}

Partition& Shard::MakePartition(Scope& scope, std::string_view adapter_id) {
  auto found = scope.partitions.find(adapter_id);
  if (found != scope.partitions.end()) return found->second;
  Account(kPartitionBytes + static_cast<int64_t>(2 * adapter_id.size()));
  return scope.partitions.try_emplace(std::string(adapter_id), &scope, adapter_id).first->second;
}

Presence& Shard::MakePresence(Scope& scope, Replica& replica) {
  std::unique_ptr<Presence>& presence = replica.presences[&scope];
  if (presence != nullptr) return *presence;
  presence = std::make_unique<Presence>(&scope, &replica);
  if (scope.free_slots.empty()) {
    presence->slot = static_cast<uint32_t>(scope.slots.size());
    scope.slots.push_back(presence.get());
  } else {
    presence->slot = scope.free_slots.back();
    scope.free_slots.pop_back();
    scope.slots[presence->slot] = presence.get();
  }
  scope.by_name.insert(
      std::lower_bound(scope.by_name.begin(), scope.by_name.end(), replica.name,
                       [](const Presence* present, const std::string& name) { return present->replica->name < name; }),
      presence.get());
  Account(kPresenceBytes);
  return *presence;
}

PrefixId Shard::MakePrefix(Partition& partition, const BlockHash& hash) {
  const PrefixId id = prefixes_.Allocate();
  Prefix& prefix = prefixes_[id];
  prefix.partition = &partition;
  if (hash.IsPacked()) {
    prefix.packed = hash.packed();
    partition.packed.Insert(hash.packed(), id);
  } else {
    const std::string_view bytes = hash.wide();
    prefix.wide_bytes = std::make_unique<char[]>(bytes.size());
    prefix.wide_size = static_cast<uint8_t>(bytes.size());
    std::memcpy(prefix.wide_bytes.get(), bytes.data(), bytes.size());
    partition.wide.Insert(std::string_view(prefix.wide_bytes.get(), prefix.wide_size), id);
    Account(kWideBytes + static_cast<int64_t>(bytes.size()));
  }
  Account(kPrefixBytes);
  Scope& scope = *partition.scope;
  ++scope.prefixes;
  ++scope.model->prefixes;
  scope.model->tenant->prefixes.fetch_add(1, std::memory_order_relaxed);
  scope.model->record->prefixes.fetch_add(1, std::memory_order_relaxed);
  context_->counters.prefixes.fetch_add(1, std::memory_order_relaxed);
  return id;
}

bool Shard::HasRoomForIdle() const {
  return context_->counters.idle_replicas.load(std::memory_order_relaxed) < context_->options.max_idle_replicas;
}

void Shard::Account(int64_t bytes) { context_->counters.memory_bytes.fetch_add(bytes, std::memory_order_relaxed); }

// ---- Entries --------------------------------------------------------------------------------------------------------

void Shard::StoreBlock(Partition& partition, Presence& presence, Tier tier, int64_t seen_us, const BlockWrite& block) {
  PrefixId prefix_id = partition.Find(block.hash);
  if (prefix_id == kNoPrefix) prefix_id = MakePrefix(partition, block.hash);
  Prefix& prefix = prefixes_[prefix_id];

  auto holder = FindHolder(prefix.holders, presence.slot);
  EntryId id;
  if (holder != prefix.holders.end() && holder->slot == presence.slot) {
    id = holder->entry;
    presence.tree.Remove(entries_, id);
  } else {
    id = entries_.Allocate();
    const int64_t before = HeapBytes(prefix.holders);
    prefix.holders.insert(holder, {.slot = presence.slot, .entry = id});
    Account(kEntryBytes + HeapBytes(prefix.holders) - before);
    entries_[id].presence = &presence;
    entries_[id].prefix = prefix_id;
    ++presence.entries;
    ++presence.partitions[&partition];
    context_->counters.entries.fetch_add(1, std::memory_order_relaxed);
  }

  Entry& entry = entries_[id];
  entry.seen_us = seen_us;
  entry.token_count = block.token_count;
  entry.depth = block.depth;
  entry.tier = tier;
  presence.tree.Insert(entries_, id);
  if (prefix.witness == kNoEntry || IsFresher(entry, entries_[prefix.witness])) MoveWitness(prefix, id);
}

EntryId Shard::Freshest(const Prefix& prefix, EntryId favourite) const {
  for (const Holder& holder : prefix.holders) {
    if (IsFresher(entries_[holder.entry], entries_[favourite])) favourite = holder.entry;
  }
  return favourite;
}

void Shard::MoveWitness(Prefix& prefix, EntryId to) {
  if (prefix.witness != kNoEntry) {
    entries_[prefix.witness].presence->tree.SetWitness(entries_, prefix.witness, false);
  }
  prefix.witness = to;
  entries_[to].presence->tree.SetWitness(entries_, to, true);
  Unsettle(*entries_[to].presence);
}

void Shard::RemoveEntry(EntryId id) {
  Entry& entry = entries_[id];
  Presence& presence = *entry.presence;
  const PrefixId prefix_id = entry.prefix;
  Prefix& prefix = prefixes_[prefix_id];
  Partition& partition = *prefix.partition;
  Scope& scope = *partition.scope;

  presence.tree.Remove(entries_, id);
  --presence.entries;
  auto in_partition = presence.partitions.find(&partition);
  if (--in_partition->second == 0) presence.partitions.erase(in_partition);
  Unsettle(presence);

  if (entry.access.load(std::memory_order_relaxed) >= static_cast<uint32_t>(context_->options.hot_threshold) &&
      prefix.hot_holders.fetch_sub(1, std::memory_order_relaxed) == 1) {
    scope.model->hot_prefixes.fetch_sub(1, std::memory_order_relaxed);
  }
  const int64_t before = HeapBytes(prefix.holders);
  prefix.holders.erase(FindHolder(prefix.holders, presence.slot));
  Account(HeapBytes(prefix.holders) - before - kEntryBytes);
  const bool was_witness = prefix.witness == id;
  entries_.Free(id);
  context_->counters.entries.fetch_sub(1, std::memory_order_relaxed);

  if (was_witness) {
    prefix.witness = kNoEntry;
    // Any holder will do: its age is a lower bound of the prefix's, which is all that the order needs.
    if (!prefix.holders.empty()) MoveWitness(prefix, prefix.holders.front().entry);
  }
  if (!prefix.holders.empty()) return;

  if (prefix.wide_bytes == nullptr) {
    partition.packed.Erase(prefix.packed);
  } else {
    partition.wide.Erase(std::string_view(prefix.wide_bytes.get(), prefix.wide_size));
    Account(-kWideBytes - prefix.wide_size);
  }
  Account(-kPrefixBytes - HeapBytes(prefix.holders));  // an emptied list keeps its capacity
  prefixes_.Free(prefix_id);
  --scope.prefixes;
  --scope.model->prefixes;
  scope.model->tenant->prefixes.fetch_sub(1, std::memory_order_relaxed);
  scope.model->record->prefixes.fetch_sub(1, std::memory_order_relaxed);
  context_->counters.prefixes.fetch_sub(1, std::memory_order_relaxed);
  if (partition.size() == 0) {
    Account(-kPartitionBytes - static_cast<int64_t>(2 * partition.adapter_id.size()));
    scope.partitions.erase(scope.partitions.find(std::string_view(partition.adapter_id)));
  }
}

void Shard::EvictEntry(const Partition& partition, const Presence& presence, const BlockHash& hash, int64_t time_us) {
  const PrefixId prefix_id = partition.Find(hash);
  if (prefix_id == kNoPrefix) return;
  const Prefix& prefix = prefixes_[prefix_id];
  auto holder = FindHolder(prefix.holders, presence.slot);
  if (holder == prefix.holders.end() || holder->slot != presence.slot) return;
  if (entries_[holder->entry].seen_us <= time_us) RemoveEntry(holder->entry);
}

void Shard::RemovePrefix(PrefixId id) {
  // The last removal frees the prefix, so its holders are counted down, not looked at.
  for (size_t left = prefixes_[id].holders.size(); left > 0; --left) RemoveEntry(prefixes_[id].holders.back().entry);
}

// ---- The end of a step ----------------------------------------------------------------------------------------------

void Shard::Unsettle(Presence& presence) {
  if (presence.unsettled) return;
  presence.unsettled = true;
  unsettled_.push_back(&presence);
}

EntryTree::Victim Shard::FirstVictim(Presence& presence) {
  return presence.scope->model->tenant->lfu.load(std::memory_order_relaxed)
             ? presence.tree.FirstLfu(entries_, presence.lease_us)
             : presence.tree.FirstLru(entries_, presence.lease_us);
}

void Shard::Settle() {
  for (Presence* presence : unsettled_) {
    presence->unsettled = false;
    if (presence->entries == 0) {
      DestroyPresence(*presence);
      continue;
    }
    const EvictionKey key = FirstVictim(*presence).key;
    if (!presence->cap_place.queued || key < presence->cap_place.key) {
      context_->cap_queue.Record(presence, number_, key, &presence->cap_place);
    }
    const EntryTree::Victim witness = presence->tree.FirstWitness(entries_, presence->lease_us);
    if (witness.id != kNoEntry && (!presence->quota_place.queued || witness.key < presence->quota_place.key)) {
      presence->scope->model->tenant->quota_queue.Record(presence, number_, witness.key, &presence->quota_place);
    }
  }
  unsettled_.clear();
}

void Shard::DestroyPresence(Presence& presence) {
  Scope& scope = *presence.scope;
  Replica& replica = *presence.replica;
  Model& model = *scope.model;
  context_->cap_queue.Remove(&presence, number_, &presence.cap_place);
  model.tenant->quota_queue.Remove(&presence, number_, &presence.quota_place);
  scope.slots[presence.slot] = nullptr;
  scope.free_slots.push_back(presence.slot);
  scope.by_name.erase(
      std::lower_bound(scope.by_name.begin(), scope.by_name.end(), replica.name,
                       [](const Presence* present, const std::string& name) { return present->replica->name < name; }));
  replica.presences.erase(&scope);  // `presence` is gone
  Account(-kPresenceBytes);
  if (scope.by_name.empty()) {
    Account(-kScopeBytes - static_cast<int64_t>(2 * scope.hash_scheme.size()));
    model.scopes.erase(model.scopes.find(std::string_view(scope.hash_scheme)));
  }
  SettleReplica(replica);
}

void Shard::SettleReplica(Replica& replica) {
  if (replica.presences.empty() && !replica.IsEmpty() && !replica.counted_idle && !HasRoomForIdle()) {
    // Names come without end; what is known of replicas that hold nothing is kept only within bounds.
    DropStats(replica);
    replica.fence_us = kNoTime;
  }
  const bool empty = replica.IsEmpty();
  const bool idle = !empty && replica.presences.empty();
  if (idle != replica.counted_idle) {
    context_->counters.idle_replicas.fetch_add(idle ? 1 : -1, std::memory_order_relaxed);
    replica.counted_idle = idle;
  }
  if (!empty) return;
  if (sweep_next_ == &replica) sweep_next_ = replica.next;
  (replica.previous == nullptr ? replicas_ : replica.previous->next) = replica.next;
  if (replica.next != nullptr) replica.next->previous = replica.previous;
  Account(-kReplicaBytes - static_cast<int64_t>(2 * replica.name.size()));
  Model& model = *replica.model;
  model.replicas.erase(model.replicas.find(std::string_view(replica.name)));
  if (!model.replicas.empty()) return;
  Account(-kModelBytes - static_cast<int64_t>(model.tenant->name.size() + model.record->name.size()));
  models_.erase(models_.find(ModelKeyView(model.tenant->name, model.record->name)));
}

void Shard::DropStats(Replica& replica) {
  if (replica.stats == nullptr) return;
  Account(-kStatsBytes - static_cast<int64_t>(replica.stats->client_version.size()));
  replica.stats.reset();
  replica.model->record->stats_rows.fetch_sub(1, std::memory_order_relaxed);
}

// ---- Steps of writing -----------------------------------------------------------------------------------------------

bool Shard::IsFenced(const Origin& origin) const {
  ReaderLock lock(&mutex_);
  const Model* const model = FindModel(origin.tenant_id, origin.model_id);
  if (model == nullptr) return false;
  auto found = model->replicas.find(origin.replica_id);
  return found != model->replicas.end() && FencesOff(&found->second, origin);
}

Shard::Verdict Shard::Store(const Origin& origin, std::string_view adapter_id, Tier tier,
                            absl::Span<const BlockWrite> blocks) {
  if (blocks.empty()) return Verdict::kDone;
  WriterLock lock(&mutex_);
  if (FencesOff(FindReplica(origin), origin)) return Verdict::kFenced;
  Replica& replica = MakeReplica(origin);
  Scope& scope = MakeScope(*replica.model, origin.hash_scheme);
  Partition& partition = MakePartition(scope, adapter_id);
  Presence& presence = MakePresence(scope, replica);
  for (const BlockWrite& block : blocks) StoreBlock(partition, presence, tier, origin.time_us, block);
  Unsettle(presence);
  Settle();
  SettleReplica(replica);
  return Verdict::kDone;
}

Shard::Verdict Shard::Evict(const Origin& origin, std::string_view adapter_id, absl::Span<const BlockHash> hashes) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kDone;
  auto scope = replica->model->scopes.find(origin.hash_scheme);
  if (scope == replica->model->scopes.end()) return Verdict::kDone;
  auto presence = replica->presences.find(&scope->second);
  if (presence == replica->presences.end()) return Verdict::kDone;
  for (const BlockHash& hash : hashes) {
    // Looked up each time: the partition goes with its last prefix.
    auto partition = scope->second.partitions.find(adapter_id);
    if (partition == scope->second.partitions.end()) break;
    EvictEntry(partition->second, *presence->second, hash, origin.time_us);
  }
  Settle();
  return Verdict::kDone;
}

Shard::Verdict Shard::EvictEverywhere(const Origin& origin, std::string_view adapter_id, BlockHash hash) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kDone;
  for (auto& [scope, presence] : replica->presences) {
    if (!adapter_id.empty()) {
      auto partition = scope->partitions.find(adapter_id);
      if (partition != scope->partitions.end()) EvictEntry(partition->second, *presence, hash, origin.time_us);
      continue;
    }
    // A copy, since removals may free partitions.
    absl::InlinedVector<const Partition*, 8> partitions;
    for (const auto& [partition, entries] : presence->partitions) partitions.push_back(partition);
    for (const Partition* partition : partitions) EvictEntry(*partition, *presence, hash, origin.time_us);
  }
  Settle();
  return Verdict::kDone;
}

Shard::Verdict Shard::BeginClear(const Origin& origin, int64_t ttl_us) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kDone;
  Verdict verdict = Verdict::kDone;
  if (origin.stamped) {
    const bool fenced = replica->IsFenced(origin.now_us);
    const bool known = !replica->presences.empty() || replica->stats != nullptr;
    if ((fenced && origin.time_us > replica->fence_us) || (!fenced && known)) {
      if (HasRoomForIdle() || replica->counted_idle) {
        replica->fence_us = origin.time_us;
        replica->fence_expires_us = origin.now_us > std::numeric_limits<int64_t>::max() - ttl_us
                                        ? std::numeric_limits<int64_t>::max()
                                        : origin.now_us + ttl_us;
      } else {
        verdict = Verdict::kRefused;
      }
    }
  }
  if (replica->stats != nullptr && absl::ToUnixMicros(replica->stats->last_seen) <= origin.time_us) DropStats(*replica);
  for (auto& [scope, presence] : replica->presences) {
    if (presence->lease_us > origin.time_us) continue;
    presence->lease_us = kNoTime;
    Unsettle(*presence);  // without the lease its entries are older
  }
  Settle();
  SettleReplica(*replica);
  return verdict;
}

Shard::Verdict Shard::ContinueClear(const Origin& origin, size_t budget) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (replica == nullptr) return Verdict::kDone;
  for (auto& [scope, presence] : replica->presences) {
    while (budget > 0) {
      const EntryId oldest = presence->tree.Oldest(entries_);
      if (oldest == kNoEntry || entries_[oldest].seen_us > origin.time_us) break;
      RemoveEntry(oldest);
      --budget;
    }
    if (budget == 0) break;
  }
  Settle();
  return budget == 0 ? Verdict::kMore : Verdict::kDone;
}

Shard::Verdict Shard::RenewLease(const Origin& origin) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kRefused;
  auto scope = replica->model->scopes.find(origin.hash_scheme);
  if (scope == replica->model->scopes.end()) return Verdict::kRefused;
  auto presence = replica->presences.find(&scope->second);
  if (presence == replica->presences.end()) return Verdict::kRefused;
  presence->second->lease_us = std::max(presence->second->lease_us, origin.time_us);
  return Verdict::kDone;
}

Shard::Verdict Shard::SetStats(const Origin& origin, const StatsReport& report) {
  WriterLock lock(&mutex_);
  Replica* replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) {
    if (!HasRoomForIdle()) {
      return Verdict::kRefused;
    }
    replica = &MakeReplica(origin);
  }
  DropStats(*replica);
  const absl::Time time = absl::FromUnixMicros(origin.time_us);
  replica->stats = std::make_unique<ReplicaStats>(
      ReplicaStats{.cache_memory_bytes = report.cache_memory_bytes,
                   .hit_rate = FiniteOrZero(report.hit_rate),
                   .pressure = FiniteOrZero(report.pressure),
                   .client_version = std::string(Truncated(report.client_version, kMaxClientVersionBytes)),
                   .t2_hit_tokens = report.t2_hit_tokens,
                   .t2_query_tokens = report.t2_query_tokens,
                   .last_seen = time,
                   .reported = time});
  replica->model->record->stats_rows.fetch_add(1, std::memory_order_relaxed);
  Account(kStatsBytes + static_cast<int64_t>(replica->stats->client_version.size()));
  SettleReplica(*replica);
  return Verdict::kDone;
}

Shard::Verdict Shard::TouchStats(const Origin& origin) {
  WriterLock lock(&mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica != nullptr && replica->stats != nullptr) {
    replica->stats->last_seen = absl::FromUnixMicros(origin.time_us);
  }
  return Verdict::kDone;
}

// ---- Expiry and eviction --------------------------------------------------------------------------------------------

bool Shard::SweepStep(absl::Time now, size_t budget, size_t* freed) {
  WriterLock lock(&mutex_);
  if (!sweeping_) {
    sweeping_ = true;
    sweep_next_ = replicas_;
  }
  const int64_t now_us = absl::ToUnixMicros(now);
  while (sweep_next_ != nullptr && budget > 0) {
    --budget;  // for the visit
    Replica& replica = *sweep_next_;
    const RetentionRules rules = context_->retention->For(replica.model->tenant->name);
    const int64_t dead_us = absl::ToUnixMicros(now - rules.ttl);
    std::atomic<int64_t>& expired = context_->counters.expired[rules.algorithm == EvictionAlgorithm::kLfu ? 1 : 0];
    for (auto& [scope, presence] : replica.presences) {
      if (presence->lease_us > dead_us) continue;
      while (budget > 0) {
        const EntryId oldest = presence->tree.Oldest(entries_);
        if (oldest == kNoEntry || entries_[oldest].seen_us > dead_us) break;
        RemoveEntry(oldest);
        expired.fetch_add(1, std::memory_order_relaxed);
        ++*freed;
        --budget;
      }
    }
    if (budget > 0) {
      // Done with this replica, which the rest may free.
      sweep_next_ = replica.next;
      if (replica.stats != nullptr && absl::ToUnixMicros(replica.stats->last_seen) <= dead_us) DropStats(replica);
      if (!replica.IsFenced(now_us)) replica.fence_us = kNoTime;
      if (replica.presences.empty()) SettleReplica(replica);
    }
    Settle();
  }
  if (sweep_next_ == nullptr) sweeping_ = false;
  return sweeping_;
}

void Shard::EvictForBound(absl::FunctionRef<bool()> over, size_t budget, std::atomic<int64_t>* evicted) {
  WriterLock lock(&mutex_);
  while (budget > 0 && over()) {
    const EvictionQueue::Head head = context_->cap_queue.First();
    if (head.presence == nullptr || head.shard != number_) return;
    const EntryTree::Victim victim = FirstVictim(*head.presence);
    if (victim.key != head.key) {
      context_->cap_queue.Record(head.presence, number_, victim.key, &head.presence->cap_place);
      continue;
    }
    const bool lfu = head.presence->scope->model->tenant->lfu.load(std::memory_order_relaxed);
    RemoveEntry(victim.id);
    evicted[lfu ? 1 : 0].fetch_add(1, std::memory_order_relaxed);
    --budget;
    Settle();
  }
}

int64_t Shard::EvictForQuota(Tenant* tenant, int64_t quota, size_t budget) {
  WriterLock lock(&mutex_);
  int64_t evicted = 0;
  while (budget > 0 && tenant->prefixes.load(std::memory_order_relaxed) > quota) {
    const EvictionQueue::Head head = tenant->quota_queue.First();
    if (head.presence == nullptr || head.shard != number_) break;
    Presence& presence = *head.presence;
    const EntryTree::Victim victim = presence.tree.FirstWitness(entries_, presence.lease_us);
    if (victim.id == kNoEntry) {
      tenant->quota_queue.Remove(&presence, number_, &presence.quota_place);
      continue;
    }
    if (victim.key != head.key) {
      tenant->quota_queue.Record(&presence, number_, victim.key, &presence.quota_place);
      continue;
    }
    const PrefixId prefix_id = entries_[victim.id].prefix;
    const EntryId freshest = Freshest(prefixes_[prefix_id], victim.id);
    if (freshest != victim.id) {
      MoveWitness(prefixes_[prefix_id], freshest);  // the prefix is younger than its witness said
    } else {
      RemovePrefix(prefix_id);
      ++evicted;
      --budget;
    }
    Settle();
  }
  return evicted;
}

void Shard::RequeueTenant(const Tenant* tenant) {
  WriterLock lock(&mutex_);
  for (auto& [key, model] : models_) {
    if (model.tenant.get() != tenant) continue;
    for (auto& [scheme, scope] : model.scopes) {
      for (Presence* presence : scope.by_name) {
        context_->cap_queue.Record(presence, number_, FirstVictim(*presence).key, &presence->cap_place);
      }
    }
  }
}

}  // namespace icache
