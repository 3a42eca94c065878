// Writing to a shard: the steps of observations, of the sweep and of eviction.
#include "index/shard.h"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "absl/container/flat_hash_set.h"

namespace icache {
namespace {

// What the index accounts for one object of each kind: the object, its slot in the tables that find it at their usual
// load, and the allocator's own share. Names come on top; what holds blocks is counted exactly (EndStep).
constexpr int64_t kPartitionBytes = sizeof(Partition) + 176;
constexpr int64_t kPresenceBytes = sizeof(Presence) + 320;  // two queue nodes, a partition's slot, the scope's lists
constexpr int64_t kScopeBytes = sizeof(Scope) + 64;
constexpr int64_t kReplicaBytes = sizeof(Replica) + 64;
constexpr int64_t kStatsBytes = sizeof(ReplicaStats) + 16;
constexpr int64_t kModelBytes = sizeof(Model) + 512;  // the tenant's and the model's records included

// Retired memory is freed when there is this much of it, or a share of all that holds blocks.
constexpr size_t kMaxRetiredBytes = 256 * 1024;
constexpr size_t kRetiredShare = 32;

// A shard that held this much asks the C library to give memory back when it is empty, which it would not do by itself.
constexpr int64_t kTrimBytes = 4 << 20;

// Longest client_version that is kept.
constexpr size_t kMaxClientVersionBytes = 512;

float FiniteOrZero(float value) { return std::isfinite(value) ? value : 0; }

// The first `limit` bytes of `text`, cut before a UTF-8 sequence that would not fit whole.
std::string_view Truncated(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xc0) == 0x80) --limit;
  return text.substr(0, limit);
}

}  // namespace

void Scope::NumberNames(size_t first) {
  for (size_t i = first; i < by_name.size(); ++i) slots[by_name[i]->slot].name_order = static_cast<uint32_t>(i);
}

Shard::Shard(IndexContext* context, size_t number)
    : context_(context),
      number_(number),
      secret_(uint64_t{std::random_device()()} << 32 | std::random_device()()),
      retired_(&arena_, &extents_),
      table_(&extents_, &retired_) {}

Shard::~Shard() {
  // The arena frees the runs, but not the lists that they point to.
  absl::flat_hash_set<SpanList*> lists;
  table_.ForEach([&](const Place& place) {
    if (SpanList* const list = RunAt(place.run).list()) lists.insert(list);
  });
  for (SpanList* list : lists) std::free(list);
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
  return FindReplica(FindModel(origin.tenant_id, origin.model_id), origin.replica_id);
}

Replica* Shard::FindReplica(Model* model, std::string_view replica_id) {
  if (model == nullptr) return nullptr;
  auto found = model->replicas.find(replica_id);
  return found == model->replicas.end() ? nullptr : &found->second;
}

bool Shard::FencesOff(const Replica* replica, const Origin& origin) {
  return replica != nullptr && origin.stamped && replica->IsFenced(origin.now_us) && origin.time_us < replica->fence_us;
}

Replica& Shard::MakeReplica(const Origin& origin) {
  Model* model = FindModel(origin.tenant_id, origin.model_id);
  if (model == nullptr) {
    WriterLock structure(&mutex_);
    auto tenant = context_->tenants.Acquire(origin.tenant_id);
    auto record = context_->models.Acquire(origin.model_id);
    model = &models_
                 .try_emplace(ModelKey{std::string(origin.tenant_id), std::string(origin.model_id)}, std::move(tenant),
                              std::move(record))
                 .first->second;
    Account(kModelBytes + static_cast<int64_t>(origin.tenant_id.size() + origin.model_id.size()));
  }
  WriterLock structure(&mutex_);
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
  WriterLock structure(&mutex_);
  Account(kScopeBytes + static_cast<int64_t>(2 * hash_scheme.size()));
  return model.scopes.try_emplace(std::string(hash_scheme), &model, hash_scheme).first->second;
}

Partition& Shard::MakePartition(Scope& scope, std::string_view adapter_id) {
  auto found = scope.partitions.find(adapter_id);
  if (found != scope.partitions.end()) return found->second;
  uint32_t id = static_cast<uint32_t>(partitions_.size());
  if (free_partitions_.empty()) {
    partitions_.push_back(nullptr);
  } else {
    id = free_partitions_.back();
    free_partitions_.pop_back();
  }
  Account(kPartitionBytes + static_cast<int64_t>(2 * adapter_id.size()));
  WriterLock structure(&mutex_);
  Partition& partition =
      scope.partitions
          .try_emplace(std::string(adapter_id), &scope, adapter_id, id, secret_ + uint64_t{id} * 0xBF58476D1CE4E5B9)
          .first->second;
  partitions_[id] = &partition;
  partitions_by_name_.insert(&partition);
  if (adapter_id.empty()) scope.base = &partition;
  return partition;
}

