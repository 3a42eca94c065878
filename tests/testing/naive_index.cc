#include "tests/testing/naive_index.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "tests/testing/observations.h"

namespace icache::testing {

namespace {

using EntryKey = NaiveIndex::EntryKey;
using PrefixKey = NaiveIndex::PrefixKey;

// Source: contract/index.md "ReportCacheState", the stale stamp.
constexpr absl::Duration kStaleAfter = absl::Hours(24);

std::string BytesOf(BlockHash hash) {
  return hash.IsPacked() ? testing::BytesOf(hash.packed()) : std::string(hash.wide());
}

absl::Time TimeOf(std::optional<absl::Time> stamped_at, absl::Time now) {
  return std::min(stamped_at.value_or(now), now);
}

float FiniteOrZero(float value) { return std::isfinite(value) ? value : 0; }

bool IsOverlong(std::string_view name) { return name.size() > kMaxNameBytes; }

bool IsMalformed(const StateUpdate& update) {
  return update.replica_id.empty() || update.model_id.empty() || update.tenant_id.empty() ||
         IsOverlong(update.replica_id) || IsOverlong(update.model_id) || IsOverlong(update.tenant_id) ||
         IsOverlong(update.hash_scheme) || IsOverlong(update.adapter_id);
}

bool IsMalformed(const CacheEvent& event) {
  return event.replica_id.empty() || event.model_id.empty() || event.tenant_id.empty() ||
         (event.type == CacheEventType::kPrefixEvicted && !BlockHash(event.prefix_hash).IsValid());
}

bool IsMalformed(const PrefixReport& report, ChainForm form) {
  if (form == ChainForm::kMismatched || form == ChainForm::kMalformed || IsOverlong(report.adapter_id)) return true;
  if (report.prefix_hash.empty()) return form == ChainForm::kAbsent;
  return !BlockHash(report.prefix_hash).IsValid() || report.token_count < 0;
}

template <typename Key>
struct Candidate {
  Key key;
  NaiveIndex::Rank rank = {};
  NaiveIndex::Rank spared = {};  // among candidates of equal rank, those with the largest are taken first
};

// For messages.
std::string Text(const PrefixKey& key) {
  std::string text = key.tenant + "/" + key.model + "/" + key.scheme + "/" + key.adapter + "/";
  for (const char c : key.hash) text += std::to_string(static_cast<unsigned char>(c)) + ".";
  return text;
}
std::string Text(const EntryKey& key) { return Text(key.prefix) + " of " + key.replica; }
std::string Text(const NaiveIndex::Rank& rank) {
  return "(used " + std::to_string(rank.access_count) + ", seen " + absl::FormatTime(rank.last_seen) + ", depth " +
         std::to_string(rank.depth) + ")";
}

// Leaves the `count` candidates to evict, 0 < count <= candidates->size(): the lowest in rank, and among those that
// rank equal with the last of them some that are gone. Error: Internal when too few of these are gone.
template <typename Key, typename IsGone>
absl::Status ChooseVictims(size_t count, std::vector<Candidate<Key>>* candidates, IsGone is_gone) {
  const auto by_rank = [](const auto& a, const auto& b) { return a.rank < b.rank; };
  std::stable_sort(candidates->begin(), candidates->end(), [&](const auto& a, const auto& b) {
    return by_rank(a, b) || (!by_rank(b, a) && b.spared < a.spared);
  });
  const auto [first_tie, last_tie] =
      std::equal_range(candidates->begin(), candidates->end(), (*candidates)[count - 1], by_rank);
  const auto gone = [&](const Candidate<Key>& candidate) { return is_gone(candidate.key); };
  const auto kept = std::find_if_not(candidates->begin(), first_tie, gone);
  const auto last_victim = kept == first_tie ? std::stable_partition(first_tie, last_tie, gone) : kept;
  if (last_victim - candidates->begin() < static_cast<ptrdiff_t>(count)) {
    return absl::InternalError(std::to_string(count) + " had to go, up to the rank " + Text(first_tie->rank) +
                               ", among them " + Text(last_victim->key) + " with the rank " + Text(last_victim->rank));
  }
  candidates->resize(count);
  return absl::OkStatus();
}

// Who holds `prefix` in `index`, dead or alive.
std::vector<Match> HoldersIn(const PrefixIndex& index, const PrefixKey& prefix) {
  return HoldersOf(index, {prefix.tenant, prefix.model, prefix.scheme}, prefix.adapter, prefix.hash);
}

}  // namespace

// Looks up everything in the index's maps, each time anew.
class NaiveIndex::View final : public ScopeView {
 public:
  View(const NaiveIndex* index, const ScopeKey& key)
      : index_(index), tenant_(key.tenant_id), model_(key.model_id), scheme_(key.hash_scheme) {
    for (const auto& [entry_key, entry] : index_->EntriesUnder(Partition(""), &PrefixKey::scheme)) {
      replicas_.insert(entry_key.replica);
    }
  }

