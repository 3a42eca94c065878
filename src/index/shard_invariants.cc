// Shard::CheckInvariants: the invariants that shard.h numbers, checked one by one. For tests.
#include <set>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "index/shard.h"

namespace icache {

absl::Status Shard::CheckInvariants(IndexStats* counted) {
  MutexLock lock(&write_mutex_);
  DrainCredits();
  EndStep();
  const auto broken = [](const char* what) { return absl::InternalError(std::string("shard: ") + what); };
  if (!unsettled_.empty() || !emptied_.empty()) return broken("a step was not settled");
  const auto hot_threshold = static_cast<uint32_t>(context_->options.hot_threshold);

  // Runs: their spans, and the blocks that the table has of them.
  absl::flat_hash_map<RunRef, BlockSet> in_table;
  absl::Status status;
  table_.ForEach([&](const Place& place) {
    BlockSet& blocks = in_table[place.run];
    if (blocks.Has(place.offset)) status = broken("S5: a block is in the table twice");
    blocks.Add(place.offset, place.offset + 1);
  });
  if (!status.ok()) return status;
  absl::flat_hash_map<const Presence*, absl::flat_hash_map<const Partition*, size_t>> held;
  absl::flat_hash_map<const Presence*, size_t> spans_of;
  absl::flat_hash_map<const Presence*, std::pair<EvictionKey, EvictionKey>> first;  // for the cap, for the quota
  absl::flat_hash_map<const Partition*, size_t> prefixes_of;
  absl::flat_hash_map<const Model*, size_t> hot_of;
  size_t list_bytes = 0;
  for (const auto& ref_and_blocks : in_table) {
    const RunRef ref = ref_and_blocks.first;
    const BlockSet& blocks = ref_and_blocks.second;
    Run& run = RunAt(ref);
    const Partition* const partition = partitions_[run.partition()];
    if (partition == nullptr) return broken("a run of no partition");
    BlockSet live, hot, witnessed;
    const Span* last = nullptr;
    Span previous;
    const bool lfu = partition->scope->model->tenant->lfu.load();
    for (const StoredSpan& stored : run.spans()) {
      const Span span = stored.Load();
      if (span.start >= span.end || span.end > run.size()) return broken("S4: a span's bounds");
      if (span.witness < span.start || span.witness > span.end) return broken("S4: a span's witness");
      if (last != nullptr && std::pair(previous.slot, previous.end) > std::pair(span.slot, span.start)) {
        return broken("S4: the order of spans");
      }
      // Single blocks may have come to say the same when the step changed.
      if (last != nullptr && previous.size() + span.size() > 2 && previous.slot == span.slot &&
          previous.end == span.start && previous.seen_us == span.seen_us && previous.tier == span.tier &&
          previous.access == span.access && previous.depth + previous.size() == span.depth &&
          int64_t{previous.tokens} + int64_t{run.step()} * previous.size() == span.tokens) {
        return broken("S4: two spans say the same");
      }
      previous = span;
      last = &previous;
      live.Add(span.start, span.end);
      if (span.access >= hot_threshold) hot.Add(span.start, span.end);
      witnessed.Add(span.start, span.witness);
      if (span.slot >= partition->scope->slots.size()) return broken("S3: a span's slot");
      const Presence* const presence = partition->scope->slots[span.slot].presence;
      if (presence == nullptr) return broken("S3: a span of a free slot");
      held[presence][partition] += span.size();
      ++spans_of[presence];
      const int64_t seen_us = presence->EffectiveSeen(span.seen_us);
      auto& [cap_key, quota_key] =
          first.try_emplace(presence, EvictionKey::Never(), EvictionKey::Never()).first->second;
      cap_key = std::min(
          cap_key, {.access = lfu ? span.access : 0, .seen_us = seen_us, .shallowness = ~span.DepthBelow(span.end)});
      if (span.witness > span.start) {
        quota_key =
            std::min(quota_key, {.access = 0, .seen_us = seen_us, .shallowness = ~span.DepthBelow(span.witness)});
      }
    }
    if (live.Count() == 0) return broken("S1: a run without live blocks");
    BlockSet missing = live, excess = blocks, unwitnessed = live;
    missing.Remove(blocks);
    excess.Remove(live);
    unwitnessed.Remove(witnessed);
    if (missing.Count() + excess.Count() > 0) return broken("S5: live blocks and the table differ");
    if (live.Count() != run.live()) return broken("S5: a run's live blocks");
    if (unwitnessed.Count() > 0) return broken("S6: a block without a witness");
    blocks.ForEach([&](uint32_t offset) {
      const BlockHash hash = run.hash(offset);
      const Place found = Find(*partition, partition->Mix(hash), hash);
      if (found.run != ref || found.offset != offset) status = broken("S5: a block is not found by its hash");
    });
    if (!status.ok()) return status;
    prefixes_of[partition] += live.Count();
    hot_of[partition->scope->model] += hot.Count();
    if (SpanList* const list = run.list()) list_bytes += SpanList::Bytes(list->count);
  }
  if (list_bytes != list_bytes_) return broken("the bytes of span lists");
  if (!table_.CheckInvariants()) return broken("S8: the table is malformed");

  size_t all_entries = 0;
  size_t all_prefixes = 0;
  size_t all_partitions = 0;
  size_t all_replicas = 0;
  size_t all_spans = 0;
  for (const auto& [key, model] : models_) {
    if (model.replicas.empty()) return broken("S1: a model without replicas");
    all_replicas += model.replicas.size();
    size_t model_prefixes = 0;
    for (const auto& scheme_and_scope : model.scopes) {
      const Scope& scope = scheme_and_scope.second;
      if (scope.by_name.empty()) return broken("S1: a scope without replicas");
      for (const auto& adapter_and_partition : scope.partitions) {
        const Partition& partition = adapter_and_partition.second;
        if (partition.prefixes == 0) return broken("S1: an empty partition");
        if (partitions_[partition.id] != &partition) return broken("a partition's id");
        if (!partitions_by_name_.contains(&partition)) return broken("S2: a partition is not found by its name");
        ++all_partitions;
        if (prefixes_of[&partition] != partition.prefixes) return broken("S2: the partition's prefixes");
        model_prefixes += partition.prefixes;
      }
      if (scope.slots.size() - scope.free_slots.size() != scope.by_name.size()) return broken("S3: slots");
      for (size_t i = 0; i < scope.by_name.size(); ++i) {
        const Presence& presence = *scope.by_name[i];
        if (i > 0 && scope.by_name[i - 1]->replica->name >= presence.replica->name) return broken("S3: name order");
        if (scope.slots[presence.slot].presence != &presence) return broken("S3: a presence's slot");
        if (scope.slots[presence.slot].name_order != i) return broken("S3: a slot's place by name");
        if (scope.slots[presence.slot].stats != presence.replica->stats.get()) return broken("S3: a slot's stats");
        size_t entries = 0;
        for (const auto& [partition, count] : held[&presence]) entries += count;
        if (entries == 0) return broken("S1: a presence without entries");
        if (entries != presence.entries) return broken("S2: the presence's entries");
        if (held[&presence].size() != presence.partitions.size()) return broken("S2: the presence's partitions");
        for (const auto& [partition, count] : presence.partitions) {
          if (held[&presence][partition] != count) return broken("S2: the presence's entries in a partition");
        }
        size_t in_tree = 0;
        if (!presence.ages.CheckInvariants(leaves_, SpansOf(presence), &in_tree)) return broken("S8: a tree");
        if (in_tree != spans_of[&presence]) return broken("S8: a tree's spans");
        all_spans += in_tree;
        const auto& [cap_key, quota_key] = first[&presence];
        if (!presence.cap_place.queued || cap_key < presence.cap_place.key) return broken("S7: the cap queue");
        if (quota_key != EvictionKey::Never() &&
            (!presence.quota_place.queued || quota_key < presence.quota_place.key)) {
          return broken("S7: the quota queue");
        }
        all_entries += entries;
      }
    }
    if (model_prefixes != static_cast<size_t>(model.prefixes.load())) return broken("S2: the model's prefixes");
    if (hot_of[&model] != static_cast<size_t>(model.hot_prefixes)) return broken("S2: hot prefixes");
    for (const auto& [name, replica] : model.replicas) {
      if (replica.IsEmpty()) return broken("S1: an empty replica");
      for (const auto& [scope, presence] : replica.presences) {
        if (presence->scope != scope || presence->replica != &replica) return broken("S3: a presence is misplaced");
      }
    }
    all_prefixes += model_prefixes;
  }
  if (all_prefixes != table_.size()) return broken("blocks leak");
  if (all_partitions != partitions_by_name_.size()) return broken("S2: the partitions by name");
  size_t all_held_spans = 0;
  for (const auto& [presence, count] : spans_of) all_held_spans += count;
  if (all_held_spans != all_spans) return broken("spans leak");
  for (const Replica* replica = replicas_; replica != nullptr; replica = replica->next) --all_replicas;
  if (all_replicas != 0) return broken("the list of replicas");
  counted->runs += static_cast<int64_t>(in_table.size());
  counted->entries += static_cast<int64_t>(all_entries);
  counted->prefixes += static_cast<int64_t>(all_prefixes);
  return absl::OkStatus();
}

}  // namespace icache