Presence& Shard::MakePresence(Scope& scope, Replica& replica) {
  auto found = replica.presences.find(&scope);
  if (found != replica.presences.end()) return *found->second;
  WriterLock structure(&mutex_);
  std::unique_ptr<Presence>& presence = replica.presences[&scope];
  presence = std::make_unique<Presence>(&scope, &replica);
  if (scope.free_slots.empty()) {
    presence->slot = static_cast<uint32_t>(scope.slots.size());
    scope.slots.emplace_back();
  } else {
    presence->slot = scope.free_slots.back();
    scope.free_slots.pop_back();
  }
  scope.slots[presence->slot] = {.presence = presence.get(), .name = replica.name, .stats = replica.stats.get()};
  const auto place = scope.by_name.insert(
      std::lower_bound(scope.by_name.begin(), scope.by_name.end(), replica.name,
                       [](const Presence* present, const std::string& name) { return present->replica->name < name; }),
      presence.get());
  scope.NumberNames(static_cast<size_t>(place - scope.by_name.begin()));
  Account(kPresenceBytes);
  return *presence;
}

bool Shard::HasRoomForIdle() const {
  return context_->counters.idle_replicas.load(std::memory_order_relaxed) < context_->options.max_idle_replicas;
}

void Shard::Account(int64_t bytes) { context_->counters.memory_bytes.fetch_add(bytes, std::memory_order_relaxed); }

// ---- The end of a step ----------------------------------------------------------------------------------------------

void Shard::Unsettle(Presence& presence) {
  if (presence.unsettled) return;
  presence.unsettled = true;
  unsettled_.push_back(&presence);
}

AgeTree::Victim Shard::FirstVictim(Presence& presence) {
  const int64_t lease_us = presence.lease_us();
  return presence.scope->model->tenant->lfu.load(std::memory_order_relaxed)
             ? presence.ages.FirstLfu(leaves_, SpansOf(presence), lease_us)
             : presence.ages.FirstLru(leaves_, SpansOf(presence), lease_us);
}

void Shard::Settle() {
  FreePartitions();
  // By index: the credits that go before a presence does may unsettle others.
  for (size_t i = 0; i < unsettled_.size(); ++i) {
    Presence* const presence = unsettled_[i];
    presence->unsettled = false;
    if (presence->entries == 0) {
      DestroyPresence(*presence);
      continue;
    }
    const EvictionKey cap_key = std::exchange(presence->new_cap_key, EvictionKey::Never());
    if (!presence->cap_place.queued || cap_key < presence->cap_place.key) {
      context_->cap_queue.Record(presence, number_, cap_key, &presence->cap_place);
    }
    const EvictionKey quota_key = std::exchange(presence->new_quota_key, EvictionKey::Never());
    if (quota_key < EvictionKey::Never() && (!presence->quota_place.queued || quota_key < presence->quota_place.key)) {
      presence->scope->model->tenant->quota_queue.Record(presence, number_, quota_key, &presence->quota_place);
    }
  }
  unsettled_.clear();
}

void Shard::EndStep() {
  Settle();
  const auto bytes = static_cast<int64_t>(arena_.bytes() - retired_.record_bytes() + list_bytes_ + table_.bytes() +
                                          leaves_.live() * sizeof(AgeLeaf));
  Account(bytes - block_bytes_);
  block_bytes_ = bytes;
  if (retired_.bytes() > std::min(kMaxRetiredBytes, static_cast<size_t>(bytes) / kRetiredShare)) {
    FreeRetired();
    Settle();
  }
  peak_bytes_ = std::max(peak_bytes_, bytes);
  if (bytes == 0 && std::exchange(peak_bytes_, 0) > kTrimBytes) malloc_trim(0);
}

void Shard::FreeRetired() {
  DrainCredits();
  {
    // Whoever looked before this is gone after it, and what it has earned is in the list.
    WriterLock readers(&mutex_);
    DrainCredits();
  }
  retired_.Free();
}

void Shard::FreePartitions() {
  if (emptied_.empty()) return;
  WriterLock structure(&mutex_);
  for (Partition* partition : emptied_) {
    partition->emptied = false;
    if (partition->prefixes > 0) continue;
    Account(-kPartitionBytes - static_cast<int64_t>(2 * partition->adapter_id.size()));
    partitions_[partition->id] = nullptr;
    partitions_by_name_.erase(partition);
    free_partitions_.push_back(partition->id);
    Scope& scope = *partition->scope;
    if (scope.base == partition) scope.base = nullptr;
    scope.partitions.erase(scope.partitions.find(std::string_view(partition->adapter_id)));
  }
  emptied_.clear();
}

