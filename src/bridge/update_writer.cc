#include "bridge/update_writer.h"

#include <algorithm>
#include <utility>

#include "icache/base/block_hash.h"

namespace icache {
namespace {

using inferencecache::v1alpha1::CACHE_TIER_T1;
using inferencecache::v1alpha1::CACHE_TIER_T2;
using inferencecache::v1alpha1::PrefixEntry;

void WriteRun(const BlockRun& run, PrefixEntry* entry) {
  entry->set_adapter_id(std::string(run.adapter_id));
  entry->set_tier(run.warm ? CACHE_TIER_T1 : CACHE_TIER_T2);
  if (run.tokens_before == 0) {
    entry->mutable_block_hashes_u64()->Add(run.hashes.begin(), run.hashes.end());
    entry->set_tokens_per_block(run.tokens_per_block);
    return;
  }
  int32_t tokens = run.tokens_before + run.tokens_per_block;
  char bytes[kPackedHashBytes];
  for (const uint64_t hash : run.hashes) {
    StoreBigEndian64(hash, bytes);
    entry->add_block_hashes(bytes, sizeof(bytes));
    entry->add_block_token_counts(tokens);
    tokens = run.tokens_per_block;  // counts add up on the way, and only the first has something before it
  }
}

}  // namespace

std::shared_ptr<CacheStateUpdate> EmptyUpdate(const ReplicaNames& names, absl::Time at) {
  auto update = std::make_shared<CacheStateUpdate>();
  update->set_replica_id(names.replica);
  update->set_model_id(names.model);
  update->set_tenant_id(names.tenant);
  update->set_hash_scheme(names.hash_scheme);
  update->set_timestamp_us(absl::ToUnixMicros(at));
  return update;
}

UpdateWriter::UpdateWriter(const ReplicaNames* names, absl::Time at, absl::Time made_at, size_t max_blocks, bool clear)
    : names_(names), at_(at), made_at_(made_at), max_blocks_(max_blocks) {
  if (!clear) return;
  // What an earlier bridge has told may be stamped later, by a clock that was ahead of this one. So behind the stamped
  // clear, which fences off what is still on its way, one without a stamp, which stands for the daemon's now.
  for (const absl::Time cleared_at : {at_, absl::UnixEpoch()}) {
    auto update = EmptyUpdate(*names_, cleared_at);
    update->set_clear(true);
    finished_.push_back({std::move(update), 0, made_at_});
  }
}

UpdateWriter::Open& UpdateWriter::OpenFor(std::string_view adapter_id) {
  auto found = removals_.end();
  if (!adapter_id.empty()) {
    found = removals_.find(adapter_id);
    if (found == removals_.end()) found = removals_.try_emplace(adapter_id).first;
  }
  Open& open = adapter_id.empty() ? base_ : found->second;
  if (open.blocks >= max_blocks_) Close(&open);
  if (open.update == nullptr) {
    open.update = EmptyUpdate(*names_, at_);
    open.update->set_adapter_id(std::string(adapter_id));
  }
  return open;
}

void UpdateWriter::Close(Open* open) {
  if (open->update == nullptr) return;
  finished_.push_back({std::exchange(open->update, nullptr), std::exchange(open->blocks, 0), made_at_});
}

void UpdateWriter::OnHeld(const BlockRun& run) {
  BlockRun rest = run;
  while (!rest.hashes.empty()) {
    Open& open = OpenFor("");
    const size_t count = std::min(rest.hashes.size(), max_blocks_ - open.blocks);
    BlockRun part = rest;
    part.hashes = rest.hashes.first(count);
    WriteRun(part, open.update->add_prefixes());
    open.blocks += count;
    rest.hashes.remove_prefix(count);
    rest.tokens_before += static_cast<int32_t>(count) * rest.tokens_per_block;
  }
}

void UpdateWriter::OnEvicted(std::string_view adapter_id, uint64_t hash) {
  Open& open = OpenFor(adapter_id);
  open.update->add_evicted_hashes_u64(hash);
  ++open.blocks;
}

std::vector<Report> UpdateWriter::Finish() {
  Close(&base_);
  for (auto& [adapter, open] : removals_) Close(&open);
  return std::move(finished_);
}

}  // namespace icache
