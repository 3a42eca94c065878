#include "tests/testing/simulated_engine.h"

#include <functional>

#include "icache/fingerprint/fingerprint.h"

namespace icache::testing {
namespace {

constexpr char kGpu[] = "GPU";

// One field of an event: its name in the map form, whether it has its default, and how to pack it.
struct Field {
  const char* name;
  bool is_default;
  std::function<void()> pack;
};

}  // namespace

void SimulatedEngine::StartProcess() {
  process_ = random_();
  next_sequence_ = 0;
  foreign_group_seen_ = false;
  blocks_.clear();
  live_.clear();
}

std::string SimulatedEngine::HashBytes(uint64_t id) const {
  std::mt19937_64 digest(id ^ process_);
  std::string bytes;
  while (bytes.size() < 32) bytes.push_back(static_cast<char>(digest()));
  return bytes;
}

void SimulatedEngine::PackHash(Packer* packer, uint64_t id) {
  if (options_.bytes_hashes) {
    const std::string bytes = HashBytes(id);
    packer->pack_bin(bytes.size()).pack_bin_body(bytes.data(), bytes.size());
    return;
  }
  // The same 64 bits, signed or not.
  const uint64_t pattern = std::mt19937_64(id ^ process_)();
  if (Chance(0.5)) {
    packer->pack(static_cast<int64_t>(pattern));
  } else {
    packer->pack(pattern);
  }
}

SimulatedBatch SimulatedEngine::Publish(double time) {
  if (Chance(options_.restarts)) Restart();
  msgpack::sbuffer events;
  Packer packer(&events);
  const size_t count = 1 + Pick(4);
  for (size_t i = 0; i < count; ++i) PackEvent(&packer);
  return Finish(time, std::string(events.data(), events.size()), count);
}

SimulatedBatch SimulatedEngine::PublishNothing(double time) { return Finish(time, "", 0); }

SimulatedBatch SimulatedEngine::Finish(double time, const std::string& events, size_t count) {
  msgpack::sbuffer whole;
  Packer packer(&whole);
  const bool map = Chance(0.5);
  const bool has_rank = options_.rank.has_value();
  const auto key = [&](const char* name) {
    if (map) packer.pack(name);
  };
  if (map) {
    packer.pack_map(2 + has_rank);
  } else {
    packer.pack_array(2 + has_rank);
  }
  key("ts");
  packer.pack(time);
  key("events");
  packer.pack_array(static_cast<uint32_t>(count));
  whole.write(events.data(), events.size());
  if (has_rank) {
    key("data_parallel_rank");
    packer.pack(*options_.rank);
  }
  return {next_sequence_++, time, std::string(whole.data(), whole.size())};
}

void SimulatedEngine::PackEvent(Packer* packer) {
  const double dice = std::uniform_real_distribution<double>(0, 1)(random_);
  const auto live = [&]() -> std::optional<size_t> {
    for (int tries = 0; tries < 4 && !live_.empty(); ++tries) {
      const size_t at = Pick(live_.size());
      if (!blocks_[live_[at]].copies.empty()) return live_[at];
      live_[at] = live_.back();
      live_.pop_back();
    }
    return std::nullopt;
  };
  // Engines announce no block whose parent they have dropped.
  const auto has_parent = [&](size_t block) {
    return !blocks_[block].parent || !blocks_[*blocks_[block].parent].copies.empty();
  };
  if (dice < options_.clears) {
    foreign_group_seen_ = false;
    for (Block& block : blocks_) block.copies.clear();
    live_.clear();
    packer->pack_array(1);
    PackText(packer, "AllBlocksCleared");
  } else if (dice < 0.02) {
    packer->pack_map(2);
    PackText(packer, "type");
    PackText(packer, "SomethingNew");
    PackText(packer, "x");
    packer->pack_array(2).pack(1).pack(true);
  } else if (const auto block = live(); dice < 0.12 && block && has_parent(*block)) {
    PackCopy(packer, *block, kGpu);
  } else if (dice < 0.22 && block && has_parent(*block)) {
    PackCopy(packer, *block, Chance(0.8) ? "CPU" : "DISK");
  } else if (dice < 0.25 && block) {
    PackForeignGroup(packer);
  } else if (dice < 0.62 && block) {
    PackRemoval(packer);
  } else {
    PackNewBlocks(packer);
  }
}

void SimulatedEngine::PackNewBlocks(Packer* packer) {
  std::optional<size_t> parent;
  if (!live_.empty() && Chance(0.7)) {
    const size_t candidate = live_[Pick(live_.size())];
    if (blocks_[candidate].copies.contains(kGpu)) parent = candidate;
  }
  static const char* const kAdapters[] = {"", "", "", "lora-a", "lora-b", kMappedLora, "?"};
  const std::string adapter = parent ? blocks_[*parent].adapter : kAdapters[Pick(std::size(kAdapters))];
  const size_t size = parent ? blocks_[*parent].tokens.size() : (Chance(0.8) ? 4 : 6);
  const size_t count = 1 + Pick(static_cast<size_t>(options_.max_blocks_per_event));
  const size_t salted_from = Chance(0.05) ? Pick(count) : count;
  std::vector<size_t> stored;
  for (size_t i = 0; i < count; ++i) {
    Block block;
    block.id = next_id_++;
    block.parent = parent;
    block.adapter = adapter;
    block.salted = i >= salted_from;
    for (size_t t = 0; t < size; ++t) block.tokens.push_back(static_cast<uint32_t>(random_()));
    const bool parent_claimed = !parent || blocks_[*parent].fingerprint.has_value();
    block.tokens_through = static_cast<int32_t>(size) + (parent ? blocks_[*parent].tokens_through : 0);
    if (parent_claimed && !block.salted && adapter != "?") {
      const uint64_t content = ContentHash(block.tokens);
      block.fingerprint = parent ? ChainHash(*blocks_[*parent].fingerprint, content) : content;
    }
    block.copies[kGpu] = 1;
    parent = blocks_.size();
    stored.push_back(blocks_.size());
    live_.push_back(blocks_.size());
    blocks_.push_back(std::move(block));
  }
  stored_blocks_ += count;
  PackStored(packer, stored, kGpu);
}

void SimulatedEngine::PackCopy(Packer* packer, size_t block, const std::string& medium) {
  ++blocks_[block].copies[medium];
  ++stored_blocks_;
  PackStored(packer, {block}, medium);
}

void SimulatedEngine::PackForeignGroup(Packer* packer) {
  // The hashes of another group's blocks are those of the first group's.
  const size_t block = live_[Pick(live_.size())];
  if (!std::exchange(foreign_group_seen_, true) || Chance(0.5)) {
    return PackStored(packer, {block}, kGpu, "sliding_window");
  }
  packer->pack_array(4);
  PackText(packer, "BlockRemoved");
  packer->pack_array(1);
  PackHash(packer, blocks_[block].id);
  packer->pack_nil().pack(9);
}

void SimulatedEngine::PackRemoval(Packer* packer) {
  std::string medium;
  std::vector<uint64_t> ids;
  const size_t wanted = 1 + Pick(3);
  for (size_t tries = 0; tries < 16 && ids.size() < wanted; ++tries) {
    Block& block = blocks_[live_[Pick(live_.size())]];
    if (block.copies.empty()) continue;
    if (medium.empty()) medium = block.copies.begin()->first;
    const auto copies = block.copies.find(medium);
    if (copies == block.copies.end()) continue;
    if (--copies->second == 0) block.copies.erase(copies);
    ids.push_back(block.id);
  }
  if (ids.empty()) {  // of a block that nobody knows
    medium = kGpu;
    ids.push_back(next_id_++);
  }
  const bool map = Chance(0.5);
  const bool plain = medium == kGpu && Chance(0.5);
  if (map) {
    packer->pack_map(plain ? 2 : 3);
    PackText(packer, "block_hashes");
  } else {
    packer->pack_array(plain ? 2 : 3);
    PackText(packer, "BlockRemoved");
  }
  packer->pack_array(static_cast<uint32_t>(ids.size()));
  for (const uint64_t id : ids) PackHash(packer, id);
  if (map) {
    PackText(packer, "type");
    PackText(packer, "BlockRemoved");
  }
  if (plain) return;
  if (map) PackText(packer, "medium");
  PackText(packer, medium);
}

void SimulatedEngine::PackStored(Packer* packer, const std::vector<size_t>& blocks, const std::string& medium,
                                 const std::string& spec_kind) {
  const Block& first = blocks_[blocks.front()];
  const bool mapped = first.adapter == kMappedLora;
  const bool unnamed = first.adapter == "?";
  const bool has_lora = !first.adapter.empty();
  bool has_keys = Chance(0.1) || (has_lora && Chance(0.5));
  for (const size_t block : blocks) has_keys |= blocks_[block].salted;
  const bool foreign = !spec_kind.empty();

  const std::vector<Field> fields = {
      {"block_hashes", false,
       [&] {
         packer->pack_array(static_cast<uint32_t>(blocks.size()));
         for (const size_t block : blocks) PackHash(packer, blocks_[block].id);
       }},
      {"parent_block_hash", false,
       [&] {
         if (first.parent) {
           PackHash(packer, blocks_[*first.parent].id);
         } else if (options_.sends_root) {
           PackHash(packer, 0);
         } else {
           packer->pack_nil();
         }
       }},
      {"token_ids", false,
       [&] {
         packer->pack_array(static_cast<uint32_t>(blocks.size() * first.tokens.size()));
         for (const size_t block : blocks) {
           for (const uint32_t token : blocks_[block].tokens) packer->pack(token);
         }
       }},
      {"block_size", false, [&] { packer->pack(first.tokens.size()); }},
      {"lora_id", !has_lora,
       [&] {
         if (mapped) {
           packer->pack(kMappedLoraId);
         } else if (has_lora) {
           packer->pack(unnamed ? 99 : 3);
         } else {
           packer->pack_nil();
         }
       }},
      {"medium", medium == kGpu, [&] { PackText(packer, medium); }},
      {"lora_name", !has_lora || mapped || unnamed,
       [&] {
         if (has_lora && !mapped && !unnamed) {
           PackText(packer, first.adapter);
         } else {
           packer->pack_nil();
         }
       }},
      {"extra_keys", !has_keys,
       [&] {
         if (!has_keys) return static_cast<void>(packer->pack_nil());
         packer->pack_array(static_cast<uint32_t>(blocks.size()));
         for (const size_t block : blocks) {
           if (blocks_[block].salted) {
             packer->pack_array(1);
             PackText(packer, "a-salt");
           } else if (has_lora && !unnamed) {
             packer->pack_array(1);
             PackText(packer, first.adapter);
           } else {
             packer->pack_nil();
           }
         }
       }},
      {"group_idx", !foreign, [&] { packer->pack(foreign ? 9 : 0); }},
      {"kv_cache_spec_kind", !foreign, [&] { PackText(packer, foreign ? spec_kind : "full_attention"); }},
      {"of_a_later_version", true, [&] { packer->pack_map(1).pack(1).pack(2.5); }},
  };
  size_t used = fields.size();
  if (Chance(0.8)) {
    while (fields[used - 1].is_default) --used;
  }
  if (Chance(0.5)) {
    packer->pack_array(static_cast<uint32_t>(used + 1));
    PackText(packer, "BlockStored");
    for (size_t i = 0; i < used; ++i) fields[i].pack();
  } else {
    packer->pack_map(static_cast<uint32_t>(used + 1));
    for (size_t i = 0; i < used; ++i) {
      if (i == used / 2) {
        PackText(packer, "type");
        PackText(packer, "BlockStored");
      }
      PackText(packer, fields[i].name);
      fields[i].pack();
    }
  }
}

std::vector<ContentKey> SimulatedEngine::EverHeld() const {
  std::vector<ContentKey> all;
  for (const Block& block : blocks_) {
    if (block.fingerprint.has_value()) all.emplace_back(block.adapter, *block.fingerprint);
  }
  return all;
}

HeldContents SimulatedEngine::Held() const {
  HeldContents held;
  for (const Block& block : blocks_) {
    if (block.copies.empty() || !block.fingerprint.has_value()) continue;
    held[{block.adapter, *block.fingerprint}] = {block.copies.contains(kGpu), block.tokens_through};
  }
  return held;
}

}  // namespace icache::testing