  void MatchHash(std::string_view adapter_id, BlockHash hash, absl::Time expired_through,
                 std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    for (const auto& [key, entry] : Holders(adapter_id, hash)) {
      const absl::Time last_seen = index_->EffectiveLastSeen(key, entry);
      if (last_seen <= expired_through) continue;
      matches->push_back(
          {.replica_id = key.replica,
           .name_order = static_cast<uint32_t>(std::distance(replicas_.begin(), replicas_.find(key.replica))),
           .matched_blocks = 1,
           .matched_tokens = entry.token_count,
           .last_seen_us = absl::ToUnixMicros(last_seen),
           .tier = entry.tier,
           .stats = StatsOf(key.replica)});
    }
  }

  void MatchChain(std::string_view adapter_id, const Chain& chain, absl::Time expired_through,
                  absl::FunctionRef<bool()> /*give_up*/, std::vector<ReplicaMatch>* matches) const override {
    matches->clear();
    std::vector<ReplicaMatch> holders;
    for (size_t i = 0; i < chain.size(); ++i) {
      MatchHash(adapter_id, chain.hash(i), expired_through, &holders);
      for (const ReplicaMatch& holder : holders) {
        if (i == 0) {
          matches->push_back(holder);
          matches->back().matched_tokens = chain.tokens(0);
          continue;
        }
        for (ReplicaMatch& match : *matches) {
          if (match.replica_id != holder.replica_id || match.matched_blocks != i) continue;
          match.matched_blocks = static_cast<uint32_t>(i + 1);
          match.matched_tokens += chain.tokens(i);
          match.last_seen_us = std::min(match.last_seen_us, holder.last_seen_us);
          match.tier = std::max(match.tier, holder.tier);
        }
      }
    }
  }

  void CreditHash(std::string_view adapter_id, BlockHash hash, absl::Span<const ReplicaMatch> matches) const override {
    for (auto& [key, entry] : Holders(adapter_id, hash)) {
      for (const ReplicaMatch& match : matches) {
        if (match.replica_id == key.replica && match.matched_tokens > 0) ++entry.access_count;
      }
    }
  }

  void CreditChain(std::string_view adapter_id, const Chain& chain,
                   absl::Span<const ReplicaMatch> matches) const override {
    for (const ReplicaMatch& match : matches) {
      std::set<std::string> earning;
      for (size_t i = 0; i < match.matched_blocks; ++i) {
        if (chain.tokens(i) > 0) earning.insert(BytesOf(chain.hash(i)));
      }
      for (const std::string& hash : earning) {
        auto it = index_->entries_.find({Prefix(adapter_id, hash), std::string(match.replica_id)});
        if (it != index_->entries_.end()) ++it->second.access_count;
      }
    }
  }

  size_t ReplicaCount() const override { return replicas_.size(); }
  std::string_view ReplicaAt(size_t i) const override {
    return *std::next(replicas_.begin(), static_cast<ptrdiff_t>(i));
  }
  bool HasReplica(std::string_view replica_id) const override { return replicas_.count(replica_id) > 0; }

