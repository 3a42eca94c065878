// ShardedIndex: a PrefixIndex of independent shards, each holding whole (tenant, model)s behind one lock.
//
// This file is what spans shards: it checks observations, cuts them into steps that hold a shard's lock only briefly,
// and enforces quotas and bounds. What one shard holds, and its invariants, is told in shard.h; how victims are found,
// in age_tree.h and eviction_queue.h.
//
// Order of locks: eviction_mutex_, then one shard's (in the order that shard.h gives), then a leaf (directories,
// eviction queues, the retention source).
#include "icache/index/sharded_index.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "index/index_context.h"
#include "index/shard.h"

namespace icache {
namespace {

// Blocks stored or released under one hold of a shard's writer lock, which lookups do not wait for.
constexpr size_t kStepBlocks = kMaxRunBlocks;

// Stamps older than this are counted as suspicious. Source: contract/index.md.
constexpr absl::Duration kSuspiciousAge = absl::Hours(24);

bool IsName(std::string_view name) { return !name.empty() && name.size() <= kMaxNameBytes; }

Origin OriginOf(std::string_view tenant_id, std::string_view model_id, std::string_view hash_scheme,
                std::string_view replica_id, std::optional<absl::Time> stamped_at, absl::Time now) {
  Origin origin{.tenant_id = tenant_id, .model_id = model_id, .hash_scheme = hash_scheme, .replica_id = replica_id};
  origin.now_us = absl::ToUnixMicros(now);
  origin.stamped = stamped_at.has_value();
  // kNoTime itself is never a time, so that "no lease" and "no fence" stay distinct from the oldest stamp.
  origin.time_us =
      stamped_at.has_value() ? std::clamp(absl::ToUnixMicros(*stamped_at), kNoTime + 1, origin.now_us) : origin.now_us;
  return origin;
}

int64_t ToMicros(absl::Duration duration) { return absl::ToInt64Microseconds(duration); }

class ShardedIndex final : public PrefixIndex {
 public:
  ShardedIndex(const IndexOptions& options, const RetentionSource* retention, ChangeObserver* change_observer)
      : context_(options, retention, change_observer) {
    for (int32_t i = 0; i < options.shard_count; ++i) {
      shards_.push_back(std::make_unique<Shard>(&context_, static_cast<size_t>(i)));
    }
  }

  ApplyResult ApplyUpdate(const StateUpdate& update, absl::Time now) override;
  ApplyResult ApplyEvent(const CacheEvent& event, absl::Time now) override;
  void Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const override {
    ShardOf(key.tenant_id, key.model_id).Read(key, reader);
  }
  CacheState GetState(std::string_view tenant_id, std::string_view model_id) const override {
    return ShardOf(tenant_id, model_id).GetState(tenant_id, model_id);
  }
  size_t Sweep(absl::Time now) override;
  IndexStats Stats() const override;
  bool HoldsModel(std::string_view model_id) const override;
  void ForEachModel(absl::FunctionRef<void(std::string_view, const ModelStats&)> visit) const override;
  void ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const override;
  std::vector<PartitionState> ListPartitions(std::string_view tenant_id, const std::optional<PartitionName>& after,
                                             size_t limit) const override;
  ScopeReplicas ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) const override {
    return ShardOf(key.tenant_id, key.model_id).ListReplicas(key, after, limit);
  }
  void ForEachQuotaTenant(absl::FunctionRef<void(std::string_view, int64_t)> visit) const override
      ABSL_LOCKS_EXCLUDED(quota_mutex_);
  absl::Status CheckInvariants() const override;

 private:
  Shard& ShardOf(std::string_view tenant_id, std::string_view model_id) const {
    const size_t hash = absl::HashOf(StringHash()(tenant_id), StringHash()(model_id));
    return *shards_[hash >> 32 & (shards_.size() - 1)];
  }

  // The parts of an update, each in steps. False: fenced off in between, nothing more is to be applied.
  static bool Clear(Shard& shard, const Origin& origin, absl::Duration ttl, DropCounts* dropped);
  static bool Evict(Shard& shard, const Origin& origin, const StateUpdate& update, DropCounts* dropped);
  static bool Store(Shard& shard, const Origin& origin, const StateUpdate& update, const PrefixReport& report,
                    ApplyResult* result);

