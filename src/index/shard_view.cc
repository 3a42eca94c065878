// Reading a shard: what a ScopeView shows, and GetCacheState.
#include <algorithm>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "index/shard.h"

namespace icache {
namespace {

// How far one replica follows a chain, while it is being matched.
struct Run {
  uint32_t slot;
  uint32_t blocks;
  int64_t tokens;
  int64_t seen_us;
  Tier tier;
};

}  // namespace

// A view holds no lock of its own: Shard::Read holds it.
class Shard::View final : public ScopeView {
 public:
  View(const Shard& shard, const ScopeKey& key) ABSL_SHARED_LOCKS_REQUIRED(shard.mutex_)
      : shard_(shard), key_(key), model_(shard.FindModel(key.tenant_id, key.model_id)) {
    if (model_ == nullptr) return;
    auto found = model_->scopes.find(key.hash_scheme);
    if (found != model_->scopes.end()) scope_ = &found->second;
  }

  void MatchHash(std::string_view adapter_id, BlockHash hash, absl::Time expired_through,
                 std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    const Prefix* const prefix = FindPrefix(FindPartition(adapter_id), hash);
    if (prefix == nullptr) return;
    const int64_t dead_us = absl::ToUnixMicros(expired_through);
    for (const Holder& holder : prefix->holders) {
      const Entry& entry = EntryOf(holder);
      const int64_t seen_us = entry.presence->EffectiveSeen(entry);
      if (seen_us <= dead_us) continue;
      matches->push_back(MatchOf(
          Run{.slot = holder.slot, .blocks = 1, .tokens = entry.token_count, .seen_us = seen_us, .tier = entry.tier}));
    }
  }

  void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                  std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    const Partition* const partition = FindPartition(adapter_id);
    const int64_t dead_us = absl::ToUnixMicros(expired_through);
    // Replicas still in the running come first in `runs`, by slot; those that have dropped out follow.
    static thread_local std::vector<Run> runs;
    runs.clear();
    size_t running = 0;
    for (size_t i = 0; i < chain.size(); ++i) {
      const Prefix* const prefix = FindPrefix(partition, chain.hash(i));
      if (prefix == nullptr) break;
      const int32_t tokens = chain.tokens(i);
      if (i == 0) {
        for (const Holder& holder : prefix->holders) {
          runs.push_back({.slot = holder.slot,
                          .blocks = 0,
                          .tokens = 0,
                          .seen_us = std::numeric_limits<int64_t>::max(),
                          .tier = Tier::kT1});
        }
        running = runs.size();
      }
      running = Advance(*prefix, tokens, dead_us, runs, running);
      if (running == 0) break;
    }
    for (const Run& run : runs) {
      if (run.blocks > 0) matches->push_back(MatchOf(run));
    }
  }

  void CreditHash(std::string_view adapter_id, BlockHash hash, absl::Span<const ReplicaMatch> matches) const override {
    const PrefixId id = FindPrefixId(FindPartition(adapter_id), hash);
    if (id == kNoPrefix) return;
    for (const ReplicaMatch& match : matches) {
      if (match.matched_tokens > 0) Credit(id, match.slot);
    }
  }

  void CreditChain(std::string_view adapter_id, const Chain& chain,
                   absl::Span<const ReplicaMatch> matches) const override {
    const Partition* const partition = FindPartition(adapter_id);
    uint32_t longest = 0;
    for (const ReplicaMatch& match : matches) longest = std::max(longest, match.matched_blocks);
    // A hash may occur twice in a chain; its entries earn once. Who ran as far as the second occurrence also passed the
    // first, so the first credits them all.
    absl::flat_hash_set<PrefixId> credited;
    for (size_t i = 0; i < longest; ++i) {
      if (chain.tokens(i) == 0) continue;
      const PrefixId id = FindPrefixId(partition, chain.hash(i));
      if (id == kNoPrefix || !credited.insert(id).second) continue;
      for (const ReplicaMatch& match : matches) {
        if (match.matched_blocks > i) Credit(id, match.slot);
      }
    }
  }

  size_t ReplicaCount() const override { return scope_ == nullptr ? 0 : scope_->by_name.size(); }

  std::string_view ReplicaAt(size_t i) const override { return scope_->by_name[i]->replica->name; }

  bool HasReplica(std::string_view replica_id) const override {
    if (scope_ == nullptr) return false;
    auto found = model_->replicas.find(replica_id);
    return found != model_->replicas.end() && IsPresent(found->second);
  }

  void ForEachStats(absl::FunctionRef<void(std::string_view, const ReplicaStats&, bool)> visit) const override {
    if (model_ == nullptr) return;
    for (const auto& [name, replica] : model_->replicas) {
      if (replica.stats != nullptr) visit(replica.name, *replica.stats, IsPresent(replica));
    }
  }

