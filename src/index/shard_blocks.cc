// The blocks of a shard: storing, releasing and crediting parts of runs.
#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"
#include "index/shard.h"

namespace icache {
namespace {

// The part [start, end) of a span.
Span Part(const Span& span, uint32_t start, uint32_t end, int32_t step) {
  Span part = span;
  part.start = start;
  part.end = end;
  part.tokens += static_cast<int32_t>(start - span.start) * step;
  part.depth += start - span.start;
  part.witness = std::clamp(span.witness, start, end);
  return part;
}

// Appends `span`, as part of the last one if both say the same.
void Append(absl::InlinedVector<Span, 4>* spans, const Span& span, int32_t step) {
  if (!spans->empty()) {
    Span& last = spans->back();
    const uint32_t blocks = last.size();
    if (last.end == span.start && last.seen_us == span.seen_us && last.tier == span.tier &&
        last.access == span.access && last.depth + blocks == span.depth &&
        int64_t{last.tokens} + int64_t{step} * blocks == span.tokens) {
      last.end = span.end;
      if (span.witness > span.start) last.witness = span.witness;
      return;
    }
  }
  spans->push_back(span);
}

}  // namespace

uint64_t Partition::NumberOf(std::string_view wide) {
  return absl::HashOf(absl::string_view(wide.data(), wide.size()));
}

class Shard::Blocks {
 public:
  Blocks(const Arena* arena, const std::vector<Partition*>* partitions) : arena_(*arena), partitions_(*partitions) {}

  uint64_t HashOf(const Place& place) const {
    const Run& run = *reinterpret_cast<const Run*>(arena_.At(place.run));
    return partitions_[run.partition()]->Mix(run.hash(place.offset));
  }
  void Prefetch(const Place& place) const {
    const char* const record = arena_.At(place.run);
    __builtin_prefetch(record);
    __builtin_prefetch(record + sizeof(Run) + place.offset * kPackedHashBytes);
  }

