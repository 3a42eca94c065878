// Shard::CheckInvariants: the invariants that shard.h numbers, checked one by one. For tests.
#include <string>

#include "index/shard.h"

namespace icache {

absl::Status Shard::CheckInvariants(IndexStats* counted) const {
  ReaderLock lock(&mutex_);
  const auto broken = [](const char* what) { return absl::InternalError(std::string("shard: ") + what); };
  if (!unsettled_.empty()) return broken("a step was not settled");
  size_t all_entries = 0;
  size_t all_prefixes = 0;
  size_t all_replicas = 0;
  for (const auto& [key, model] : models_) {
    if (model.replicas.empty()) return broken("S1: a model without replicas");
    all_replicas += model.replicas.size();
    int64_t model_prefixes = 0;
    int64_t hot = 0;
    for (const auto& scheme_and_scope : model.scopes) {
      const Scope& scope = scheme_and_scope.second;
      if (scope.by_name.empty()) return broken("S1: a scope without replicas");
      int64_t scope_prefixes = 0;
      absl::flat_hash_map<const Presence*, absl::flat_hash_map<const Partition*, size_t>> held;
      for (const auto& adapter_and_partition : scope.partitions) {
        const Partition& partition = adapter_and_partition.second;
        if (partition.size() == 0) return broken("S1: an empty partition");
        absl::Status status;
        const auto check = [&](PrefixId id) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          const Prefix& prefix = prefixes_[id];
          ++scope_prefixes;
          if (prefix.holders.empty()) status = broken("S1: a prefix without holders");
          if (partition.Find(prefix.hash()) != id) status = broken("a prefix is not found by its hash");
          if (prefix.partition != &partition) status = broken("a prefix names another partition");
          size_t witnesses = 0;
          uint32_t hot_holders = 0;
          for (size_t i = 0; i < prefix.holders.size(); ++i) {
            const Entry& entry = entries_[prefix.holders[i].entry];
            if (i > 0 && prefix.holders[i - 1].slot >= prefix.holders[i].slot) status = broken("S3: holder order");
            if (entry.prefix != id) status = broken("an entry names another prefix");
            if (scope.slots[prefix.holders[i].slot] != entry.presence) status = broken("S3: an entry's slot");
            if (entry.witness) ++witnesses;
            if (entry.witness != (prefix.witness == prefix.holders[i].entry)) status = broken("S4: the witness");
            if (entry.access.load() >= static_cast<uint32_t>(context_->options.hot_threshold)) ++hot_holders;
            ++held[entry.presence][&partition];
          }
          if (witnesses != 1) status = broken("S4: not one witness");
          if (hot_holders != prefix.hot_holders.load()) status = broken("S2: hot holders");
          if (hot_holders > 0) ++hot;
        };
        partition.packed.ForEach([&](uint64_t, PrefixId id) { check(id); });
        partition.wide.ForEach([&](std::string_view, PrefixId id) { check(id); });
        if (!status.ok()) return status;
      }
      if (scope_prefixes != scope.prefixes) return broken("S2: the scope's prefixes");
      model_prefixes += scope_prefixes;
      if (scope.slots.size() - scope.free_slots.size() != scope.by_name.size()) return broken("S3: slots");
      if (held.size() != scope.by_name.size()) return broken("S1: a presence without entries");
      for (size_t i = 0; i < scope.by_name.size(); ++i) {
        const Presence& presence = *scope.by_name[i];
        if (i > 0 && scope.by_name[i - 1]->replica->name >= presence.replica->name) return broken("S3: name order");
        if (scope.slots[presence.slot] != &presence) return broken("S3: a presence's slot");
        size_t entries = 0;
        for (const auto& [partition, count] : held[&presence]) entries += count;
        if (entries != presence.entries) return broken("S2: the presence's entries");
        if (held[&presence].size() != presence.partitions.size()) return broken("S2: the presence's partitions");
        for (const auto& [partition, count] : presence.partitions) {
          if (held[&presence][partition] != count) return broken("S2: the presence's entries in a partition");
        }
        size_t in_tree = 0;
        if (!presence.tree.CheckInvariants(entries_, &in_tree)) return broken("S6: a tree is malformed");
        if (in_tree != presence.entries) return broken("S6: a tree's entries");
        // Without the correction that FirstLfu makes, the key of LFU tenants may only be lower.
        if (!presence.cap_place.queued) return broken("S5: a presence is not in the cap queue");
        const EvictionKey lru = presence.tree.FirstLru(entries_, presence.lease_us).key;
        if (!model.tenant->lfu.load() && lru < presence.cap_place.key) return broken("S5: a recorded key is too high");
        const EntryTree::Victim witness = presence.tree.FirstWitness(entries_, presence.lease_us);
        if (witness.id != kNoEntry && (!presence.quota_place.queued || witness.key < presence.quota_place.key)) {
          return broken("S5: the quota queue");
        }
        all_entries += entries;
      }
    }
    if (model_prefixes != model.prefixes) return broken("S2: the model's prefixes");
    if (hot != model.hot_prefixes.load()) return broken("S2: hot prefixes");
    for (const auto& [name, replica] : model.replicas) {
      if (replica.IsEmpty()) return broken("S1: an empty replica");
      for (const auto& [scope, presence] : replica.presences) {
        if (presence->scope != scope || presence->replica != &replica) return broken("S3: a presence is misplaced");
      }
    }
    all_prefixes += static_cast<size_t>(model_prefixes);
  }
  if (all_entries != entries_.live()) return broken("entries leak");
  if (all_prefixes != prefixes_.live()) return broken("prefixes leak");
  for (const Replica* replica = replicas_; replica != nullptr; replica = replica->next) --all_replicas;
  if (all_replicas != 0) return broken("the list of replicas");
  counted->entries += static_cast<int64_t>(all_entries);
  counted->prefixes += static_cast<int64_t>(all_prefixes);
  return absl::OkStatus();
}

}  // namespace icache