  void EnforceQuota(Tenant* tenant, int64_t quota, int64_t now_us) ABSL_LOCKS_EXCLUDED(eviction_mutex_, quota_mutex_);
  void EnforceBounds(int64_t now_us) ABSL_LOCKS_EXCLUDED(eviction_mutex_);
  void EvictWhile(absl::FunctionRef<int64_t()> excess, int64_t now_us, std::atomic<int64_t>* evicted)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(eviction_mutex_);
  // Takes over changes of tenants' eviction algorithms.
  void RefreshAlgorithms() ABSL_EXCLUSIVE_LOCKS_REQUIRED(eviction_mutex_);

  IndexContext context_;
  std::vector<std::unique_ptr<Shard>> shards_;  // the vector never changes; each Shard locks itself

  Mutex eviction_mutex_;  // one evictor at a time, so that each evicts no more than needed
  uint64_t algorithms_version_ ABSL_GUARDED_BY(eviction_mutex_) = 0;

  mutable Mutex quota_mutex_;
  // Prefixes evicted for the quota of each tenant that has, or had, one.
  StringMap<int64_t> quota_evictions_ ABSL_GUARDED_BY(quota_mutex_);
};

bool ShardedIndex::Clear(Shard& shard, const Origin& origin, absl::Duration ttl, DropCounts* dropped) {
  switch (shard.BeginClear(origin, ToMicros(ttl))) {
    case Shard::Verdict::kFenced:
      return false;
    case Shard::Verdict::kRefused:
      dropped->Add(DropReason::kReplicaLimit);
      break;
    case Shard::Verdict::kDone:
    case Shard::Verdict::kMore:
      break;
  }
  while (shard.ContinueClear(origin, kStepBlocks) == Shard::Verdict::kMore) {
  }
  return true;
}

bool ShardedIndex::Evict(Shard& shard, const Origin& origin, const StateUpdate& update, DropCounts* dropped) {
  const size_t total = update.evicted_hashes.size() + update.evicted_hashes_u64.size();
  if (origin.hash_scheme.empty()) {
    dropped->Add(DropReason::kMissingScheme, total);
    return true;
  }
  absl::InlinedVector<BlockHash, kStepBlocks> step;
  for (size_t next = 0; next < total;) {
    step.clear();
    for (; next < total && step.size() < kStepBlocks; ++next) {
      const BlockHash hash = next < update.evicted_hashes.size()
                                 ? BlockHash(update.evicted_hashes[next])
                                 : BlockHash(update.evicted_hashes_u64[next - update.evicted_hashes.size()]);
      if (hash.IsValid()) {
        step.push_back(hash);
      } else {
        dropped->Add(DropReason::kMalformedEviction);
      }
    }
    if (shard.Evict(origin, update.adapter_id, step) == Shard::Verdict::kFenced) return false;
  }
  return true;
}

bool ShardedIndex::Store(Shard& shard, const Origin& origin, const StateUpdate& update, const PrefixReport& report,
                         ApplyResult* result) {
  const std::string_view adapter_id = report.adapter_id.empty() ? update.adapter_id : report.adapter_id;
  const ResolvedChain resolved = ResolveChain(report.chain);
  const bool single = !report.prefix_hash.empty();
  const bool malformed = resolved.form == ChainForm::kMismatched || resolved.form == ChainForm::kMalformed ||
                         (resolved.form == ChainForm::kAbsent && !single) ||
                         (single && (report.prefix_hash.size() > kMaxBlockHashBytes || report.token_count < 0)) ||
                         adapter_id.size() > kMaxNameBytes;
  if (malformed) {
    result->dropped.Add(DropReason::kMalformedEntry);
    return true;
  }
  if (origin.hash_scheme.empty()) {
    result->dropped.Add(DropReason::kMissingScheme);
    return true;
  }
  const Tier tier = TierFromWire(report.tier);
  const auto store = [&](const Chain& chain, absl::Span<const int32_t> cumulative) {
    for (size_t first = 0; first < chain.size(); first += kStepBlocks) {
      const size_t size = std::min(kStepBlocks, chain.size() - first);
      const BlockWrites blocks = {.chain = chain, .cumulative = cumulative, .first = first, .size = size};
      if (shard.Store(origin, adapter_id, tier, blocks) == Shard::Verdict::kFenced) return false;
      result->entries_stored += size;
    }
    return true;
  };
  std::vector<int32_t> cumulative;
  if (!resolved.chain.is_uniform()) {
    cumulative.reserve(resolved.chain.size());
    for (size_t i = 0; i < resolved.chain.size(); ++i) {
      cumulative.push_back((i > 0 ? cumulative.back() : 0) + resolved.chain.tokens(i));
    }
  }
  if (!store(resolved.chain, cumulative)) return false;
  return !single || store(Chain(BlockHashSpan(absl::MakeConstSpan(&report.prefix_hash, 1)), report.token_count), {});
}

ApplyResult ShardedIndex::ApplyUpdate(const StateUpdate& update, absl::Time now) {
  ApplyResult result;
  if (!IsName(update.replica_id) || !IsName(update.model_id) || !IsName(update.tenant_id) ||
      update.hash_scheme.size() > kMaxNameBytes || update.adapter_id.size() > kMaxNameBytes) {
    result.dropped.Add(DropReason::kMalformedUpdate);
    return result;
  }
  const Origin origin =
      OriginOf(update.tenant_id, update.model_id, update.hash_scheme, update.replica_id, update.stamped_at, now);
  Shard& shard = ShardOf(update.tenant_id, update.model_id);
  // Held for the whole update, so that eviction can use the tenant whatever other threads remove.
  const auto [fenced, tenant, model] = shard.Admit(origin);
  if (fenced) {
    result.dropped.Add(DropReason::kFenced);
    return result;
  }
  const RetentionRules rules = context_.retention->For(update.tenant_id);
  if (tenant->prefixes.load(std::memory_order_relaxed) == 0) {
    tenant->lfu.store(rules.algorithm == EvictionAlgorithm::kLfu, std::memory_order_relaxed);
  }
  model->last_applied_us.store(origin.now_us, std::memory_order_relaxed);
  result.applied = true;
  if (update.stamped_at.has_value() && *update.stamped_at < now - kSuspiciousAge) {
    result.dropped.Add(DropReason::kStaleTimestamp);
  }

  const auto apply_parts = [&] {
    if (update.clear && !Clear(shard, origin, rules.ttl, &result.dropped)) return false;
    if (!Evict(shard, origin, update, &result.dropped)) return false;
    for (const PrefixReport& report : update.prefixes) {
      if (!Store(shard, origin, update, report, &result)) return false;
    }
    if (update.retains_all) {
      const Shard::Verdict verdict = origin.hash_scheme.empty() ? Shard::Verdict::kRefused : shard.RenewLease(origin);
      if (verdict == Shard::Verdict::kFenced) return false;
      if (verdict == Shard::Verdict::kRefused) result.dropped.Add(DropReason::kLeaseRefused);
    }
    if (update.stats.has_value()) {
      const Shard::Verdict verdict = shard.SetStats(origin, *update.stats);
      if (verdict == Shard::Verdict::kFenced) return false;
      if (verdict == Shard::Verdict::kRefused) result.dropped.Add(DropReason::kReplicaLimit);
    }
    return true;
  };
  // Another stream's clear may fence this update off half-way.
  if (!apply_parts()) result.dropped.Add(DropReason::kFenced);

  if (rules.max_prefixes.has_value()) EnforceQuota(tenant.get(), *rules.max_prefixes, origin.now_us);
  EnforceBounds(origin.now_us);
  return result;
}

ApplyResult ShardedIndex::ApplyEvent(const CacheEvent& event, absl::Time now) {
  ApplyResult result;
  const bool malformed = event.replica_id.empty() || event.model_id.empty() || event.tenant_id.empty() ||
                         (event.type == CacheEventType::kPrefixEvicted && !BlockHash(event.prefix_hash).IsValid());
  if (malformed) {
    result.dropped.Add(DropReason::kMalformedEvent);
    return result;
  }
  const Origin origin =
      OriginOf(event.tenant_id, event.model_id, /*hash_scheme=*/"", event.replica_id, event.stamped_at, now);
  Shard& shard = ShardOf(event.tenant_id, event.model_id);
  bool fenced = false;
  switch (event.type) {
    case CacheEventType::kPrefixEvicted:
      fenced = shard.EvictEverywhere(origin, event.adapter_id, BlockHash(event.prefix_hash)) == Shard::Verdict::kFenced;
      break;
    case CacheEventType::kAllCleared:
      fenced = !Clear(shard, origin, context_.retention->For(event.tenant_id).ttl, &result.dropped);
      break;
    case CacheEventType::kReplicaUpdated:
      fenced = shard.TouchStats(origin) == Shard::Verdict::kFenced;
      break;
    case CacheEventType::kPrefixAdded:
    case CacheEventType::kUnspecified:
      fenced = shard.IsFenced(origin);
      break;
  }
  if (fenced) result.dropped.Add(DropReason::kFenced);
  result.applied = !fenced;
  return result;
}

void ShardedIndex::EnforceQuota(Tenant* tenant, int64_t quota, int64_t now_us) {
  if (tenant->prefixes.load(std::memory_order_relaxed) <= quota) return;
  int64_t evicted = 0;
  {
    MutexLock lock(&eviction_mutex_);
    while (tenant->prefixes.load(std::memory_order_relaxed) > quota) {
      const EvictionQueue::Head head = tenant->quota_queue.First();
      if (head.presence == nullptr) break;
      evicted += shards_[head.shard]->EvictForQuota(tenant, quota, kStepBlocks, now_us);
    }
  }
  if (evicted == 0) return;
  MutexLock lock(&quota_mutex_);
  quota_evictions_.try_emplace(tenant->name, 0).first->second += evicted;
}

void ShardedIndex::EnforceBounds(int64_t now_us) {
  const IndexOptions& options = context_.options;
  IndexCounters& counters = context_.counters;
  const auto over_cap = [&]() -> int64_t {
    return options.max_entries == 0 ? 0 : counters.entries.load(std::memory_order_relaxed) - options.max_entries;
  };
  // In entries, of which each takes this much at least.
  const auto over_memory = [&]() -> int64_t {
    constexpr int64_t kLeastEntryBytes = 4;
    if (options.max_memory_bytes == 0) return 0;
    const int64_t bytes = counters.memory_bytes.load(std::memory_order_relaxed) - options.max_memory_bytes;
    return bytes <= 0 ? 0 : (bytes + kLeastEntryBytes - 1) / kLeastEntryBytes;
  };
  if (over_cap() <= 0 && over_memory() <= 0) return;
  MutexLock lock(&eviction_mutex_);
  RefreshAlgorithms();
  EvictWhile(over_cap, now_us, counters.evicted_for_cap);
  EvictWhile(over_memory, now_us, counters.evicted_for_memory);
}

void ShardedIndex::EvictWhile(absl::FunctionRef<int64_t()> excess, int64_t now_us, std::atomic<int64_t>* evicted) {
  while (excess() > 0) {
    const EvictionQueue::Head head = context_.cap_queue.First();
    if (head.presence == nullptr) return;
    shards_[head.shard]->EvictForBound(excess, kStepBlocks, now_us, evicted);
  }
}

void ShardedIndex::RefreshAlgorithms() {
  const uint64_t version = context_.retention->Version();
  if (version == algorithms_version_) return;
  algorithms_version_ = version;
  std::vector<std::string> names;
  context_.tenants.ForEach([&](const Tenant& tenant) { names.push_back(tenant.name); });
  for (const std::string& name : names) {
    const bool lfu = context_.retention->For(name).algorithm == EvictionAlgorithm::kLfu;
    const Directory<Tenant>::Ref tenant = context_.tenants.Acquire(name);
    if (tenant->lfu.exchange(lfu, std::memory_order_relaxed) == lfu) continue;
    for (const auto& shard : shards_) shard->RequeueTenant(tenant.get());
  }
}

size_t ShardedIndex::Sweep(absl::Time now) {
  size_t freed = 0;
  for (const auto& shard : shards_) {
    while (shard->SweepStep(now, kStepBlocks, &freed)) {
    }
  }
  return freed;
}

IndexStats ShardedIndex::Stats() const {
  const IndexCounters& counters = context_.counters;
  IndexStats stats;
  stats.prefixes = counters.prefixes.load(std::memory_order_relaxed);
  stats.entries = counters.entries.load(std::memory_order_relaxed);
  stats.runs = counters.runs.load(std::memory_order_relaxed);
  stats.memory_bytes = counters.memory_bytes.load(std::memory_order_relaxed);
  for (size_t i = 0; i < 2; ++i) {
    stats.evicted_for_cap[i] = counters.evicted_for_cap[i].load(std::memory_order_relaxed);
    stats.evicted_for_memory[i] = counters.evicted_for_memory[i].load(std::memory_order_relaxed);
    stats.expired[i] = counters.expired[i].load(std::memory_order_relaxed);
  }
  return stats;
}

bool ShardedIndex::HoldsModel(std::string_view model_id) const {
  bool holds = false;
  context_.models.With(model_id, [&](const ModelRecord& record) {
    holds =
        record.prefixes.load(std::memory_order_relaxed) > 0 || record.stats_rows.load(std::memory_order_relaxed) > 0;
  });
  return holds;
}

void ShardedIndex::ForEachModel(absl::FunctionRef<void(std::string_view, const ModelStats&)> visit) const {
  context_.models.ForEach([&](const ModelRecord& record) {
    ModelStats stats;
    stats.prefixes = record.prefixes.load(std::memory_order_relaxed);
    stats.stats_rows = record.stats_rows.load(std::memory_order_relaxed);
    if (stats.prefixes == 0 && stats.stats_rows == 0) return;
    const int64_t last_us = record.last_applied_us.load(std::memory_order_relaxed);
    stats.last_applied = last_us == kNoTime ? absl::InfinitePast() : absl::FromUnixMicros(last_us);
    visit(record.name, stats);
  });
}

void ShardedIndex::ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const {
  if (tenant_id.empty()) {
    context_.tenants.ForEach([&](const Tenant& tenant) {
      if (tenant.prefixes.load(std::memory_order_relaxed) > 0) names->Add(tenant.name);
    });
  } else if (model_id.empty()) {
    for (const auto& shard : shards_) shard->ListModels(tenant_id, names);
  } else {
    ShardOf(tenant_id, model_id).ListSchemes(tenant_id, model_id, names);
  }
}

std::vector<PartitionState> ShardedIndex::ListPartitions(std::string_view tenant_id,
                                                         const std::optional<PartitionName>& after,
                                                         size_t limit) const {
  std::map<PartitionName, PartitionState> found;
  for (const auto& shard : shards_) shard->ListPartitions(tenant_id, after, limit, &found);
  std::vector<PartitionState> partitions;
  for (auto& [name, state] : found) partitions.push_back(std::move(state));
  return partitions;
}

void ShardedIndex::ForEachQuotaTenant(absl::FunctionRef<void(std::string_view, int64_t)> visit) const {
  context_.retention->ForEachQuota([&](std::string_view tenant_id) {
    MutexLock lock(&quota_mutex_);
    const auto evicted = quota_evictions_.find(tenant_id);
    visit(tenant_id, evicted == quota_evictions_.end() ? 0 : evicted->second);
  });
}

absl::Status ShardedIndex::CheckInvariants() const {
  IndexStats counted;
  for (const auto& shard : shards_) {
    if (absl::Status status = shard->CheckInvariants(&counted); !status.ok()) return status;
  }
  const IndexStats stats = Stats();
  if (counted.entries != stats.entries) return absl::InternalError("S2: the index's entries");
  if (counted.runs != stats.runs) return absl::InternalError("S2: the index's runs");
  if (counted.prefixes != stats.prefixes) return absl::InternalError("S2: the index's prefixes");
  if (stats.entries == 0 && context_.counters.idle_replicas.load() == 0 && stats.memory_bytes != 0) {
    return absl::InternalError("an empty index accounts for " + std::to_string(stats.memory_bytes) + " bytes");
  }
  const int64_t cap = context_.options.max_entries;
  if (cap > 0 && stats.entries > cap) return absl::InternalError("more entries than the cap");
  return absl::OkStatus();
}

// What a replica without entries may take, with names as long as they may be.
constexpr int64_t kIdleReplicaBytes = 4096;

// Replicas without entries are not evicted for the sake of memory: at most an eighth of it is theirs.
IndexOptions WithRoomForEntries(IndexOptions options) {
  if (options.max_memory_bytes > 0) {
    const int64_t share = options.max_memory_bytes / 8 / kIdleReplicaBytes;
    options.max_idle_replicas = std::clamp<int64_t>(share, 1, options.max_idle_replicas);
  }
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixIndex>> CreateShardedIndex(const IndexOptions& options,
                                                                const RetentionSource* retention,
                                                                ChangeObserver* change_observer) {
  const auto out_of_range = [](const char* name, int64_t value, const char* bounds) {
    return absl::InvalidArgumentError(std::string(name) + ": must be " + bounds + ", got " + std::to_string(value));
  };
  if (options.max_entries < 0) return out_of_range("max_entries", options.max_entries, ">= 0");
  if (options.max_memory_bytes < 0) return out_of_range("max_memory_bytes", options.max_memory_bytes, ">= 0");
  if (options.hot_threshold < 1) return out_of_range("hot_threshold", options.hot_threshold, ">= 1");
  if (options.max_idle_replicas < 1) return out_of_range("max_idle_replicas", options.max_idle_replicas, ">= 1");
  if (options.shard_count < 1 || options.shard_count > 1024 ||
      !std::has_single_bit(static_cast<uint32_t>(options.shard_count))) {
    return out_of_range("shard_count", options.shard_count, "a power of two in 1..1024");
  }
  return std::make_unique<ShardedIndex>(WithRoomForEntries(options), retention, change_observer);
}

}  // namespace icache