  std::optional<absl::Time> LeaseOf(std::string_view replica_id) const override {
    const auto lease = index_->leases_.find(
        {std::string(tenant_), std::string(model_), std::string(scheme_), std::string(replica_id)});
    return lease == index_->leases_.end() ? std::nullopt : std::optional(lease->second);
  }

  void ForEachStats(absl::FunctionRef<void(std::string_view replica_id, const ReplicaStats& stats, bool present)> visit)
      const override {
    for (const auto& [row, stats] : index_->stats_) {
      if (row.tenant == tenant_ && row.model == model_) visit(row.replica, stats, HasReplica(row.replica));
    }
  }

  KnownKeys Known() const override {
    const auto empty = [](const Range& range) { return range.begin() == range.end(); };
    if (index_->entries_.empty()) return KnownKeys::kIndexEmpty;
    if (empty(index_->EntriesUnder({.tenant = tenant_}, &PrefixKey::tenant))) return KnownKeys::kUnknownTenant;
    if (empty(index_->EntriesUnder({.tenant = tenant_, .model = model_}, &PrefixKey::model))) {
      return KnownKeys::kUnknownModel;
    }
    return replicas_.empty() ? KnownKeys::kUnknownHashScheme : KnownKeys::kScopeKnown;
  }

 private:
  PrefixKey Partition(std::string_view adapter_id) const { return Prefix(adapter_id, ""); }
  PrefixKey Prefix(std::string_view adapter_id, std::string hash) const {
    return {tenant_, model_, scheme_, std::string(adapter_id), std::move(hash)};
  }
  Range Holders(std::string_view adapter_id, BlockHash hash) const {
    return index_->EntriesUnder(Prefix(adapter_id, BytesOf(hash)), &PrefixKey::hash);
  }
  const ReplicaStats* StatsOf(const std::string& replica_id) const {
    auto it = index_->stats_.find({tenant_, model_, replica_id});
    return it == index_->stats_.end() ? nullptr : &it->second;
  }