void Shard::DestroyPresence(Presence& presence) {
  Scope& scope = *presence.scope;
  Replica& replica = *presence.replica;
  Model& model = *scope.model;
  context_->cap_queue.Remove(&presence, number_, &presence.cap_place);
  model.tenant->quota_queue.Remove(&presence, number_, &presence.quota_place);
  DrainCredits();
  {
    WriterLock structure(&mutex_);
    DrainCredits();  // the last ones, while its slot still means this presence
    const uint32_t name_order = scope.slots[presence.slot].name_order;
    scope.slots[presence.slot] = {};
    scope.free_slots.push_back(presence.slot);
    scope.by_name.erase(scope.by_name.begin() + name_order);
    scope.NumberNames(name_order);
    replica.presences.erase(&scope);  // `presence` is gone
    Account(-kPresenceBytes);
    if (scope.by_name.empty()) {
      Account(-kScopeBytes - static_cast<int64_t>(2 * scope.hash_scheme.size()));
      model.scopes.erase(model.scopes.find(std::string_view(scope.hash_scheme)));
    }
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
  WriterLock structure(&mutex_);
  model.replicas.erase(model.replicas.find(std::string_view(replica.name)));
  if (!model.replicas.empty()) return;
  Account(-kModelBytes - static_cast<int64_t>(model.tenant->name.size() + model.record->name.size()));
  models_.erase(models_.find(ModelKeyView(model.tenant->name, model.record->name)));
}

void Shard::DropStats(Replica& replica) {
  if (replica.stats == nullptr) return;
  Account(-kStatsBytes - static_cast<int64_t>(replica.stats->client_version.size()));
  replica.model->record->stats_rows.fetch_sub(1, std::memory_order_relaxed);
  PublishStats(replica, nullptr);
}

void Shard::PublishStats(Replica& replica, std::unique_ptr<ReplicaStats> stats) {
  WriterLock structure(&mutex_);
  replica.stats = std::move(stats);
  for (auto& [scope, presence] : replica.presences) scope->slots[presence->slot].stats = replica.stats.get();
}

// ---- Steps of writing -----------------------------------------------------------------------------------------------

bool Shard::IsFenced(const Origin& origin) {
  MutexLock lock(&write_mutex_);
  return FencesOff(FindReplica(origin), origin);
}

Shard::Admission Shard::Admit(const Origin& origin) {
  MutexLock lock(&write_mutex_);
  Model* const model = FindModel(origin.tenant_id, origin.model_id);
  if (model == nullptr) {
    return {.fenced = false,
            .tenant = context_->tenants.Acquire(origin.tenant_id),
            .model = context_->models.Acquire(origin.model_id)};
  }
  return {.fenced = FencesOff(FindReplica(model, origin.replica_id), origin),
          .tenant = model->tenant,
          .model = model->record};
}

Shard::Verdict Shard::Store(const Origin& origin, std::string_view adapter_id, Tier tier, const BlockWrites& blocks) {
  MutexLock lock(&write_mutex_);
  Replica* const known = FindReplica(origin);
  if (FencesOff(known, origin)) return Verdict::kFenced;
  change_us_ = origin.time_us;
  DrainCredits();
  Replica& replica = known != nullptr ? *known : MakeReplica(origin);
  Scope& scope = MakeScope(*replica.model, origin.hash_scheme);
  Partition& partition = MakePartition(scope, adapter_id);
  Presence& presence = MakePresence(scope, replica);
  StoreBlocks(partition, presence, tier, origin.time_us, blocks);
  EndStep();
  SettleReplica(replica);
  return Verdict::kDone;
}

Shard::Verdict Shard::Evict(const Origin& origin, std::string_view adapter_id, absl::Span<const BlockHash> hashes) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kDone;
  auto scope = replica->model->scopes.find(origin.hash_scheme);
  if (scope == replica->model->scopes.end()) return Verdict::kDone;
  auto presence = replica->presences.find(&scope->second);
  if (presence == replica->presences.end()) return Verdict::kDone;
  auto partition = scope->second.partitions.find(adapter_id);
  if (partition == scope->second.partitions.end()) return Verdict::kDone;
  change_us_ = origin.time_us;
  DrainCredits();
  ReleaseHashes(partition->second, *presence->second, hashes, origin.time_us);
  EndStep();
  return Verdict::kDone;
}