 private:
  const Arena& arena_;
  const std::vector<Partition*>& partitions_;
};

// ---- Finding --------------------------------------------------------------------------------------------------------

Place Shard::Find(const Partition& partition, uint64_t mixed, const BlockHash& hash) const {
  return table_.Find(mixed, [&](const Place& place) {
    const Run& run = RunAt(place.run);
    return run.partition() == partition.id && run.Equals(place.offset, hash);
  });
}

Shard::SlotRange Shard::RangeOf(absl::Span<const StoredSpan> spans, uint32_t slot) {
  const auto first =
      std::partition_point(spans.begin(), spans.end(), [&](const StoredSpan& span) { return span.slot() < slot; });
  auto last = first;
  while (last != spans.end() && last->slot() == slot) ++last;
  return {static_cast<size_t>(first - spans.begin()), static_cast<size_t>(last - spans.begin())};
}

bool Shard::IsLive(const Run& run, uint32_t offset) {
  if (run.live() == run.size()) return true;
  const auto spans = run.spans();
  return std::any_of(spans.begin(), spans.end(), [&](const StoredSpan& stored) {
    const Span span = stored.Load();
    return span.start <= offset && offset < span.end;
  });
}

BlockSet Shard::HotBlocks(const Run& run) const {
  BlockSet hot;
  for (const StoredSpan& stored : run.spans()) {
    const Span span = stored.Load();
    if (span.access >= static_cast<uint32_t>(context_->options.hot_threshold)) hot.Add(span.start, span.end);
  }
  return hot;
}

// ---- Counting -------------------------------------------------------------------------------------------------------

void Shard::CountPrefixes(Partition& partition, int64_t change) {
  Model& model = *partition.scope->model;
  partition.prefixes += static_cast<size_t>(change);
  if (partition.prefixes == 0 && !std::exchange(partition.emptied, true)) emptied_.push_back(&partition);
  model.prefixes.fetch_add(change, std::memory_order_relaxed);
  model.tenant->prefixes.fetch_add(change, std::memory_order_relaxed);
  model.record->prefixes.fetch_add(change, std::memory_order_relaxed);
  context_->counters.prefixes.fetch_add(change, std::memory_order_relaxed);
}

void Shard::CountEntries(Partition& partition, Presence& presence, int64_t change) {
  if (change == 0) return;
  presence.entries += static_cast<size_t>(change);
  size_t& in_partition = presence.partitions[&partition];
  in_partition += static_cast<size_t>(change);
  if (in_partition == 0) presence.partitions.erase(&partition);
  context_->counters.entries.fetch_add(change, std::memory_order_relaxed);
  if (presence.entries == 0) Unsettle(presence);
}

// ---- Spans ----------------------------------------------------------------------------------------------------------

void Shard::SetLeaf(RunRef ref, uint32_t slot, uint32_t start, uint32_t leaf) {
  const auto spans = RunAt(ref).spans();
  SlotRange range = RangeOf(spans, slot);
  while (spans[range.first].Load().start != start) ++range.first;
  spans[range.first].set_leaf(leaf);
}

void Shard::NoteQuotaKey(Presence& presence, const Span& span) {
  if (span.witness <= span.start) return;
  const EvictionKey key = {
      .access = 0, .seen_us = presence.EffectiveSeen(span.seen_us), .shallowness = ~span.DepthBelow(span.witness)};
  if (presence.new_quota_key <= key) return;
  presence.new_quota_key = key;
  Unsettle(presence);
}

void Shard::Publish(Run& run, absl::Span<const StoredSpan> old, SlotRange range, absl::Span<const Span> fresh) {
  const size_t count = old.size() - (range.last - range.first) + fresh.size();
  SpanList* const old_list = run.list();
  if (count == 1) {
    const Span one = !fresh.empty() ? fresh[0] : old[range.first == 0 ? range.last : 0].Load();
    run.SetOne(one);
  } else {
    SpanList* const list = SpanList::Make(count);
    StoredSpan* to = list->spans();
    to = StoredSpan::Copy(old.first(range.first), to);
    for (const Span& span : fresh) (new (to++) StoredSpan)->Store(span);
    StoredSpan::Copy(old.subspan(range.last), to);
    run.SetList(list);
    list_bytes_ += SpanList::Bytes(count);
  }
  if (old_list != nullptr) {
    list_bytes_ -= SpanList::Bytes(old_list->count);
    retired_.Add(old_list, SpanList::Bytes(old_list->count));
  }
}

void Shard::Rewrite(RunRef ref, Presence& presence, SlotRange range, absl::Span<Span> fresh) {
  Run& run = RunAt(ref);
  const AgeTree::Spans lookup = SpansOf(presence);
  const auto moved = [&](RunRef other, uint32_t start, uint32_t leaf)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { SetLeaf(other, presence.slot, start, leaf); };
  // A span of the same start and age keeps its leaf; all others leave the tree while the run still has them.
  absl::Span<StoredSpan> old = run.spans();
  const auto keeps = [&](const Span& a, const Span& b) { return a.start == b.start && a.seen_us == b.seen_us; };
  for (size_t i = range.first; i < range.last; ++i) {
    const Span span = old[i].Load();
    if (std::any_of(fresh.begin(), fresh.end(), [&](const Span& each) { return keeps(each, span); })) continue;
    presence.ages.Remove(leaves_, ref, span, moved);
  }
  for (Span& span : fresh) {
    span.leaf = AgeTree::kNoLeaf;
    for (size_t i = range.first; i < range.last; ++i) {
      const Span before = old[i].Load();
      if (keeps(before, span)) span.leaf = before.leaf;
    }
  }
  if (fresh.size() == range.last - range.first) {
    for (size_t i = 0; i < fresh.size(); ++i) old[range.first + i].Store(fresh[i]);
  } else {
    Publish(run, old, range, fresh);
  }
  for (Span& span : fresh) {
    if (span.leaf != AgeTree::kNoLeaf) {
      // The tree may have moved it meanwhile.
      const absl::Span<StoredSpan> now = run.spans();
      const SlotRange own = RangeOf(now, presence.slot);
      for (size_t i = own.first; i < own.last; ++i) {
        const Span stored = now[i].Load();
        if (stored.start == span.start) presence.ages.Lower(leaves_, stored);
      }
    } else {
      presence.ages.Insert(leaves_, lookup, ref, &span, moved);
      SetLeaf(ref, presence.slot, span.start, span.leaf);
    }
    const bool lfu = presence.scope->model->tenant->lfu.load(std::memory_order_relaxed);
    const EvictionKey key = {.access = lfu ? span.access : 0,
                             .seen_us = presence.EffectiveSeen(span.seen_us),
                             .shallowness = ~span.DepthBelow(span.end)};
    if (key < presence.new_cap_key) {
      presence.new_cap_key = key;
      Unsettle(presence);
    }
    NoteQuotaKey(presence, span);
  }
}

// ---- Storing --------------------------------------------------------------------------------------------------------

void Shard::StoreBlocks(Partition& partition, Presence& presence, Tier tier, int64_t seen_us,
                        const BlockWrites& blocks) {
  assert(blocks.size <= kMaxRunBlocks);
  std::array<uint64_t, kMaxRunBlocks> mixed;
  bool all_mixed = false;  // from the first new block on
  for (size_t i = 0; i < blocks.size;) {
    const Place place = Find(partition, partition.Mix(blocks.hash(i)), blocks.hash(i));
    if (place.run == 0) {
      if (!std::exchange(all_mixed, true)) {
        for (size_t j = i; j < blocks.size; ++j) mixed[j] = partition.Mix(blocks.hash(j));
      }
      i += StoreNewRun(partition, presence, tier, seen_us, blocks.Part(i, blocks.size - i),
                       absl::MakeConstSpan(mixed.data() + i, blocks.size - i));
      continue;
    }
    Run& run = RunAt(place.run);
    const auto limit = static_cast<uint32_t>(std::min<size_t>(run.size() - place.offset, blocks.size - i));
    uint32_t length = run.CommonLength(place.offset, blocks.chain, blocks.first + i, limit);
    if (run.live() < run.size()) {
      // Dead blocks that the report comes by live again, unless they do so elsewhere.
      int64_t revived = 0;
      for (uint32_t j = 0; j < length; ++j) {
        const Place block = {place.run, place.offset + j};
        if (IsLive(run, block.offset)) continue;
        const BlockHash hash = blocks.hash(i + j);
        const auto matches = [&](const Place& other) {
          return RunAt(other.run).partition() == partition.id && RunAt(other.run).Equals(other.offset, hash);
        };
        if (!table_.Insert(partition.Mix(hash), block, matches)) {
          length = j;
          break;
        }
        ++revived;
      }
      run.set_live(run.live() + static_cast<uint32_t>(revived));
      if (revived > 0) CountPrefixes(partition, revived);
    }
    Hold(place.run, place.offset, presence, tier, seen_us, blocks.Part(i, length));
    i += length;
  }
  table_.Balance(Blocks(&arena_, &partitions_));
}

size_t Shard::StoreNewRun(Partition& partition, Presence& presence, Tier tier, int64_t seen_us,
                          const BlockWrites& blocks, absl::Span<const uint64_t> mixed) {
  const size_t width = blocks.hash(0).size();
  const auto capacity = static_cast<uint32_t>(std::min<size_t>(Run::Capacity(width), blocks.size));
  uint32_t size = 1;
  if (blocks.chain.hashes().packed().empty()) {
    while (size < capacity && blocks.hash(size).size() == width) ++size;
  } else {
    size = capacity;
  }
  const absl::Span<const uint64_t> hashes = mixed.first(size);
  const BlockTable::Batch batch(table_, hashes);
  const int32_t step = size > 1 ? blocks.tokens(1) - blocks.tokens(0) : 0;
  const RunRef ref = arena_.Allocate(Run::Bytes(size, static_cast<uint32_t>(width)));
  Run& run = *Run::Make(arena_.At(ref), partition.id, size, static_cast<uint32_t>(width), step);
  run.SetHashes(blocks.chain, blocks.first);
  const Span span = {.slot = presence.slot, .leaf = AgeTree::kNoLeaf, .seen_us = seen_us, .access = 0, .tier = tier};
  run.SetOne(span);

  // Unless one of them is in a run already, be it this one: then a hash occurs twice.
  const uint32_t taken = table_.Insert(batch, ref, [&](uint32_t i, const Place& other) {
    const Run& in = RunAt(other.run);
    return in.partition() == partition.id && in.Equals(other.offset, blocks.hash(i));
  });
  if (taken < size) {
    // Again, in a run of the right size.
    run.set_live(0);
    retired_.Add(ref, run.bytes());
    return taken == 0 ? 0 : StoreNewRun(partition, presence, tier, seen_us, blocks.Part(0, taken), mixed.first(taken));
  }

  context_->counters.runs.fetch_add(1, std::memory_order_relaxed);
  absl::InlinedVector<Span, 4> fresh;
  Report(blocks, 0, 0, size, span, step, &fresh);
  Publish(run, run.spans(), {0, 1}, fresh);
  const auto moved = [&](RunRef other, uint32_t start, uint32_t leaf)
                         ABSL_NO_THREAD_SAFETY_ANALYSIS { SetLeaf(other, presence.slot, start, leaf); };
  for (Span& each : fresh) {
    presence.ages.Insert(leaves_, SpansOf(presence), ref, &each, moved);
    SetLeaf(ref, presence.slot, each.start, each.leaf);
    const EvictionKey key = {
        .access = 0, .seen_us = presence.EffectiveSeen(seen_us), .shallowness = ~each.DepthBelow(each.end)};
    presence.new_cap_key = std::min(presence.new_cap_key, key);
    presence.new_quota_key = std::min(presence.new_quota_key, key);
  }
  Unsettle(presence);
  CountPrefixes(partition, size);
  CountEntries(partition, presence, size);
  TellStored(run, 0, size, presence);
  return size;
}

void Shard::Report(const BlockWrites& blocks, uint32_t offset, uint32_t from, uint32_t to, Span span, int32_t step,
                   absl::InlinedVector<Span, 4>* spans) {
  while (from < to) {
    uint32_t stop = from + 1;
    if (blocks.chain.is_uniform()) {
      if (blocks.chain.tokens(0) == step) stop = to;
    } else {
      while (stop < to && blocks.tokens(stop - offset) - blocks.tokens(stop - offset - 1) == step) ++stop;
    }
    span.tokens = blocks.tokens(from - offset);
    span.depth = blocks.depth(from - offset);
    span.start = from;
    span.end = span.witness = stop;
    Append(spans, span, step);
    from = stop;
  }
}

void Shard::Hold(RunRef ref, uint32_t offset, Presence& presence, Tier tier, int64_t seen_us,
                 const BlockWrites& blocks) {
  Run& run = RunAt(ref);
  const uint32_t end = offset + static_cast<uint32_t>(blocks.size);
  absl::Span<StoredSpan> spans = run.spans();
  const SlotRange range = RangeOf(spans, presence.slot);

  // The step may follow the report if no other span leans on it.
  const int32_t reported_step = blocks.size > 1 ? blocks.tokens(1) - blocks.tokens(0) : run.step();
  if (reported_step != run.step()) {
    const bool leaned_on = std::any_of(spans.begin(), spans.end(), [&](const StoredSpan& stored) {
      const Span span = stored.Load();
      return span.size() > 1 && (span.slot != presence.slot || span.start < offset || span.end > end);
    });
    if (!leaned_on) run.set_step(reported_step);
  }
  const int32_t step = run.step();

  absl::InlinedVector<Span, 4> fresh;
  const Span span = {.slot = presence.slot, .leaf = AgeTree::kNoLeaf, .seen_us = seen_us, .access = 0, .tier = tier};
  uint32_t added = 0;
  uint32_t next = offset;  // of the report
  const auto report_gap = [&](uint32_t until) {
    if (next >= until) return;
    added += until - next;
    Report(blocks, offset, next, until, span, step, &fresh);
    next = until;
  };
  for (size_t i = range.first; i < range.last; ++i) {
    const Span old = spans[i].Load();
    if (old.end <= offset) {
      Append(&fresh, old, step);
      continue;
    }
    if (old.start < offset) Append(&fresh, Part(old, old.start, offset, step), step);
    report_gap(std::min(old.start, end));
    const uint32_t from = std::max(old.start, offset), to = std::min(old.end, end);
    if (from < to) {
      Span used = span;
      used.access = old.access;
      Report(blocks, offset, from, to, used, step, &fresh);
      next = to;
    }
    if (old.end > end) Append(&fresh, Part(old, std::max(old.start, end), old.end, step), step);
  }
  report_gap(end);
  Rewrite(ref, presence, range, absl::MakeSpan(fresh));
  CountEntries(*partitions_[run.partition()], presence, added);
  TellStored(run, offset, end, presence);
}

// ---- Releasing ------------------------------------------------------------------------------------------------------

void Shard::Forget(RunRef ref, const BlockSet& dead, Partition& partition) {
  const Run& run = RunAt(ref);
  std::array<uint64_t, kMaxRunBlocks> mixed;
  std::array<uint8_t, kMaxRunBlocks> offsets;
  size_t count = 0;
  dead.ForEach([&](uint32_t offset) {
    mixed[count] = partition.Mix(run.hash(offset));
    offsets[count++] = static_cast<uint8_t>(offset);
  });
  table_.Erase(absl::MakeConstSpan(mixed.data(), count), ref, absl::MakeConstSpan(offsets.data(), count));
  table_.Balance(Blocks(&arena_, &partitions_));
  CountPrefixes(partition, -static_cast<int64_t>(count));
}

void Shard::RestoreWitnesses(RunRef ref, uint32_t first, uint32_t end) {
  Run& run = RunAt(ref);
  for (StoredSpan& stored : run.spans()) {
    Span span = stored.Load();
    if (span.witness == span.end || span.end <= first || end <= span.start || span.witness >= end) continue;
    span.witness = span.end;
    stored.Store(span);
    Presence& presence = PresenceAt(run, span.slot);
    presence.ages.Lower(leaves_, span);
    NoteQuotaKey(presence, span);
  }
}

size_t Shard::Release(RunRef ref, uint32_t first, uint32_t end, Presence& presence, int64_t time_us) {
  Run& run = RunAt(ref);
  Partition& partition = *partitions_[run.partition()];
  const absl::Span<StoredSpan> spans = run.spans();
  const SlotRange range = RangeOf(spans, presence.slot);
  const int32_t step = run.step();
  absl::InlinedVector<Span, 4> fresh;
  BlockSet released;
  bool hot = false;
  for (size_t i = range.first; i < range.last; ++i) {
    const Span span = spans[i].Load();
    if (span.end <= first || end <= span.start || span.seen_us > time_us) {
      fresh.push_back(span);
      continue;
    }
    if (span.start < first) fresh.push_back(Part(span, span.start, first, step));
    if (span.end > end) fresh.push_back(Part(span, end, span.end, step));
    released.Add(std::max(span.start, first), std::min(span.end, end));
    hot |= span.access >= static_cast<uint32_t>(context_->options.hot_threshold);
  }
  const uint32_t count = released.Count();
  if (count == 0) return 0;
  TellBlocks(CacheEventType::kPrefixEvicted, run, released, presence);

  BlockSet dead = released;
  const bool shared = spans.size() > range.last - range.first;
  if (shared) {
    BlockSet held;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (i == range.first) i = range.last;
      if (i == spans.size()) break;
      const Span span = spans[i].Load();
      held.Add(span.start, span.end);
    }
    dead.Remove(held);
  }
  const BlockSet hot_before = hot ? HotBlocks(run) : BlockSet();
  const uint32_t died = dead.Count();
  const bool last = died == run.live();
  BlockSet hot_after;
  if (last) {
    const auto moved = [&](RunRef other, uint32_t start, uint32_t leaf)
                           ABSL_NO_THREAD_SAFETY_ANALYSIS { SetLeaf(other, presence.slot, start, leaf); };
    for (size_t i = range.first; i < range.last; ++i) presence.ages.Remove(leaves_, ref, spans[i].Load(), moved);
  } else {
    Rewrite(ref, presence, range, absl::MakeSpan(fresh));
    if (shared) RestoreWitnesses(ref, first, end);
    if (hot) hot_after = HotBlocks(run);
  }
  if (hot) {
    partition.scope->model->hot_prefixes -=
        static_cast<int64_t>(hot_before.Count()) - static_cast<int64_t>(hot_after.Count());
  }
  if (died > 0) {
    Forget(ref, dead, partition);
    run.set_live(run.live() - died);
  }
  if (last) {
    SpanList* const list = run.list();
    if (list != nullptr) {
      list_bytes_ -= SpanList::Bytes(list->count);
      retired_.Add(list, SpanList::Bytes(list->count));
    }
    retired_.Add(ref, run.bytes());
    context_->counters.runs.fetch_sub(1, std::memory_order_relaxed);
  }
  CountEntries(partition, presence, -int64_t{count});
  return count;
}