  const NaiveIndex* const index_;
  const std::string tenant_;
  const std::string model_;
  const std::string scheme_;
  std::set<std::string_view> replicas_;  // present in the scope; views of keys in entries_
};

ApplyResult NaiveIndex::ApplyUpdate(const StateUpdate& update, absl::Time now) {
  const ApplyResult result = Absorb(update, now);
  if (result.applied) EnforceBounds(std::string(update.tenant_id), nullptr).IgnoreError();  // never fails without other
  return result;
}

absl::StatusOr<ApplyResult> NaiveIndex::ApplyUpdateLike(const StateUpdate& update, absl::Time now,
                                                        const PrefixIndex& other) {
  const ApplyResult result = Absorb(update, now);
  if (result.applied) {
    const absl::Status status = EnforceBounds(std::string(update.tenant_id), &other);
    if (!status.ok()) return status;
  }
  return result;
}

ApplyResult NaiveIndex::Absorb(const StateUpdate& update, absl::Time now) {
  ApplyResult result;
  if (IsMalformed(update)) {
    result.dropped.Add(DropReason::kMalformedUpdate);
    return result;
  }
  const RowKey row = {std::string(update.tenant_id), std::string(update.model_id), std::string(update.replica_id)};
  if (IsFenced(row, update.stamped_at, now)) {
    result.dropped.Add(DropReason::kFenced);
    return result;
  }
  const absl::Time at = TimeOf(update.stamped_at, now);
  if (now - at > kStaleAfter) result.dropped.Add(DropReason::kStaleTimestamp);

  if (update.clear) Clear(row, update.stamped_at, now, &result.dropped);
  for (std::string_view hash : update.evicted_hashes) EvictHash(update, BlockHash(hash), at, &result.dropped);
  for (uint64_t hash : update.evicted_hashes_u64) EvictHash(update, BlockHash(hash), at, &result.dropped);
  for (const PrefixReport& report : update.prefixes) StorePrefix(update, report, at, &result);
  if (update.retains_all) TakeLease(update, at, &result.dropped);
  if (update.stats) StoreStats(row, *update.stats, at, &result.dropped);

  last_applied_[row.model] = now;
  ForgetUnheld();
  result.applied = true;
  return result;
}

void NaiveIndex::Clear(const RowKey& row, std::optional<absl::Time> stamped_at, absl::Time now, DropCounts* dropped) {
  const absl::Time at = TimeOf(stamped_at, now);
  // A fence in force is only ever raised; repeating its clear does not prolong it.
  const bool has_fence = HasFence(row, now);
  const bool leaves_fence =
      stamped_at && (has_fence ? fences_[row].cleared_at < at : HoldsEntries(row) || stats_.count(row) > 0);
  RemoveIf(
      EntriesUnder({.tenant = row.tenant, .model = row.model}, &PrefixKey::model),
      [&](const EntryKey& key, const Entry& entry) { return key.replica == row.replica && entry.last_seen <= at; });
  std::erase_if(leases_, [&](const auto& lease) {
    const LeaseKey& key = lease.first;
    return key.tenant == row.tenant && key.model == row.model && key.replica == row.replica && lease.second <= at;
  });
  if (auto it = stats_.find(row); it != stats_.end() && it->second.last_seen <= at) stats_.erase(it);
  ForgetUnheld();
  if (!leaves_fence) return;
  if (!has_fence && !HasRoomFor(row)) return dropped->Add(DropReason::kReplicaLimit);
  fences_[row] = {.cleared_at = at, .expires_at = now + retention_->For(row.tenant).ttl};
}

void NaiveIndex::EvictHash(const StateUpdate& update, BlockHash hash, absl::Time at, DropCounts* dropped) {
  if (update.hash_scheme.empty()) return dropped->Add(DropReason::kMissingScheme);
  if (!hash.IsValid()) return dropped->Add(DropReason::kMalformedEviction);
  RemoveIf(EntriesUnder({std::string(update.tenant_id), std::string(update.model_id), std::string(update.hash_scheme),
                         std::string(update.adapter_id), BytesOf(hash)},
                        &PrefixKey::hash),
           [&](const EntryKey& key, const Entry& entry) {
             return key.replica == update.replica_id && entry.last_seen <= at;
           });
  ForgetUnheld();
}

void NaiveIndex::StorePrefix(const StateUpdate& update, const PrefixReport& report, absl::Time at,
                             ApplyResult* result) {
  const ResolvedChain resolved = ResolveChain(report.chain);
  if (IsMalformed(report, resolved.form)) return result->dropped.Add(DropReason::kMalformedEntry);
  if (update.hash_scheme.empty()) return result->dropped.Add(DropReason::kMissingScheme);

  EntryKey key = {{std::string(update.tenant_id), std::string(update.model_id), std::string(update.hash_scheme),
                   std::string(report.adapter_id.empty() ? update.adapter_id : report.adapter_id)},
                  std::string(update.replica_id)};
  const auto put = [&](std::string hash, int32_t token_count, size_t depth) {
    key.prefix.hash = std::move(hash);
    const int64_t access_count = entries_[key].access_count;  // 0 when the entry is new
    entries_[key] = {.token_count = token_count,
                     .last_seen = at,
                     .tier = TierFromWire(report.tier),
                     .access_count = access_count,
                     .depth = static_cast<int64_t>(depth)};
    ++result->entries_stored;
  };
  int32_t tokens = 0;
  for (size_t i = 0; i < resolved.chain.size(); ++i) {
    tokens += resolved.chain.tokens(i);
    put(BytesOf(resolved.chain.hash(i)), tokens, i);
  }
  if (!report.prefix_hash.empty()) put(std::string(report.prefix_hash), report.token_count, 0);
}

void NaiveIndex::TakeLease(const StateUpdate& update, absl::Time at, DropCounts* dropped) {
  const LeaseKey key = {std::string(update.tenant_id), std::string(update.model_id), std::string(update.hash_scheme),
                        std::string(update.replica_id)};
  if (update.hash_scheme.empty() || !HoldsEntries(key)) return dropped->Add(DropReason::kLeaseRefused);
  absl::Time& lease = leases_.try_emplace(key, at).first->second;
  lease = std::max(lease, at);
}

void NaiveIndex::StoreStats(const RowKey& row, const StatsReport& stats, absl::Time at, DropCounts* dropped) {
  if (stats_.count(row) == 0 && !HasRoomFor(row)) return dropped->Add(DropReason::kReplicaLimit);
  stats_[row] = {.cache_memory_bytes = stats.cache_memory_bytes,
                 .hit_rate = FiniteOrZero(stats.hit_rate),
                 .pressure = FiniteOrZero(stats.pressure),
                 .client_version = std::string(stats.client_version),
                 .t2_hit_tokens = stats.t2_hit_tokens,
                 .t2_query_tokens = stats.t2_query_tokens,
                 .last_seen = at,
                 .reported = at};
}

ApplyResult NaiveIndex::ApplyEvent(const CacheEvent& event, absl::Time now) {
  ApplyResult result;
  if (IsMalformed(event)) {
    result.dropped.Add(DropReason::kMalformedEvent);
    return result;
  }
  const RowKey row = {std::string(event.tenant_id), std::string(event.model_id), std::string(event.replica_id)};
  if (IsFenced(row, event.stamped_at, now)) {
    result.dropped.Add(DropReason::kFenced);
    return result;
  }
  result.applied = true;
  const absl::Time at = TimeOf(event.stamped_at, now);
  switch (event.type) {
    case CacheEventType::kPrefixEvicted: {
      const std::string hash = BytesOf(BlockHash(event.prefix_hash));
      RemoveIf(EntriesUnder({.tenant = row.tenant, .model = row.model}, &PrefixKey::model),
               [&](const EntryKey& key, const Entry& entry) {
                 return key.replica == row.replica && key.prefix.hash == hash && entry.last_seen <= at &&
                        (event.adapter_id.empty() || key.prefix.adapter == event.adapter_id);
               });
      ForgetUnheld();
      break;
    }
    case CacheEventType::kAllCleared:
      Clear(row, event.stamped_at, now, &result.dropped);
      break;
    case CacheEventType::kReplicaUpdated:
      if (auto it = stats_.find(row); it != stats_.end()) it->second.last_seen = at;
      break;
    case CacheEventType::kPrefixAdded:
    case CacheEventType::kUnspecified:
      break;
  }
  return result;
}

void NaiveIndex::Read(const ScopeKey& key, absl::FunctionRef<void(const ScopeView&)> reader) const {
  reader(View(this, key));
}

CacheState NaiveIndex::GetState(std::string_view tenant_id, std::string_view model_id) const {
  CacheState state;
  for (const auto& [row, stats] : stats_) {
    if (row.tenant == tenant_id && row.model == model_id) state.replicas.push_back({row.replica, stats});
  }
  std::map<PrefixKey, int64_t> most_used;  // holder's access count, by prefix
  for (const auto& [key, entry] :
       EntriesUnder({.tenant = std::string(tenant_id), .model = std::string(model_id)}, &PrefixKey::model)) {
    int64_t& most = most_used[key.prefix];
    most = std::max(most, entry.access_count);
  }
  state.total_prefixes = static_cast<int64_t>(most_used.size());
  state.hot_prefixes = std::count_if(most_used.begin(), most_used.end(),
                                     [&](const auto& prefix) { return prefix.second >= options_.hot_threshold; });
  return state;
}

size_t NaiveIndex::Sweep(absl::Time now) {
  const auto is_dead = [&](const std::string& tenant, absl::Time since) {
    return now - since >= retention_->For(tenant).ttl;
  };
  const size_t before = entries_.size();
  RemoveIf({entries_.begin(), entries_.end()}, [&](const EntryKey& key, const Entry& entry) {
    if (!is_dead(key.prefix.tenant, EffectiveLastSeen(key, entry))) return false;
    ++counters_.expired[static_cast<int>(retention_->For(key.prefix.tenant).algorithm)];
    return true;
  });
  std::erase_if(stats_, [&](const auto& stats) { return is_dead(stats.first.tenant, stats.second.last_seen); });
  std::erase_if(fences_, [&](const auto& fence) { return fence.second.expires_at <= now; });
  ForgetUnheld();
  return before - entries_.size();
}

IndexStats NaiveIndex::Stats() const {
  IndexStats stats = counters_;
  stats.entries = static_cast<int64_t>(entries_.size());
  const PrefixKey* last = nullptr;
  for (const auto& [key, entry] : entries_) {
    if (last == nullptr || *last != key.prefix) ++stats.prefixes;
    last = &key.prefix;
  }
  return stats;
}

bool NaiveIndex::HoldsModel(std::string_view model_id) const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [&](const auto& entry) { return entry.first.prefix.model == model_id; }) ||
         std::any_of(stats_.begin(), stats_.end(), [&](const auto& stats) { return stats.first.model == model_id; });
}