  KnownKeys Known() const override {
    if (scope_ != nullptr) return KnownKeys::kScopeKnown;
    if (model_ != nullptr && model_->prefixes > 0) return KnownKeys::kUnknownHashScheme;
    const IndexContext& context = *shard_.context_;
    if (context.counters.prefixes.load(std::memory_order_relaxed) == 0) return KnownKeys::kIndexEmpty;
    bool tenant_known = false;
    context.tenants.With(key_.tenant_id, [&](const Tenant& tenant) {
      tenant_known = tenant.prefixes.load(std::memory_order_relaxed) > 0;
    });
    return tenant_known ? KnownKeys::kUnknownModel : KnownKeys::kUnknownTenant;
  }

 private:
  const Partition* FindPartition(std::string_view adapter_id) const {
    if (scope_ == nullptr) return nullptr;
    auto found = scope_->partitions.find(adapter_id);
    return found == scope_->partitions.end() ? nullptr : &found->second;
  }

  static PrefixId FindPrefixId(const Partition* partition, const BlockHash& hash) {
    return partition == nullptr ? kNoPrefix : partition->Find(hash);
  }

  const Prefix* FindPrefix(const Partition* partition, const BlockHash& hash) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const PrefixId id = FindPrefixId(partition, hash);
    return id == kNoPrefix ? nullptr : &shard_.prefixes_[id];
  }

  const Entry& EntryOf(const Holder& holder) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return shard_.entries_[holder.entry];
  }

  bool IsPresent(const Replica& replica) const {
    return scope_ != nullptr && replica.presences.contains(const_cast<Scope*>(scope_));
  }

  // Takes the first `running` runs one block further and returns how many of them hold it, moved to the front in order.
  // Both lists are sorted by slot. Counts as dead what was last seen at `dead_us` or before.
  size_t Advance(const Prefix& prefix, int32_t tokens, int64_t dead_us, std::vector<Run>& runs, size_t running) const {
    size_t kept = 0;
    auto holder = prefix.holders.begin();
    const auto end = prefix.holders.end();
    const bool sparse = running * 8 < prefix.holders.size();
    for (size_t r = 0; r < running && holder != end; ++r) {
      const uint32_t slot = runs[r].slot;
      if (sparse) {
        holder = std::lower_bound(holder, end, slot, [](const Holder& a, uint32_t wanted) { return a.slot < wanted; });
      } else {
        while (holder != end && holder->slot < slot) ++holder;
      }
      if (holder == end || holder->slot != slot) continue;
      const Entry& entry = EntryOf(*holder);
      const int64_t seen_us = entry.presence->EffectiveSeen(entry);
      if (seen_us <= dead_us) continue;
      Run& run = runs[r];
      ++run.blocks;
      run.tokens += tokens;
      run.seen_us = std::min(run.seen_us, seen_us);
      run.tier = std::max(run.tier, entry.tier);
      if (kept != r) std::swap(runs[kept], run);
      ++kept;
    }
    return kept;
  }

  ReplicaMatch MatchOf(const Run& run) const {
    const Replica& replica = *scope_->slots[run.slot]->replica;
    return {.replica_id = replica.name,
            .slot = run.slot,
            .matched_blocks = run.blocks,
            .matched_tokens = static_cast<int32_t>(run.tokens),
            .last_seen = absl::FromUnixMicros(run.seen_us),
            .tier = run.tier,
            .stats = replica.stats.get()};
  }

  // Under the shared lock only counts may change; the atomics see to that. The view is handed out as const, but what it
  // shows is not: hence the casts.
  void Credit(PrefixId id, uint32_t slot) const ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Shard& shard = const_cast<Shard&>(shard_);
    Prefix& prefix = shard.prefixes_[id];
    auto holder = FindHolder(prefix.holders, slot);
    if (holder == prefix.holders.end() || holder->slot != slot) return;
    std::atomic<uint32_t>& access = shard.entries_[holder->entry].access;
    const uint32_t hot = static_cast<uint32_t>(shard.context_->options.hot_threshold);
    if (access.load(std::memory_order_relaxed) == std::numeric_limits<uint32_t>::max()) return;
    if (access.fetch_add(1, std::memory_order_relaxed) + 1 == hot &&
        prefix.hot_holders.fetch_add(1, std::memory_order_relaxed) == 0) {
      const_cast<Model*>(model_)->hot_prefixes.fetch_add(1, std::memory_order_relaxed);
    }
  }

  const Shard& shard_;
  const ScopeKey key_;
  const Model* const model_;
  const Scope* scope_ = nullptr;
};

void Shard::Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const {
  ReaderLock lock(&mutex_);
  reader(View(*this, key));
}

CacheState Shard::GetState(std::string_view tenant_id, std::string_view model_id) const {
  CacheState state;
  {
    ReaderLock lock(&mutex_);
    const Model* const model = FindModel(tenant_id, model_id);
    if (model == nullptr) return state;
    state.total_prefixes = model->prefixes;
    state.hot_prefixes = model->hot_prefixes.load(std::memory_order_relaxed);
    for (const auto& [name, replica] : model->replicas) {
      if (replica.stats != nullptr) state.replicas.push_back({.replica_id = replica.name, .stats = *replica.stats});
    }
  }
  std::sort(state.replicas.begin(), state.replicas.end(),
            [](const ReplicaState& a, const ReplicaState& b) { return a.replica_id < b.replica_id; });
  return state;
}

}  // namespace icache