void Shard::ReleaseHashes(Partition& partition, Presence& presence, absl::Span<const BlockHash> hashes,
                          int64_t time_us) {
  for (size_t i = 0; i < hashes.size();) {
    const Place place = Find(partition, partition.Mix(hashes[i]), hashes[i]);
    if (place.run == 0) {
      ++i;
      continue;
    }
    // Engines evict tail first; either direction is taken as far as the run goes along.
    const Run& run = RunAt(place.run);
    uint32_t first = place.offset, end = place.offset + 1;
    size_t next = i + 1;
    while (next < hashes.size() && first > 0 && run.Equals(first - 1, hashes[next]) && IsLive(run, first - 1)) {
      --first;
      ++next;
    }
    if (next == i + 1) {
      while (next < hashes.size() && end < run.size() && run.Equals(end, hashes[next]) && IsLive(run, end)) {
        ++end;
        ++next;
      }
    }
    Release(place.run, first, end, presence, time_us);
    i = next;
  }
}

bool Shard::PassOn(RunRef ref, const Span& span, Presence& presence) {
  const uint32_t block = span.witness - 1;
  const auto age = [&](const Span& each, const Presence& holder) {
    return std::pair(holder.EffectiveSeen(each.seen_us), each.DepthBelow(block + 1));
  };
  Run& run = RunAt(ref);
  StoredSpan* stored_own = nullptr;
  StoredSpan* stored_freshest = nullptr;
  auto freshest = age(span, presence);
  for (StoredSpan& stored : run.spans()) {
    const Span other = stored.Load();
    if (other.slot == span.slot && other.start == span.start) stored_own = &stored;
    if (block < other.start || other.end <= block) continue;
    const auto other_age = age(other, PresenceAt(run, other.slot));
    if (other_age <= freshest) continue;
    freshest = other_age;
    stored_freshest = &stored;
  }
  if (stored_freshest == nullptr) return false;
  Span other = stored_freshest->Load();
  if (other.witness <= block) {
    other.witness = other.end;
    stored_freshest->Store(other);
    Presence& holder = PresenceAt(run, other.slot);
    holder.ages.Lower(leaves_, other);
    NoteQuotaKey(holder, other);
  }
  // It is deeper by as much as `other` is at `block` in all that both cover.
  Span own = span;
  own.witness = std::max(own.start, other.start);
  stored_own->Store(own);
  return true;
}