void NaiveIndex::ForEachModel(absl::FunctionRef<void(std::string_view model_id, const ModelStats& stats)> visit) const {
  for (const auto& [model, last_applied] : last_applied_) {
    ModelStats stats = {.last_applied = last_applied};
    std::set<PrefixKey> prefixes;
    for (const auto& [key, entry] : entries_) {
      if (key.prefix.model == model) prefixes.insert(key.prefix);
    }
    stats.prefixes = static_cast<int64_t>(prefixes.size());
    for (const auto& [row, replica_stats] : stats_) stats.stats_rows += row.model == model ? 1 : 0;
    visit(model, stats);
  }
}

void NaiveIndex::ListHeld(std::string_view tenant_id, std::string_view model_id, NameList* names) const {
  std::set<std::string> found;
  for (const auto& [key, entry] : entries_) {
    const PrefixKey& prefix = key.prefix;
    if (tenant_id.empty()) {
      found.insert(prefix.tenant);
    } else if (model_id.empty() && prefix.tenant == tenant_id) {
      found.insert(prefix.model);
    } else if (prefix.tenant == tenant_id && prefix.model == model_id) {
      found.insert(prefix.scheme);
    }
  }
  for (const std::string& name : found) names->Add(name);
}

std::vector<PartitionState> NaiveIndex::ListPartitions(std::string_view tenant_id,
                                                       const std::optional<PartitionName>& after, size_t limit) const {
  std::map<PartitionName, std::set<std::string>> hashes;
  std::map<std::tuple<std::string, std::string, std::string>, std::set<std::string>> replicas;
  for (const auto& [key, entry] : entries_) {
    const PrefixKey& prefix = key.prefix;
    hashes[{prefix.tenant, prefix.model, prefix.scheme, prefix.adapter}].insert(prefix.hash);
    replicas[{prefix.tenant, prefix.model, prefix.scheme}].insert(key.replica);
  }
  std::vector<PartitionState> found;
  for (const auto& [name, held] : hashes) {
    if (found.size() == limit || (after && name <= *after) || (!tenant_id.empty() && name.tenant_id != tenant_id)) {
      continue;
    }
    const auto& holders = replicas[{name.tenant_id, name.model_id, name.hash_scheme}];
    found.push_back({name, static_cast<int64_t>(held.size()), static_cast<int64_t>(holders.size())});
  }
  return found;
}