Shard::Verdict Shard::EvictEverywhere(const Origin& origin, std::string_view adapter_id, BlockHash hash) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kDone;
  change_us_ = origin.time_us;
  DrainCredits();
  for (auto& [scope, presence] : replica->presences) {
    // A copy, since the releases take partitions off the list.
    absl::InlinedVector<Partition*, 8> partitions;
    for (const auto& [partition, entries] : presence->partitions) {
      if (adapter_id.empty() || partition->adapter_id == adapter_id) partitions.push_back(partition);
    }
    for (Partition* partition : partitions) {
      ReleaseHashes(*partition, *presence, absl::MakeConstSpan(&hash, 1), origin.time_us);
    }
  }
  EndStep();
  return Verdict::kDone;
}

Shard::Verdict Shard::BeginClear(const Origin& origin, int64_t ttl_us) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  TellReplica(CacheEventType::kAllCleared, origin);
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
    const int64_t lease_us = presence->lease_us();
    if (lease_us == kNoTime || lease_us > origin.time_us) continue;
    presence->set_lease_us(kNoTime);
    // Without the lease its entries are older.
    presence->new_cap_key = presence->new_quota_key = presence->ages.LowerBound(leaves_);
    Unsettle(*presence);
  }
  EndStep();
  SettleReplica(*replica);
  return verdict;
}

Shard::Verdict Shard::ContinueClear(const Origin& origin, size_t budget) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (replica == nullptr) return Verdict::kDone;
  change_us_ = kNoTime;  // the beginning has told of it
  DrainCredits();
  size_t released = 0;
  for (auto& [scope, presence] : replica->presences) {
    while (released < budget && !presence->ages.empty()) {
      const AgeTree::Victim oldest = presence->ages.Oldest(leaves_, SpansOf(*presence));
      if (oldest.span.seen_us > origin.time_us) break;
      released += Release(oldest.run, oldest.span.start, oldest.span.end, *presence, oldest.span.seen_us);
    }
  }
  EndStep();
  return released >= budget ? Verdict::kMore : Verdict::kDone;
}

Shard::Verdict Shard::RenewLease(const Origin& origin) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) return Verdict::kRefused;
  auto scope = replica->model->scopes.find(origin.hash_scheme);
  if (scope == replica->model->scopes.end()) return Verdict::kRefused;
  auto presence = replica->presences.find(&scope->second);
  if (presence == replica->presences.end()) return Verdict::kRefused;
  presence->second->set_lease_us(std::max(presence->second->lease_us(), origin.time_us));
  return Verdict::kDone;
}

Shard::Verdict Shard::SetStats(const Origin& origin, const StatsReport& report) {
  MutexLock lock(&write_mutex_);
  Replica* replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica == nullptr) {
    if (!HasRoomForIdle()) return Verdict::kRefused;
    replica = &MakeReplica(origin);
  }
  DropStats(*replica);
  const absl::Time time = absl::FromUnixMicros(origin.time_us);
  auto stats = std::make_unique<ReplicaStats>(
      ReplicaStats{.cache_memory_bytes = report.cache_memory_bytes,
                   .hit_rate = FiniteOrZero(report.hit_rate),
                   .pressure = FiniteOrZero(report.pressure),
                   .client_version = std::string(Truncated(report.client_version, kMaxClientVersionBytes)),
                   .t2_hit_tokens = report.t2_hit_tokens,
                   .t2_query_tokens = report.t2_query_tokens,
                   .last_seen = time,
                   .reported = time});
  replica->model->record->stats_rows.fetch_add(1, std::memory_order_relaxed);
  Account(kStatsBytes + static_cast<int64_t>(stats->client_version.size()));
  PublishStats(*replica, std::move(stats));
  TellReplica(CacheEventType::kReplicaUpdated, origin);
  SettleReplica(*replica);
  return Verdict::kDone;
}

Shard::Verdict Shard::TouchStats(const Origin& origin) {
  MutexLock lock(&write_mutex_);
  Replica* const replica = FindReplica(origin);
  if (FencesOff(replica, origin)) return Verdict::kFenced;
  if (replica != nullptr && replica->stats != nullptr) {
    WriterLock structure(&mutex_);
    replica->stats->last_seen = absl::FromUnixMicros(origin.time_us);
  }
  TellReplica(CacheEventType::kReplicaUpdated, origin);
  return Verdict::kDone;
}

// ---- Expiry and eviction --------------------------------------------------------------------------------------------