void Shard::ReleaseFromAll(RunRef ref, uint32_t offset) {
  // The last release may free the run, so its holders are listed first.
  const Run& run = RunAt(ref);
  absl::InlinedVector<Presence*, 16> holders;
  for (const StoredSpan& stored : run.spans()) {
    const Span span = stored.Load();
    if (span.start <= offset && offset < span.end) holders.push_back(&PresenceAt(run, span.slot));
  }
  for (Presence* holder : holders) Release(ref, offset, offset + 1, *holder, std::numeric_limits<int64_t>::max());
}

// ---- Changes --------------------------------------------------------------------------------------------------------

void Shard::TellBlocks(CacheEventType type, const Run& run, const BlockSet& blocks, const Presence& presence) {
  if (!context_->tells(type) || change_us_ == kNoTime) return;
  absl::InlinedVector<BlockHash, kMaxRunBlocks> hashes;
  blocks.ForEach([&](uint32_t offset) { hashes.push_back(run.hash(offset)); });
  if (hashes.empty()) return;
  const Model& model = *presence.scope->model;
  context_->change_observer->OnChange({.type = type,
                                       .tenant_id = model.tenant->name,
                                       .model_id = model.record->name,
                                       .replica_id = presence.replica->name,
                                       .hash_scheme = presence.scope->hash_scheme,
                                       .adapter_id = partitions_[run.partition()]->adapter_id,
                                       .at = absl::FromUnixMicros(change_us_),
                                       .hashes = hashes});
}