ScopeReplicas NaiveIndex::ListReplicas(const ScopeKey& key, std::string_view after, size_t limit) const {
  struct Row {
    PresenceState state;
    std::set<std::string> adapters;
  };
  const PrefixKey scope{
      .tenant = std::string(key.tenant_id), .model = std::string(key.model_id), .scheme = std::string(key.hash_scheme)};
  std::map<std::string, Row> rows;
  for (const auto& [entry_key, entry] : EntriesUnder(scope, &PrefixKey::scheme)) {
    Row& row = rows[entry_key.replica];
    const absl::Time seen = EffectiveLastSeen(entry_key, entry);
    const bool first = row.state.entries++ == 0;
    row.adapters.insert(entry_key.prefix.adapter);
    row.state.oldest_seen = first ? seen : std::min(row.state.oldest_seen, seen);
    row.state.newest_seen = first ? seen : std::max(row.state.newest_seen, seen);
  }
  ScopeReplicas listed;
  listed.total = rows.size();
  for (auto& [replica, row] : rows) {
    if (replica <= after) continue;
    if (listed.replicas.size() == limit) break;
    row.state.replica_id = replica;
    row.state.partitions = static_cast<int64_t>(row.adapters.size());
    const auto lease = leases_.find({scope.tenant, scope.model, scope.scheme, replica});
    if (lease != leases_.end()) row.state.lease = lease->second;
    const auto stats = stats_.find({scope.tenant, scope.model, replica});
    if (stats != stats_.end()) row.state.stats = stats->second;
    listed.replicas.push_back(std::move(row.state));
  }
  return listed;
}