bool Shard::SweepStep(absl::Time now, size_t budget, size_t* freed) {
  MutexLock lock(&write_mutex_);
  if (!sweeping_) {
    sweeping_ = true;
    sweep_next_ = replicas_;
  }
  DrainCredits();
  const int64_t now_us = absl::ToUnixMicros(now);
  change_us_ = now_us;
  while (sweep_next_ != nullptr && budget > 0) {
    --budget;  // for the visit
    Replica& replica = *sweep_next_;
    const RetentionRules rules = context_->retention->For(replica.model->tenant->name);
    const int64_t dead_us = absl::ToUnixMicros(now - rules.ttl);
    size_t expired = 0;
    for (auto& [scope, presence] : replica.presences) {
      if (presence->lease_us() > dead_us) continue;
      while (expired < budget && !presence->ages.empty()) {
        const AgeTree::Victim oldest = presence->ages.Oldest(leaves_, SpansOf(*presence));
        if (oldest.span.seen_us > dead_us) break;
        expired += Release(oldest.run, oldest.span.start, oldest.span.end, *presence, oldest.span.seen_us);
      }
    }
    context_->counters.expired[rules.algorithm == EvictionAlgorithm::kLfu ? 1 : 0].fetch_add(
        static_cast<int64_t>(expired), std::memory_order_relaxed);
    *freed += expired;
    budget -= std::min(budget, expired);
    if (budget > 0) {
      // Done with this replica, which the rest may free.
      sweep_next_ = replica.next;
      if (replica.stats != nullptr && absl::ToUnixMicros(replica.stats->last_seen) <= dead_us) DropStats(replica);
      if (!replica.IsFenced(now_us)) replica.fence_us = kNoTime;
      if (replica.presences.empty()) SettleReplica(replica);
    }
    EndStep();
  }
  if (sweep_next_ == nullptr) sweeping_ = false;
  return sweeping_;
}

void Shard::EvictForBound(absl::FunctionRef<int64_t()> excess, int64_t budget, int64_t now_us,
                          std::atomic<int64_t>* evicted) {
  MutexLock lock(&write_mutex_);
  change_us_ = now_us;
  DrainCredits();
  for (int64_t too_many; budget > 0 && (too_many = excess()) > 0;) {
    const EvictionQueue::Head head = context_->cap_queue.First();
    if (head.presence == nullptr || head.shard != number_) return;
    Presence& presence = *head.presence;
    const AgeTree::Victim victim = FirstVictim(presence);
    if (victim.key != head.key) {
      context_->cap_queue.Record(&presence, number_, victim.key, &presence.cap_place);
      continue;
    }
    // A span that is older than all others goes block by block before anything else does, so at once.
    const bool first_of_all = victim.alone && victim.key.seen_us < head.next_seen_us;
    const int64_t count = first_of_all ? std::min({int64_t{victim.span.size()}, too_many, budget}) : 1;
    const bool lfu = presence.scope->model->tenant->lfu.load(std::memory_order_relaxed);
    Release(victim.run, victim.span.end - static_cast<uint32_t>(count), victim.span.end, presence, victim.span.seen_us);
    evicted[lfu ? 1 : 0].fetch_add(count, std::memory_order_relaxed);
    budget -= count;
    EndStep();
  }
}

int64_t Shard::EvictForQuota(Tenant* tenant, int64_t quota, size_t budget, int64_t now_us) {
  MutexLock lock(&write_mutex_);
  change_us_ = now_us;
  DrainCredits();
  int64_t evicted = 0;
  while (budget > 0 && tenant->prefixes.load(std::memory_order_relaxed) > quota) {
    --budget;
    const EvictionQueue::Head head = tenant->quota_queue.First();
    if (head.presence == nullptr || head.shard != number_) break;
    Presence& presence = *head.presence;
    const AgeTree::Victim victim = presence.ages.FirstWitness(leaves_, SpansOf(presence), presence.lease_us());
    if (victim.run == 0) {
      tenant->quota_queue.Remove(&presence, number_, &presence.quota_place);
      continue;
    }
    if (victim.key != head.key) {
      tenant->quota_queue.Record(&presence, number_, victim.key, &presence.quota_place);
      continue;
    }
    if (!PassOn(victim.run, victim.span, presence)) {
      ReleaseFromAll(victim.run, victim.span.witness - 1);
      ++evicted;
    }
    EndStep();
  }
  return evicted;
}

void Shard::RequeueTenant(const Tenant* tenant) {
  MutexLock lock(&write_mutex_);
  for (auto& [key, model] : models_) {
    if (model.tenant.get() != tenant) continue;
    for (auto& [scheme, scope] : model.scopes) {
      for (Presence* presence : scope.by_name) {
        // The evictor corrects it where it matters.
        context_->cap_queue.Record(presence, number_, EvictionKey(), &presence->cap_place);
      }
    }
  }
}

}  // namespace icache