void Shard::TellStored(const Run& run, uint32_t first, uint32_t end, const Presence& presence) {
  if (!context_->tells(CacheEventType::kPrefixAdded)) return;
  BlockSet stored;
  stored.Add(first, end);
  TellBlocks(CacheEventType::kPrefixAdded, run, stored, presence);
}

void Shard::TellReplica(CacheEventType type, const Origin& origin) {
  if (!context_->tells(type)) return;
  context_->change_observer->OnChange({.type = type,
                                       .tenant_id = origin.tenant_id,
                                       .model_id = origin.model_id,
                                       .replica_id = origin.replica_id,
                                       .hash_scheme = {},
                                       .adapter_id = {},
                                       .at = absl::FromUnixMicros(origin.time_us),
                                       .hashes = {}});
}

// ---- Credits --------------------------------------------------------------------------------------------------------

void Shard::Earn(const Credit& credit) const {
  MutexLock lock(&credit_mutex_);
  credits_.push_back(credit);
  credit_count_.store(credits_.size(), std::memory_order_relaxed);
}

void Shard::DrainCredits() {
  if (credit_count_.load(std::memory_order_relaxed) == 0) return;
  std::vector<Credit> credits;
  {
    MutexLock lock(&credit_mutex_);
    credits.swap(credits_);
    credit_count_.store(0, std::memory_order_relaxed);
  }
  for (const Credit& credit : credits) Apply(credit);
}