void NaiveIndex::ForEachQuotaTenant(
    absl::FunctionRef<void(std::string_view tenant_id, int64_t evicted_prefixes)> visit) const {
  retention_->ForEachQuota([&](std::string_view tenant) {
    const auto evicted = quota_evicted_.find(std::string(tenant));
    visit(tenant, evicted == quota_evicted_.end() ? 0 : evicted->second);
  });
}

absl::Status NaiveIndex::EnforceBounds(const std::string& tenant, const PrefixIndex* other) {
  absl::Status status = EnforceQuota(tenant, other);
  if (status.ok()) status = EnforceCap(other);
  ForgetUnheld();
  return status;
}

absl::Status NaiveIndex::EnforceQuota(const std::string& tenant, const PrefixIndex* other) {
  const std::optional<int64_t> quota = retention_->For(tenant).max_prefixes;
  if (!quota) return absl::OkStatus();
  const auto gone = [&](const PrefixKey& prefix) { return other == nullptr || HoldersIn(*other, prefix).empty(); };
  std::vector<Candidate<PrefixKey>> prefixes;
  for (auto [it, end] = EntriesUnder({.tenant = tenant}, &PrefixKey::tenant); it != end;) {
    const PrefixKey& prefix = it->first.prefix;
    // A prefix is as old as its freshest holder. Holders that are equally fresh may hold it at different depths, and
    // any of these is its depth: the choice that suits `other`.
    absl::Time last_seen = absl::InfinitePast();
    int64_t least_depth = 0;
    int64_t largest_depth = 0;
    // Of equally old prefixes that are all gone, the cap may have taken some a moment later: most likely not those with
    // the entry that the cap would take last.
    Rank spared;
    for (; it != end && it->first.prefix == prefix; ++it) {
      const Rank rank = CapRank(it->first, it->second);
      if (last_seen < rank.last_seen) {
        last_seen = rank.last_seen;
        least_depth = largest_depth = rank.depth;
      } else if (last_seen == rank.last_seen) {
        least_depth = std::min(least_depth, rank.depth);
        largest_depth = std::max(largest_depth, rank.depth);
      }
      spared = std::max(spared, rank);
    }
    const bool goes_late = least_depth < largest_depth && !gone(prefix);
    prefixes.push_back({.key = prefix,
                        .rank = {.last_seen = last_seen, .depth = goes_late ? least_depth : largest_depth},
                        .spared = spared});
  }
  const int64_t excess = static_cast<int64_t>(prefixes.size()) - *quota;
  if (excess <= 0) return absl::OkStatus();
  const absl::Status status = ChooseVictims(static_cast<size_t>(excess), &prefixes, gone);
  if (!status.ok()) return status;
  for (const auto& victim : prefixes) {
    RemoveIf(EntriesUnder(victim.key, &PrefixKey::hash), [](const EntryKey&, const Entry&) { return true; });
  }
  quota_evicted_[tenant] += excess;
  return absl::OkStatus();
}

