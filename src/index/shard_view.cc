// Reading a shard: what a ScopeView shows, and GetCacheState.
#include <algorithm>
#include <cstddef>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "index/shard.h"

namespace icache {
namespace {

// How far one replica follows a chain, while it is being matched.
struct Progress {
  uint32_t slot;
  uint32_t blocks;
  int64_t seen_us;
  Tier tier;
};

// A stretch of a chain that lies in one run: chain blocks [block, block + length) from `offset` on.
struct Stretch {
  RunRef run;
  uint32_t offset;
  uint32_t block;
  uint32_t length;
};

// A scan that has looked at so much, some tens of microseconds' worth, is asked whether it is still wanted.
constexpr size_t kLongScan = 4096;

// The spans of a run, slot by slot.
using StoredSpans = absl::Span<const StoredSpan>;

}  // namespace

// A view holds no lock of its own: Shard::Read holds it.
class Shard::View final : public ScopeView {
 public:
  View(const Shard& shard, const ScopeKey& key) ABSL_SHARED_LOCKS_REQUIRED(shard.mutex_)
      : shard_(shard), key_(key), model_(shard.FindModel(key.tenant_id, key.model_id)) {
    if (model_ == nullptr) return;
    auto found = model_->scopes.find(key.hash_scheme);
    // One that is being made holds nobody yet.
    if (found != model_->scopes.end() && !found->second.by_name.empty()) scope_ = &found->second;
  }

  void MatchHash(std::string_view adapter_id, BlockHash hash, absl::Time expired_through,
                 std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    const Partition* const partition = FindPartition(adapter_id);
    if (partition == nullptr) return;
    const Place place = shard_.Find(*partition, partition->Mix(hash), hash);
    if (place.run == 0) return;
    const Run& run = shard_.RunAt(place.run);
    const int64_t dead_us = absl::ToUnixMicros(expired_through);
    StoredSpan copy;
    for (const StoredSpan& stored : run.Snapshot(&copy)) {
      const Span span = stored.Load();
      if (place.offset < span.start || span.end <= place.offset) continue;
      const int64_t seen_us = EffectiveSeen(span);
      if (seen_us <= dead_us) continue;
      const auto ahead = static_cast<int32_t>(place.offset - span.start);
      Add({.slot = span.slot, .blocks = 1, .seen_us = seen_us, .tier = span.tier}, span.tokens + ahead * run.step(),
          matches);
    }
  }

  void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                  absl::FunctionRef<bool()> give_up, std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    const Partition* const partition = FindPartition(adapter_id);
    if (partition == nullptr || chain.empty()) return;
    const Place head = shard_.Find(*partition, partition->Mix(chain.hash(0)), chain.hash(0));
    if (head.run == 0) return;
    const int64_t dead_us = absl::ToUnixMicros(expired_through);
    // Replicas still in the running come first, by slot; those that have dropped out follow.
    static thread_local std::vector<Progress> progress;
    progress.clear();
    size_t running = 0;
    size_t looked_at = 0;  // spans, and stretches, since give_up was asked
    StoredSpan copy;
    Follow(*partition, chain, head, chain.size(), [&](const Stretch& stretch) {
      const StoredSpans spans = shard_.RunAt(stretch.run).Snapshot(&copy);
      running = stretch.block == 0 ? Start(spans, stretch, dead_us, progress)
                                   : Advance(spans, stretch, dead_us, progress, running);
      looked_at += spans.size() + 1;
      if (looked_at >= kLongScan) {
        looked_at = 0;
        if (give_up()) return false;
      }
      return running > 0;
    });
    if (progress.empty()) return;
    if (chain.is_uniform()) {
      for (const Progress& each : progress) {
        Add(each, static_cast<int32_t>(each.blocks) * chain.tokens(0), matches);
      }
      return;
    }
    static thread_local std::vector<int32_t> tokens;  // by number of blocks
    tokens.assign(1, 0);
    for (const Progress& each : progress) {
      while (tokens.size() <= each.blocks) tokens.push_back(tokens.back() + chain.tokens(tokens.size() - 1));
      Add(each, tokens[each.blocks], matches);
    }
  }

