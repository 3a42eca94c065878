#include "icache/engine/block_ledger.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/algorithm/container.h"
#include "icache/fingerprint/fingerprint.h"

namespace icache {
namespace {

constexpr std::string_view kGpu = "GPU";
constexpr std::string_view kFullAttention = "full_attention";
constexpr size_t kGpuMedium = 0;
constexpr size_t kMaxGroups = 256;
constexpr size_t kMaxMediumBytes = 64;    // of its name that count
constexpr size_t kMaxPositions = 1024;    // that one hash stands for
constexpr size_t kMaxAdapterBytes = 512;  // more, the daemon refuses. Source: contract/index.md

}  // namespace

std::string_view BlockDropName(BlockDrop reason) {
  switch (reason) {
    case BlockDrop::kUnknownParent:
      return "unknown_parent";
    case BlockDrop::kUnknownAdapter:
      return "unknown_adapter";
    case BlockDrop::kExtraKeys:
      return "extra_keys";
    case BlockDrop::kCacheGroup:
      return "cache_group";
    case BlockDrop::kBlockSize:
      return "block_size";
    case BlockDrop::kTooLong:
      return "too_long";
    case BlockDrop::kLedgerFull:
      return "ledger_full";
  }
  return "";
}

BlockLedger::BlockKey BlockLedger::ByBlockKey::KeyOf(Id id) const {
  const Block& block = ledger->blocks_[id];
  return {block.adapter, block.fingerprint};
}
const EngineHash& BlockLedger::ByEngineHash::KeyOf(Id id) const { return ledger->aliases_[id].hash; }

BlockLedger::BlockLedger(const LedgerOptions* options)
    : options_(options),
      block_ids_(0, ByBlockKey{this}, ByBlockKey{this}),
      alias_ids_(0, ByEngineHash{this}, ByEngineHash{this}) {}

// ---- Storing ------------------------------------------------------------------------------------------------------

void BlockLedger::Store(const BlockStored& event) {
  const size_t count = event.block_hashes.size();
  if (event.spec_kind.value_or(kFullAttention) != kFullAttention) {
    // One that was of full attention before may still have to remove some of that.
    const bool is_new = event.group_idx.has_value() && !full_groups_.contains(*event.group_idx);
    if (is_new && skipped_groups_.size() < kMaxGroups) skipped_groups_.insert(*event.group_idx);
    return CountDrops(BlockDrop::kCacheGroup, count);  // all groups name a block by the same hash
  }
  if (event.group_idx.has_value()) {
    skipped_groups_.erase(*event.group_idx);
    if (full_groups_.size() < kMaxGroups) full_groups_.insert(*event.group_idx);
  }
  groups_are_named_ &= event.group_idx.has_value();
  if (!options_->hashes_are_chained) chain_proof_.Look(event);
  // The first blocks of a cache continue nothing.
  if (!std::exchange(seen_store_, true) && learning_root_) root_ = event.parent;
  if (root_.has_value() && absl::c_linear_search(event.block_hashes, *root_)) {
    root_.reset();  // it is the name of a block
    learning_root_ = false;
  }
  const auto drop_all = [&](BlockDrop reason) { Drop(reason, event, 0, count); };
  if (options_->block_size.value_or(event.block_size) != event.block_size) return drop_all(BlockDrop::kBlockSize);
  std::string_view adapter_name;
  if (!ResolveAdapter(event, &adapter_name)) return drop_all(BlockDrop::kUnknownAdapter);
  const std::optional<uint16_t> adapter = InternAdapter(adapter_name);
  if (!adapter.has_value()) return drop_all(BlockDrop::kLedgerFull);
  const std::optional<Parent> parent = ResolveParent(event, *adapter);
  if (!parent.has_value()) return drop_all(BlockDrop::kUnknownParent);

  const size_t plain = PlainBlocks(event, adapter_name);
  const int32_t size = event.block_size;
  const size_t room = static_cast<size_t>((std::numeric_limits<int32_t>::max() - parent->tokens_through) / size);
  if (plain > room) return drop_all(BlockDrop::kTooLong);
  // Valid by the bounds of the event.
  (void)FingerprintPrefixes(absl::MakeConstSpan(event.token_ids).first(plain * size), size, parent->fingerprint,
                            &scratch_hashes_);
  const size_t medium = MediumOf(event.medium);
  Id previous = parent->block;
  int32_t tokens = parent->tokens_through;
  for (size_t i = 0; i < plain; ++i) {
    tokens += size;
    const Id block = FindOrAddBlock({*adapter, scratch_hashes_[i]}, previous, tokens, size);
    const Id alias = block == kNone ? kNone : FindOrAddAlias(event.block_hashes[i], block);
    if (alias == kNone) {
      if (block != kNone && !IsHeld(blocks_[block]) && !blocks_[block].changed) FreeBlock(block);
      return Drop(BlockDrop::kLedgerFull, event, i, count - i);
    }
    AddCopy(alias, medium);
    previous = block;
  }
  if (plain < count) Drop(BlockDrop::kExtraKeys, event, plain, count - plain);
}

void BlockLedger::Drop(BlockDrop reason, const BlockStored& event, size_t first, size_t blocks) {
  CountDrops(reason, blocks);
  learning_root_ = false;
  const size_t medium = MediumOf(event.medium);
  for (const EngineHash& hash : absl::MakeConstSpan(event.block_hashes).subspan(first, blocks)) {
    AddUnknown(hash, medium, 1);
  }
}

bool BlockLedger::ResolveAdapter(const BlockStored& event, std::string_view* name) const {
  if (!event.lora_name.value_or("").empty()) {
    *name = *event.lora_name;
    return name->size() <= kMaxAdapterBytes;
  }
  if (!event.lora_id.has_value()) return true;
  const auto found = options_->adapters.find(*event.lora_id);
  if (found != options_->adapters.end()) *name = found->second;
  return found != options_->adapters.end();
}

std::optional<uint16_t> BlockLedger::InternAdapter(std::string_view name) {
  const auto found = adapter_ids_.find(name);
  if (found != adapter_ids_.end()) return found->second;
  if (adapters_.size() >= options_->max_adapters) return std::nullopt;
  const uint16_t id = static_cast<uint16_t>(adapters_.size());
  adapters_.emplace_back(name);
  adapter_ids_.emplace(name, id);
  return id;
}

size_t BlockLedger::PlainBlocks(const BlockStored& event, std::string_view adapter) {
  const auto is_plain = [&](const BlockKeys& keys) {
    return keys.kind == BlockKeys::Kind::kNone ||
           (keys.kind == BlockKeys::Kind::kOneText && !adapter.empty() && keys.text == adapter);
  };
  const auto first_other = std::find_if_not(event.extra_keys.begin(), event.extra_keys.end(), is_plain);
  if (first_other == event.extra_keys.end()) return event.block_hashes.size();
  return static_cast<size_t>(first_other - event.extra_keys.begin());
}

std::optional<BlockLedger::Parent> BlockLedger::ResolveParent(const BlockStored& event, uint16_t adapter) {
  if (!event.parent.has_value() || event.parent == root_) return Parent();
  std::optional<Parent> parent = ParentOfHash(*event.parent, adapter);
  if (!parent.has_value() && !alias_ids_.contains(*event.parent) && ShowsRoot(event, adapter)) {
    root_ = event.parent;
    return Parent();
  }
  return parent;
}

std::optional<BlockLedger::Parent> BlockLedger::ParentOfHash(const EngineHash& hash, uint16_t adapter) const {
  if (meanings_missed_ && !HashesAreChained()) return std::nullopt;
  const auto first = alias_ids_.find(hash);
  if (first == alias_ids_.end()) return std::nullopt;
  Id found = kNone;
  for (Id id = *first; id != kNone; id = aliases_[id].next) {
    const Id block = aliases_[id].block;
    if (block == kUnknown) return std::nullopt;
    if (blocks_[block].adapter != adapter) continue;
    if (found != kNone) return std::nullopt;
    found = block;
  }
  if (found == kNone) return std::nullopt;
  const Block& block = blocks_[found];
  return Parent{found, block.fingerprint, block.tokens_through};
}

bool BlockLedger::ShowsRoot(const BlockStored& event, uint16_t adapter) const {
  if (!learning_root_) return false;
  // A block that is known to start a sequence is announced again with this parent.
  const auto known = alias_ids_.find(event.block_hashes.front());
  if (known == alias_ids_.end() || aliases_[*known].block == kUnknown || hashes_are_ambiguous_) return false;
  const Block& block = blocks_[aliases_[*known].block];
  return block.adapter == adapter && block.tokens_through == event.block_size &&
         block.fingerprint ==
             ContentHash(absl::MakeConstSpan(event.token_ids).first(static_cast<size_t>(event.block_size)));
}

size_t BlockLedger::MediumOf(std::optional<std::string_view> medium) {
  if (medium.value_or(kGpu) == kGpu) return kGpuMedium;
  const std::string_view name = medium->substr(0, kMaxMediumBytes);
  const auto found = std::find(media_.begin(), media_.end(), name);
  if (found == media_.end() && media_.size() + 1 == kMedia) return kMedia - 1;
  const size_t index = static_cast<size_t>(found - media_.begin()) + 1;
  if (found == media_.end()) media_.emplace_back(name);
  return index;
}

BlockLedger::Id BlockLedger::FindOrAddBlock(const BlockKey& key, Id parent, int32_t tokens_through,
                                            int32_t block_tokens) {
  const auto found = block_ids_.find(key);
  const bool known = found != block_ids_.end();
  if (known && IsHeld(blocks_[*found])) return *found;
  if (held_blocks() >= options_->max_blocks) return kNone;
  if (known) return *found;
  if (blocks_.size() - free_blocks_.size() >= 2 * options_->max_blocks) return kNone;
  const Block block = {.fingerprint = key.fingerprint,
                       .parent = parent,
                       .tokens_through = tokens_through,
                       .block_tokens = block_tokens,
                       .epoch = epoch_,
                       .warm_copies = 0,
                       .cold_copies = 0,
                       .adapter = key.adapter,
                       .aliases = 0,
                       .changed = false,
                       .offloaded = false};
  Id id = static_cast<Id>(blocks_.size());
  if (free_blocks_.empty()) {
    blocks_.push_back(block);
  } else {
    id = free_blocks_.back();
    free_blocks_.pop_back();
    blocks_[id] = block;
  }
  block_ids_.insert(id);
  ++gone_;  // until its first copy is counted
  return id;
}

BlockLedger::Id BlockLedger::FindOrAddAlias(const EngineHash& hash, Id block) {
  const auto first = alias_ids_.find(hash);
  const Id head = first == alias_ids_.end() ? kNone : *first;
  const bool blank = block == kUnknown;
  size_t positions = 0;
  for (Id id = head; id != kNone; id = aliases_[id].next) {
    if (aliases_[id].block == block) return id;
    if (aliases_[id].block != kUnknown) ++positions;
  }
  if (blank) {
    if (blanks_ >= options_->max_blocks) return kNone;
    ++blanks_;
  } else {
    if (positions >= kMaxPositions || blocks_[block].aliases == std::numeric_limits<uint16_t>::max() ||
        aliases_.size() - free_aliases_.size() - blanks_ >= 2 * options_->max_blocks) {
      return kNone;
    }
    ++blocks_[block].aliases;
    if (positions > 0 && !std::exchange(hashes_are_ambiguous_, true)) {
      doubt_ |= meanings_missed_ && options_->hashes_are_chained;  // what has to be proven first was not relied on
    }
  }
  Alias alias = {
      .hash = hash, .block = block, .next = kNone, .older = kNone, .newer = kNone, .epoch = epoch_, .copies = {}};
  Id id = static_cast<Id>(aliases_.size());
  if (head != kNone) alias.next = aliases_[head].next;  // behind the head, which the set knows
  if (free_aliases_.empty()) {
    aliases_.push_back(alias);
  } else {
    id = free_aliases_.back();
    free_aliases_.pop_back();
    aliases_[id] = alias;
  }
  if (head != kNone) {
    aliases_[head].next = id;
  } else {
    alias_ids_.insert(id);
  }
  AppendByEpoch(id);
  return id;
}

void BlockLedger::AddUnknown(const EngineHash& hash, size_t medium, uint16_t copies) {
  const Id id = FindOrAddAlias(hash, kUnknown);
  if (id == kNone) {
    meanings_missed_ = true;
    return;
  }
  if (aliases_[id].epoch != epoch_) Renew(id);
  uint16_t& count = aliases_[id].copies[medium];
  const uint16_t room = std::numeric_limits<uint16_t>::max() - count;
  count += std::min(copies, room);
}

void BlockLedger::AddCopy(Id id, size_t medium) {
  Block& block = blocks_[aliases_[id].block];
  const bool was_held = IsHeld(block);
  if (IsSuspect(block)) {
    // Named again: trusted, with the one copy that is certain.
    if (was_held) --suspects_;
    block.epoch = epoch_;
    block.warm_copies = block.cold_copies = 0;
  }
  if (aliases_[id].epoch != epoch_) Renew(id);
  Alias& alias = aliases_[id];
  if (block.offloaded) EndOffload(alias.block, id);
  if (!was_held) --gone_;
  MarkChanged(alias.block);
  if (alias.copies[medium] == std::numeric_limits<uint16_t>::max()) return;
  ++alias.copies[medium];
  ++(medium == kGpuMedium ? block.warm_copies : block.cold_copies);
}

void BlockLedger::Renew(Id id) {
  UnlinkByEpoch(id);
  aliases_[id].epoch = epoch_;
  aliases_[id].copies = {};
  AppendByEpoch(id);
}

void BlockLedger::AppendByEpoch(Id id) {
  aliases_[id].older = newest_;
  aliases_[id].newer = kNone;
  (newest_ == kNone ? oldest_ : aliases_[newest_].newer) = id;
  newest_ = id;
}

void BlockLedger::UnlinkByEpoch(Id id) {
  const Alias& alias = aliases_[id];
  (alias.older == kNone ? oldest_ : aliases_[alias.older].newer) = alias.newer;
  (alias.newer == kNone ? newest_ : aliases_[alias.newer].older) = alias.older;
}

// ---- Removing -----------------------------------------------------------------------------------------------------

void BlockLedger::Remove(const BlockRemoved& event, absl::Time at) {
  // A removal names the group, but not its kind; and all groups name a block by the same hash. A group that has stored
  // nothing, as far as is known, has nothing to remove.
  if (event.group_idx.has_value()) {
    if (skipped_groups_.contains(*event.group_idx)) return;
    const bool all_known = groups_are_named_ && !full_groups_.empty() && full_groups_.size() < kMaxGroups;
    if (all_known && !full_groups_.contains(*event.group_idx)) return;
  }
  learning_root_ = false;  // from here on, what is unknown may be what was removed
  const size_t medium = MediumOf(event.medium);
  for (const EngineHash& hash : event.block_hashes) RemoveHash(hash, medium, at);
}

void BlockLedger::RemoveHash(const EngineHash& hash, size_t medium, absl::Time at) {
  const auto first = alias_ids_.find(hash);
  if (first == alias_ids_.end()) return;
  const bool ambiguous = aliases_[*first].next != kNone;
  Id blank = kNone;
  size_t copies = 0;
  for (Id id = *first, next; id != kNone; id = next) {
    next = aliases_[id].next;
    if (aliases_[id].block == kUnknown) {
      blank = id;
    } else {
      copies += RemoveCopies(id, medium, /*all=*/ambiguous, at);
    }
  }
  if (copies > 1 && ambiguous) {
    AddUnknown(hash, medium, static_cast<uint16_t>(std::min<size_t>(copies - 1, std::numeric_limits<uint16_t>::max())));
  } else if (copies == 0 && blank != kNone) {
    RemoveUnknown(blank, medium);
  }
}

uint16_t BlockLedger::RemoveCopies(Id id, size_t medium, bool all, absl::Time at) {
  Alias& alias = aliases_[id];
  Block& block = blocks_[alias.block];
  if (alias.epoch != epoch_) {
    EndAlias(id);
    return 0;
  }
  const uint16_t copies = alias.copies[medium];
  const uint16_t taken = all ? copies : std::min<uint16_t>(copies, 1);
  const bool gpu = medium == kGpuMedium;
  if (absl::c_accumulate(alias.copies, 0u) > taken) {
    const bool was_warm = block.warm_copies > 0;
    TakeCopies(&alias, medium, taken);
    if (was_warm && block.warm_copies == 0) MarkChanged(alias.block);
  } else if (taken > 0 && gpu && options_->gpu_removal == GpuRemoval::kOffload &&
             block.warm_copies + block.cold_copies == taken) {
    TakeCopies(&alias, medium, taken);
    Offload(id, at);
  } else if (taken > 0 || !gpu) {  // else it is the offload tier's, and was removed already
    EndAlias(id);
  }
  return copies;
}

void BlockLedger::RemoveUnknown(Id id, size_t medium) {
  Alias& blank = aliases_[id];
  if (blank.epoch != epoch_ || blank.copies[medium] == 0) return;  // a suspect one stays until it is forgotten
  --blank.copies[medium];
  if (absl::c_all_of(blank.copies, [](uint16_t n) { return n == 0; })) FreeAlias(id);
}

void BlockLedger::EndAlias(Id id) {
  Alias& alias = aliases_[id];
  Block& block = blocks_[alias.block];
  if (alias.epoch == block.epoch) {
    const bool was_warm = block.warm_copies > 0;
    for (size_t medium = 0; medium < kMedia; ++medium) TakeCopies(&alias, medium, alias.copies[medium]);
    if (block.offloaded) EndOffload(alias.block, id);
    if (!IsHeld(block)) {
      if (IsSuspect(block)) --suspects_;
      ++gone_;
    }
    if (!IsHeld(block) || was_warm != (block.warm_copies > 0)) MarkChanged(alias.block);
  }
  FreeAlias(id);
}

void BlockLedger::TakeCopies(Alias* alias, size_t medium, uint16_t copies) {
  Block& block = blocks_[alias->block];
  alias->copies[medium] -= copies;
  (medium == kGpuMedium ? block.warm_copies : block.cold_copies) -= copies;
}

void BlockLedger::Offload(Id alias, absl::Time at) {
  const Id block = aliases_[alias].block;
  const absl::Time until = at + options_->ttl;
  blocks_[block].offloaded = true;
  offloaded_[block] = {until, alias};
  offload_order_.emplace(until, block);
  MarkChanged(block);
}

void BlockLedger::EndOffload(Id block, Id kept) {
  blocks_[block].offloaded = false;
  const auto found = offloaded_.find(block);
  if (found->second.alias != kept) FreeAlias(found->second.alias);
  offload_order_.erase({found->second.until, block});
  offloaded_.erase(found);
}

void BlockLedger::ExpireOffloaded(absl::Time now) {
  while (!offload_order_.empty() && offload_order_.begin()->first <= now) {
    const Id id = offload_order_.begin()->second;
    if (IsSuspect(blocks_[id])) --suspects_;
    ++gone_;
    MarkChanged(id);
    EndOffload(id, kNone);
  }
}

// ---- Loss ---------------------------------------------------------------------------------------------------------

void BlockLedger::Restart(bool known_from_start) {
  Clear();
  ForgetEngine();
  root_.reset();
  seen_store_ = false;
  learning_root_ = known_from_start;
  meanings_missed_ = !known_from_start;
}

void BlockLedger::Clear() {
  block_ids_.clear();
  alias_ids_.clear();
  blocks_.clear();
  aliases_.clear();
  free_blocks_.clear();
  free_aliases_.clear();
  adapters_.clear();
  adapter_ids_.clear();
  changed_.clear();
  offloaded_.clear();
  offload_order_.clear();
  gone_ = suspects_ = blanks_ = 0;
  oldest_ = newest_ = kNone;
  meanings_missed_ = doubt_ = false;
  learning_root_ = !seen_store_;
}

void BlockLedger::MarkSuspect() {
  ++epoch_;
  suspects_ = held_blocks();
  learning_root_ = false;
  meanings_missed_ = true;
}

void BlockLedger::ForgetEngine() {
  skipped_groups_.clear();
  full_groups_.clear();
  groups_are_named_ = true;
  chain_proof_.Forget();
}

void BlockLedger::ForgetSuspects(uint32_t epoch) {
  while (oldest_ != kNone && aliases_[oldest_].epoch < epoch) {
    aliases_[oldest_].block == kUnknown ? FreeAlias(oldest_) : EndAlias(oldest_);
  }
}

void BlockLedger::MarkChanged(Id id) {
  if (std::exchange(blocks_[id].changed, true)) return;
  changed_.push_back(id);
}

void BlockLedger::FreeAlias(Id id) {
  Alias& alias = aliases_[id];
  const auto first = alias_ids_.find(alias.hash);
  const Id head = *first;
  if (head == id) {
    alias_ids_.erase(first);
    if (alias.next != kNone) alias_ids_.insert(alias.next);
  } else {
    Id before = head;
    while (aliases_[before].next != id) before = aliases_[before].next;
    aliases_[before].next = alias.next;
  }
  UnlinkByEpoch(id);
  if (alias.block == kUnknown) {
    --blanks_;
  } else {
    Block& block = blocks_[alias.block];
    --block.aliases;
    if (!IsHeld(block) && !block.changed) FreeBlock(alias.block);
  }
  alias.block = kNone;
  free_aliases_.push_back(id);
}

void BlockLedger::FreeBlock(Id id) {
  if (blocks_[id].aliases > 0) return;
  block_ids_.erase(id);
  blocks_[id].tokens_through = 0;
  free_blocks_.push_back(id);
  --gone_;
}

// ---- Reporting ----------------------------------------------------------------------------------------------------

void BlockLedger::Drain(LedgerSink* sink, BaseEviction base_eviction) {
  for (size_t i = 0; i < changed_.size(); ++i) {  // it may grow
    Block& block = blocks_[changed_[i]];
    block.changed = false;
    if (IsHeld(block)) continue;
    sink->OnEvicted(adapters_[block.adapter], block.fingerprint);
    if (base_eviction == BaseEviction::kThatBlock || !adapters_[block.adapter].empty()) continue;
    for (uint16_t adapter = 0; adapter < adapters_.size(); ++adapter) {
      const auto same = block_ids_.find(BlockKey{adapter, block.fingerprint});
      if (same != block_ids_.end() && IsHeld(blocks_[*same])) MarkChanged(*same);
    }
  }
  TellRuns(changed_, sink);
  for (const Id id : changed_) {
    if (blocks_[id].tokens_through != 0 && !IsHeld(blocks_[id])) FreeBlock(id);
  }
  changed_.clear();
}

void BlockLedger::TellRuns(absl::Span<const Id> ids, LedgerSink* sink) {
  scratch_hashes_.clear();
  const Block* first = nullptr;  // of the run being gathered
  const Block* last = nullptr;
  const auto is_warm = [](const Block& block) { return block.warm_copies > 0; };
  const auto tell = [&] {
    if (first == nullptr) return;
    sink->OnHeld({.adapter_id = adapters_[first->adapter],
                  .warm = is_warm(*first),
                  .tokens_before = first->tokens_through - first->block_tokens,
                  .tokens_per_block = first->block_tokens,
                  .hashes = scratch_hashes_});
    scratch_hashes_.clear();
    first = nullptr;
  };
  for (const Id id : ids) {
    const Block& block = blocks_[id];
    if (!IsHeld(block) || IsSuspect(block)) continue;
    const bool continues = first != nullptr && block.adapter == first->adapter &&
                           block.block_tokens == first->block_tokens && is_warm(block) == is_warm(*first) &&
                           block.tokens_through - block.block_tokens == last->tokens_through;
    if (!continues) {
      tell();
      first = &block;
    }
    scratch_hashes_.push_back(block.fingerprint);
    last = &block;
  }
  tell();
}

void BlockLedger::ReportAll(LedgerSink* sink) {
  for (const Id id : changed_) {
    blocks_[id].changed = false;
    if (!IsHeld(blocks_[id])) FreeBlock(id);
  }
  changed_.clear();

  // Each chain from its leaf up to where another chain has been told already. A stale parent costs a longer way, no
  // more: it cannot go in circles, for tokens_through falls.
  const auto parent_of = [&](Id id) -> Id {
    const Block& block = blocks_[id];
    if (block.parent == kNone || block.parent >= blocks_.size()) return kNone;
    const Block& parent = blocks_[block.parent];
    const bool fits = parent.tokens_through == block.tokens_through - block.block_tokens && parent.tokens_through > 0 &&
                      parent.adapter == block.adapter;
    return fits ? block.parent : kNone;
  };
  std::vector<bool> has_child(blocks_.size());
  std::vector<bool> told(blocks_.size());
  for (Id id = 0; id < blocks_.size(); ++id) {
    if (blocks_[id].tokens_through == 0) continue;
    if (const Id parent = parent_of(id); parent != kNone) has_child[parent] = true;
  }
  for (Id leaf = 0; leaf < blocks_.size(); ++leaf) {
    if (blocks_[leaf].tokens_through == 0 || has_child[leaf]) continue;
    scratch_ids_.clear();
    for (Id id = leaf; id != kNone && !told[id]; id = parent_of(id)) {
      told[id] = true;
      scratch_ids_.push_back(id);
    }
    std::reverse(scratch_ids_.begin(), scratch_ids_.end());
    TellRuns(scratch_ids_, sink);
  }
}

size_t BlockLedger::memory_bytes() const {
  return blocks_.size() * sizeof(Block) + aliases_.size() * sizeof(Alias) +
         (block_ids_.capacity() + alias_ids_.capacity()) * (sizeof(Id) + 1) +
         offloaded_.capacity() * (sizeof(std::pair<Id, Offloaded>) + 1) +
         offload_order_.size() * sizeof(std::pair<absl::Time, Id>) +
         (free_blocks_.capacity() + free_aliases_.capacity() + changed_.capacity()) * sizeof(Id);
}

absl::Status BlockLedger::CheckInvariants() const {
  const auto broken = [](const char* what) { return absl::InternalError(what); };
  std::vector<std::array<uint64_t, 3>> sums(blocks_.size());  // warm, cold, aliases
  size_t used = 0, blanks = 0;                                // aliases
  for (Id id = 0; id < aliases_.size(); ++id) {
    const Alias& alias = aliases_[id];
    if (alias.block == kNone) continue;
    ++used;
    Id listed = *alias_ids_.find(alias.hash);
    while (listed != kNone && listed != id) listed = aliases_[listed].next;
    if (listed != id) return broken("an alias that its hash does not find");
    const auto copies = absl::c_accumulate(alias.copies, uint64_t{0});
    if (alias.block == kUnknown) {
      ++blanks;
      if (copies == 0) return broken("an empty blank alias");
      continue;
    }
    const Block& block = blocks_[alias.block];
    if (block.tokens_through == 0) return broken("an alias of a freed block");
    if (alias.epoch > block.epoch) return broken("an alias of a later epoch than its block");
    ++sums[alias.block][2];
    if (alias.epoch == block.epoch) {
      sums[alias.block][0] += alias.copies[kGpuMedium];
      sums[alias.block][1] += copies - alias.copies[kGpuMedium];
    }
    const auto kept = offloaded_.find(alias.block);
    if (copies == 0 && (kept == offloaded_.end() || kept->second.alias != id)) return broken("an empty alias");
  }
  if (blanks != blanks_) return broken("a wrong number of blank aliases");
  for (Id id = oldest_; id != kNone; id = aliases_[id].newer, --used) {
    const Id newer = aliases_[id].newer;
    if (newer != kNone && aliases_[newer].epoch < aliases_[id].epoch)
      return broken("aliases not in the order of epochs");
  }
  if (used != 0) return broken("a wrong number of aliases in the order of epochs");
  if (offload_order_.size() != offloaded_.size()) return broken("a wrong number of offloaded blocks in order");
  size_t held = 0, suspects = 0;
  for (Id id = 0; id < blocks_.size(); ++id) {
    const Block& block = blocks_[id];
    if (block.tokens_through == 0) continue;
    if (block.warm_copies != sums[id][0] || block.cold_copies != sums[id][1] || block.aliases != sums[id][2]) {
      return broken("sums that do not add up");
    }
    if (block.offloaded != offloaded_.contains(id)) return broken("an offloaded block without a record");
    if (!IsHeld(block) && !block.changed && block.aliases == 0) return broken("a block that should be freed");
    held += IsHeld(block);
    suspects += IsHeld(block) && IsSuspect(block);
  }
  if (held != held_blocks()) return broken("a wrong number of blocks held");
  if (suspects != suspects_) return broken("a wrong number of suspects");
  return absl::OkStatus();
}

}  // namespace icache