absl::Status NaiveIndex::EnforceCap(const PrefixIndex* other) {
  const int64_t excess = static_cast<int64_t>(entries_.size()) - options_.max_entries;
  if (options_.max_entries == 0 || excess <= 0) return absl::OkStatus();
  std::vector<Candidate<EntryKey>> entries;
  for (const auto& [key, entry] : entries_) entries.push_back({.key = key, .rank = CapRank(key, entry)});
  const absl::Status status = ChooseVictims(static_cast<size_t>(excess), &entries, [&](const EntryKey& key) {
    if (other == nullptr) return true;
    const std::vector<Match> holders = HoldersIn(*other, key.prefix);
    return std::none_of(holders.begin(), holders.end(),
                        [&](const Match& holder) { return holder.replica_id == key.replica; });
  });
  if (!status.ok()) return status;
  for (const auto& victim : entries) {
    entries_.erase(victim.key);
    ++counters_.evicted_for_cap[static_cast<int>(retention_->For(victim.key.prefix.tenant).algorithm)];
  }
  return absl::OkStatus();
}

NaiveIndex::Rank NaiveIndex::CapRank(const EntryKey& key, const Entry& entry) const {
  const bool counts_use = retention_->For(key.prefix.tenant).algorithm == EvictionAlgorithm::kLfu;
  return {.access_count = counts_use ? entry.access_count : 0,
          .last_seen = EffectiveLastSeen(key, entry),
          .depth = entry.depth};
}

NaiveIndex::Range NaiveIndex::EntriesUnder(PrefixKey low, std::string PrefixKey::*deepest) const {
  PrefixKey high = low;
  (high.*deepest).push_back('\0');  // the least string above
  return {entries_.lower_bound({std::move(low), ""}), entries_.lower_bound({std::move(high), ""})};
}

void NaiveIndex::RemoveIf(Range range, absl::FunctionRef<bool(const EntryKey&, const Entry&)> remove) {
  for (auto it = range.first; it != range.last;)
    it = remove(it->first, it->second) ? entries_.erase(it) : std::next(it);
}

bool NaiveIndex::HasFence(const RowKey& row, absl::Time now) const {
  auto it = fences_.find(row);
  return it != fences_.end() && now < it->second.expires_at;
}

bool NaiveIndex::IsFenced(const RowKey& row, std::optional<absl::Time> stamped_at, absl::Time now) const {
  return stamped_at && HasFence(row, now) && TimeOf(stamped_at, now) < fences_.at(row).cleared_at;
}

bool NaiveIndex::HoldsEntries(const RowKey& row) const {
  const Range range = EntriesUnder({.tenant = row.tenant, .model = row.model}, &PrefixKey::model);
  return std::any_of(range.begin(), range.end(), [&](const auto& entry) { return entry.first.replica == row.replica; });
}

bool NaiveIndex::HoldsEntries(const LeaseKey& key) const {
  const Range range =
      EntriesUnder({.tenant = key.tenant, .model = key.model, .scheme = key.scheme}, &PrefixKey::scheme);
  return std::any_of(range.begin(), range.end(), [&](const auto& entry) { return entry.first.replica == key.replica; });
}

bool NaiveIndex::HasRoomFor(const RowKey& row) const {
  if (HoldsEntries(row)) return true;
  std::set<RowKey> idle;
  for (const auto& [other, stats] : stats_) idle.insert(other);
  for (const auto& [other, fence] : fences_) idle.insert(other);
  idle.erase(row);
  const auto count = std::count_if(idle.begin(), idle.end(), [&](const RowKey& other) { return !HoldsEntries(other); });
  return count < options_.max_idle_replicas;
}

absl::Time NaiveIndex::EffectiveLastSeen(const EntryKey& key, const Entry& entry) const {
  auto it = leases_.find({key.prefix.tenant, key.prefix.model, key.prefix.scheme, key.replica});
  return it == leases_.end() ? entry.last_seen : std::max(entry.last_seen, it->second);
}

void NaiveIndex::ForgetUnheld() {
  std::erase_if(leases_, [&](const auto& lease) { return !HoldsEntries(lease.first); });
  std::erase_if(last_applied_, [&](const auto& model) { return !HoldsModel(model.first); });
}

}  // namespace icache::testing