  void CreditHash(std::string_view adapter_id, BlockHash hash, absl::Span<const ReplicaMatch> matches) const override {
    const Partition* const partition = FindPartition(adapter_id);
    if (partition == nullptr) return;
    const Place place = shard_.Find(*partition, partition->Mix(hash), hash);
    if (place.run == 0) return;
    for (const ReplicaMatch& match : matches) {
      if (match.matched_tokens > 0) shard_.Earn({place.run, match.slot, place.offset, place.offset + 1});
    }
  }

  void CreditChain(std::string_view adapter_id, const Chain& chain,
                   absl::Span<const ReplicaMatch> matches) const override {
    const Partition* const partition = FindPartition(adapter_id);
    uint32_t longest = 0;
    for (const ReplicaMatch& match : matches) longest = std::max(longest, match.matched_blocks);
    if (partition == nullptr || longest == 0) return;
    const Place head = shard_.Find(*partition, partition->Mix(chain.hash(0)), chain.hash(0));
    // The stretches of blocks that earn: those of 0 tokens do not.
    std::vector<Stretch> earning;
    Follow(*partition, chain, head, longest, [&](const Stretch& stretch) {
      for (uint32_t i = 0; i < stretch.length; ++i) {
        if (chain.tokens(stretch.block + i) > 0) {
          AddBlock({stretch.run, stretch.offset + i, stretch.block + i, 1}, &earning);
        }
      }
      return true;
    });
    // A hash may occur twice in a chain; its entries earn once. Who ran as far as the second occurrence also passed the
    // first, so the first credits them all.
    std::sort(earning.begin(), earning.end(), [](const Stretch& a, const Stretch& b) {
      return std::pair(a.run, a.offset) < std::pair(b.run, b.offset);
    });
    const auto overlap = [](const Stretch& a, const Stretch& b) {
      return a.run == b.run && b.offset < a.offset + a.length;
    };
    if (std::adjacent_find(earning.begin(), earning.end(), overlap) != earning.end()) earning = WithoutRepeats(earning);
    for (const ReplicaMatch& match : matches) {
      for (const Stretch& stretch : earning) {
        if (match.matched_blocks <= stretch.block) continue;
        const uint32_t length = std::min(stretch.length, match.matched_blocks - stretch.block);
        shard_.Earn({stretch.run, match.slot, stretch.offset, stretch.offset + length});
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

  std::optional<absl::Time> LeaseOf(std::string_view replica_id) const override {
    if (scope_ == nullptr) return std::nullopt;
    auto replica = model_->replicas.find(replica_id);
    if (replica == model_->replicas.end()) return std::nullopt;
    auto presence = replica->second.presences.find(const_cast<Scope*>(scope_));
    if (presence == replica->second.presences.end()) return std::nullopt;
    const int64_t lease_us = presence->second->lease_us();
    return lease_us == kNoTime ? std::nullopt : std::optional(absl::FromUnixMicros(lease_us));
  }

  void ForEachStats(absl::FunctionRef<void(std::string_view, const ReplicaStats&, bool)> visit) const override {
    if (model_ == nullptr) return;
    for (const auto& [name, replica] : model_->replicas) {
      if (replica.stats != nullptr) visit(replica.name, *replica.stats, IsPresent(replica));
    }
  }

  KnownKeys Known() const override {
    if (scope_ != nullptr) return KnownKeys::kScopeKnown;
    if (model_ != nullptr && model_->prefixes.load(std::memory_order_relaxed) > 0) return KnownKeys::kUnknownHashScheme;
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
    if (adapter_id.empty()) return scope_->base;
    auto found = scope_->partitions.find(adapter_id);
    return found == scope_->partitions.end() ? nullptr : &found->second;
  }

  bool IsPresent(const Replica& replica) const {
    return scope_ != nullptr && replica.presences.contains(const_cast<Scope*>(scope_));
  }

  int64_t EffectiveSeen(const Span& span) const {
    return std::max(span.seen_us, scope_->slots[span.slot].lease_us.Load());
  }

  // The end of the stretch of live blocks that starts at `offset`.
  static uint32_t LiveEnd(StoredSpans spans, uint32_t offset) {
    uint32_t end = offset;
    for (bool grown = true; grown;) {
      grown = false;
      for (const StoredSpan& stored : spans) {
        const Span span = stored.Load();
        if (span.start <= end && end < span.end) {
          end = span.end;
          grown = true;
        }
      }
    }
    return end;
  }

  // Calls `visit(stretch)` for the stretches that the first `limit` blocks of the chain lie in, in order, the first of
  // which is at `place`, until one of them is missing or `visit` returns false.
  template <typename Visit>
  void Follow(const Partition& partition, const Chain& chain, Place place, size_t limit, Visit visit) const {
    for (uint32_t block = 0; place.run != 0;) {
      const Run& run = shard_.RunAt(place.run);
      run.PrefetchSpans();
      const auto most = static_cast<uint32_t>(std::min<size_t>(run.size() - place.offset, limit - block));
      // Where the run ends the next probe is likely to go.
      uint64_t mixed = 0;
      if (block + most < limit) {
        mixed = partition.Mix(chain.hash(block + most));
        shard_.table_.Prefetch(mixed);
      }
      uint32_t length = run.CommonLength(place.offset, chain, block, most);
      if (run.live() < run.size()) {
        // Dead blocks may live on elsewhere.
        StoredSpan copy;
        length = std::min(length, LiveEnd(run.Snapshot(&copy), place.offset) - place.offset);
        if (length == 0) return;
      }
      if (!visit(Stretch{place.run, place.offset, block, length})) return;
      block += length;
      if (block == limit) return;
      if (length < most) mixed = partition.Mix(chain.hash(block));
      place = shard_.Find(partition, mixed, chain.hash(block));
    }
  }

  // Takes a slot's spans, from the first of them in `at` on, along a stretch as far as they go without a gap. Leaves
  // `at` at the first span of another slot.
  void Walk(StoredSpans spans, size_t* at, const Stretch& stretch, int64_t dead_us, Progress* progress) const {
    const uint32_t end = stretch.offset + stretch.length;
    uint32_t reached = stretch.offset;
    Span span = spans[*at].Load();
    const uint32_t slot = span.slot;
    const int64_t lease_us = scope_->slots[slot].lease_us.Load();
    while (true) {
      if (span.start <= reached && reached < span.end && reached < end) {
        const int64_t seen_us = std::max(span.seen_us, lease_us);
        if (seen_us > dead_us) {
          reached = std::min(span.end, end);
          progress->seen_us = std::min(progress->seen_us, seen_us);
          progress->tier = std::max(progress->tier, span.tier);
        }
      }
      if (++*at == spans.size()) break;
      span = spans[*at].Load();
      if (span.slot != slot) break;
    }
    progress->blocks += reached - stretch.offset;
  }

  // Who holds the first block of the chain, and how far into the first stretch. Returns how many hold all of it.
  size_t Start(StoredSpans spans, const Stretch& stretch, int64_t dead_us, std::vector<Progress>& progress) const {
    size_t running = 0;
    for (size_t at = 0; at < spans.size();) {
      Progress each = {
          .slot = spans[at].slot(), .blocks = 0, .seen_us = std::numeric_limits<int64_t>::max(), .tier = Tier::kT1};
      Walk(spans, &at, stretch, dead_us, &each);
      if (each.blocks == 0) continue;
      progress.push_back(each);
      if (each.blocks == stretch.length) std::swap(progress[running++], progress.back());
    }
    // The swaps leave those in the running in order.
    return running;
  }

  // Takes the first `running` one stretch further and returns how many of them hold all of it, moved to the front in
  // order.
  size_t Advance(StoredSpans spans, const Stretch& stretch, int64_t dead_us, std::vector<Progress>& progress,
                 size_t running) const {
    size_t kept = 0;
    size_t at = 0;
    const bool sparse = running * 8 < spans.size();
    for (size_t r = 0; r < running && at < spans.size(); ++r) {
      const uint32_t slot = progress[r].slot;
      if (sparse) {
        at = static_cast<size_t>(std::partition_point(spans.begin() + static_cast<ptrdiff_t>(at), spans.end(),
                                                      [&](const StoredSpan& span) { return span.slot() < slot; }) -
                                 spans.begin());
      } else {
        while (at < spans.size() && spans[at].slot() < slot) ++at;
      }
      if (at == spans.size()) break;
      if (spans[at].slot() != slot) continue;
      const uint32_t before = progress[r].blocks;
      Walk(spans, &at, stretch, dead_us, &progress[r]);
      if (progress[r].blocks - before < stretch.length) continue;
      if (kept != r) std::swap(progress[kept], progress[r]);
      ++kept;
    }
    return kept;
  }

  // Appends a stretch of one block, as part of the last one if it goes on from there.
  static void AddBlock(const Stretch& block, std::vector<Stretch>* stretches) {
    if (!stretches->empty()) {
      Stretch& last = stretches->back();
      if (last.run == block.run && last.offset + last.length == block.offset &&
          last.block + last.length == block.block) {
        ++last.length;
        return;
      }
    }
    stretches->push_back(block);
  }

  // Of each block of a run only its first occurrence in the chain.
  static std::vector<Stretch> WithoutRepeats(const std::vector<Stretch>& stretches) {
    std::vector<Stretch> blocks;
    for (const Stretch& stretch : stretches) {
      for (uint32_t i = 0; i < stretch.length; ++i) {
        blocks.push_back({stretch.run, stretch.offset + i, stretch.block + i, 1});
      }
    }
    std::sort(blocks.begin(), blocks.end(), [](const Stretch& a, const Stretch& b) {
      return std::tuple(a.run, a.offset, a.block) < std::tuple(b.run, b.offset, b.block);
    });
    std::vector<Stretch> once;
    const Stretch* previous = nullptr;
    for (const Stretch& block : blocks) {
      if (previous == nullptr || previous->run != block.run || previous->offset != block.offset) AddBlock(block, &once);
      previous = &block;
    }
    return once;
  }

  void Add(const Progress& progress, int32_t tokens, std::vector<ReplicaMatch>* matches) const {
    const Scope::Slot& slot = scope_->slots[progress.slot];
    matches->push_back({.replica_id = slot.name,
                        .slot = progress.slot,
                        .name_order = slot.name_order,
                        .matched_blocks = progress.blocks,
                        .matched_tokens = tokens,
                        .last_seen_us = progress.seen_us,
                        .tier = progress.tier,
                        .stats = slot.stats});
  }

  const Shard& shard_;
  const ScopeKey key_;
  const Model* const model_;
  const Scope* scope_ = nullptr;
};

void Shard::Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) {
  {
    ReaderLock lock(&mutex_);
    reader(View(*this, key));
  }
  if (credit_count_.load(std::memory_order_relaxed) < kMaxCredits) return;
  MutexLock lock(&write_mutex_);
  DrainCredits();
  EndStep();
}

CacheState Shard::GetState(std::string_view tenant_id, std::string_view model_id) {
  CacheState state;
  {
    MutexLock lock(&write_mutex_);
    DrainCredits();
    EndStep();
    const Model* const model = FindModel(tenant_id, model_id);
    if (model == nullptr) return state;
    state.total_prefixes = model->prefixes.load(std::memory_order_relaxed);
    state.hot_prefixes = model->hot_prefixes;
    for (const auto& [name, replica] : model->replicas) {
      if (replica.stats != nullptr) state.replicas.push_back({.replica_id = replica.name, .stats = *replica.stats});
    }
  }
  std::sort(state.replicas.begin(), state.replicas.end(),
            [](const ReplicaState& a, const ReplicaState& b) { return a.replica_id < b.replica_id; });
  return state;
}

void Shard::ListModels(std::string_view tenant_id, NameList* names) {
  ReaderLock lock(&mutex_);
  for (const auto& [key, model] : models_) {
    if (key.tenant_id == tenant_id && model.prefixes.load(std::memory_order_relaxed) > 0) names->Add(key.model_id);
  }
}

void Shard::ListSchemes(std::string_view tenant_id, std::string_view model_id, NameList* names) {
  ReaderLock lock(&mutex_);
  const Model* const model = FindModel(tenant_id, model_id);
  if (model == nullptr) return;
  for (const auto& [hash_scheme, scope] : model->scopes) {
    if (!scope.by_name.empty()) names->Add(hash_scheme);
  }
}

Shard::ByName::Names Shard::ByName::NamesOf(const Partition* partition) {
  const Scope& scope = *partition->scope;
  return {scope.model->tenant->name, scope.model->record->name, scope.hash_scheme, partition->adapter_id};
}

void Shard::ListPartitions(std::string_view tenant_id, const std::optional<PartitionName>& after, size_t limit,
                           std::map<PartitionName, PartitionState>* found) {
  MutexLock lock(&write_mutex_);
  auto next = partitions_by_name_.lower_bound(ByName::Names(tenant_id, "", "", ""));
  if (after.has_value()) {
    const ByName::Names names(after->tenant_id, after->model_id, after->hash_scheme, after->adapter_id);
    const auto behind = partitions_by_name_.upper_bound(names);
    // The later of the two beginnings.
    if (next != partitions_by_name_.end() && ByName::NamesOf(*next) <= names) next = behind;
  }
  for (size_t listed = 0; next != partitions_by_name_.end() && listed < limit; ++next, ++listed) {
    const Partition& partition = **next;
    const auto [tenant, model, hash_scheme, adapter_id] = ByName::NamesOf(&partition);
    if (!tenant_id.empty() && tenant != tenant_id) return;
    PartitionName name{std::string(tenant), std::string(model), std::string(hash_scheme), std::string(adapter_id)};
    if (found->size() >= limit && std::prev(found->end())->first < name) return;
    PartitionState state{.name = name,
                         .prefixes = static_cast<int64_t>(partition.prefixes),
                         .scope_replicas = static_cast<int64_t>(partition.scope->by_name.size())};
    found->emplace(std::move(name), std::move(state));
    if (found->size() > limit) found->erase(std::prev(found->end()));
  }
}

ScopeReplicas Shard::ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) {
  ScopeReplicas listed;
  MutexLock lock(&write_mutex_);
  const Model* const model = FindModel(key.tenant_id, key.model_id);
  if (model == nullptr) return listed;
  const auto found = model->scopes.find(key.hash_scheme);
  if (found == model->scopes.end()) return listed;
  const std::vector<Presence*>& by_name = found->second.by_name;
  listed.total = by_name.size();
  auto next = std::upper_bound(by_name.begin(), by_name.end(), after,
                               [](std::string_view name, const Presence* each) { return name < each->replica->name; });
  for (; next != by_name.end() && listed.replicas.size() < limit; ++next) {
    const Presence& presence = **next;
    const int64_t lease_us = presence.lease_us();
    const int64_t oldest_us = presence.ages.Oldest(leaves_, SpansOf(presence)).span.seen_us;
    PresenceState& state = listed.replicas.emplace_back();
    state.replica_id = presence.replica->name;
    state.entries = static_cast<int64_t>(presence.entries);
    state.partitions = static_cast<int64_t>(presence.partitions.size());
    state.oldest_seen = absl::FromUnixMicros(presence.EffectiveSeen(oldest_us));
    state.newest_seen = absl::FromUnixMicros(presence.EffectiveSeen(presence.ages.NewestSeen(leaves_)));
    if (lease_us != kNoTime) state.lease = absl::FromUnixMicros(lease_us);
    if (presence.replica->stats != nullptr) state.stats = *presence.replica->stats;
  }
  return listed;
}

}  // namespace icache