void Shard::Apply(const Credit& credit) {
  constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
  Run& run = RunAt(credit.run);
  if (run.live() == 0) return;  // freed since
  const uint32_t threshold = static_cast<uint32_t>(context_->options.hot_threshold);
  const absl::Span<StoredSpan> spans = run.spans();
  const SlotRange range = RangeOf(spans, credit.slot);
  const int32_t step = run.step();
  absl::InlinedVector<Span, 4> fresh;
  bool turned_hot = false;
  for (size_t i = range.first; i < range.last; ++i) {
    const Span span = spans[i].Load();
    const uint32_t from = std::max(span.start, credit.first), to = std::min(span.end, credit.end);
    if (from >= to || span.access == kMost) {
      Append(&fresh, span, step);
      continue;
    }
    if (span.start < from) Append(&fresh, Part(span, span.start, from, step), step);
    Span used = Part(span, from, to, step);
    ++used.access;
    turned_hot |= used.access == threshold;
    Append(&fresh, used, step);
    if (to < span.end) Append(&fresh, Part(span, to, span.end, step), step);
  }
  if (fresh.empty()) return;
  const uint32_t hot_before = turned_hot ? HotBlocks(run).Count() : 0;
  Rewrite(credit.run, PresenceAt(run, credit.slot), range, absl::MakeSpan(fresh));
  if (turned_hot) {
    partitions_[run.partition()]->scope->model->hot_prefixes += int64_t{HotBlocks(run).Count()} - hot_before;
  }
}

}  // namespace icache
