// Random updates and events over a small universe of names and hashes, so that they meet, overlap and collide.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/block_hash.h"
#include "icache/index/observation.h"
#include "icache/index/prefix_index.h"
#include "tests/testing/observations.h"

namespace icache::testing {

// How many of each there are; the product bounds what can be held at once.
struct UniverseSize {
  size_t tenants = 1;
  size_t models = 1;
  size_t adapters = 1;  // the base model included
  size_t replicas = 1;
  size_t hashes = 1;
};

// Everything that is spoken of in a run. Immutable once made.
struct Universe {
  Universe(const UniverseSize& size, uint64_t seed)
      : tenants(Names("t", size.tenants)),
        models(Names("m", size.models)),
        adapters(Names("lora", size.adapters - 1)),
        replicas(Names("r", size.replicas)) {
    adapters.push_back("");
    std::mt19937_64 random(seed);
    for (size_t i = 0; i < size.hashes; ++i) {
      const size_t narrowest = i < 256 ? 1 : 2;
      const size_t width =
          random() % 3 == 0 ? narrowest + random() % (kMaxBlockHashBytes + 1 - narrowest) : kPackedHashBytes;
      std::string hash(width, static_cast<char>('a' + i % 3));  // many share all bytes but the last
      hash.back() = static_cast<char>(i);
      if (i >= 256) hash[width - 2] = static_cast<char>(i >> 8);
      if (i == 0) hash = BytesOf(0);  // at least one is packed
      if (hash.size() == kPackedHashBytes) packed.push_back(LoadBigEndian64(hash.data()));
      hashes.push_back(std::move(hash));
    }
    std::vector<std::string> family = hashes;
    for (int i = 0; i < 5; ++i) {
      families.push_back(family);
      std::shuffle(family.begin() + static_cast<ptrdiff_t>(random() % family.size()), family.end(), random);
    }
  }

  std::vector<std::string> tenants;
  std::vector<std::string> models;
  std::vector<std::string> schemes = {"vllm", "sglang"};
  std::vector<std::string> adapters;
  std::vector<std::string> replicas;
  std::vector<std::string> hashes;                 // of 8 bytes, mixed with all other widths
  std::vector<uint64_t> packed;                    // those of 8 bytes
  std::vector<std::vector<std::string>> families;  // chains of all hashes, which share their beginnings

 private:
  static std::vector<std::string> Names(const std::string& prefix, size_t count) {
    std::vector<std::string> names;
    for (size_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
    return names;
  }
};

// Draws from a universe. `universe` must outlive it.
class RandomObservations {
 public:
  RandomObservations(const Universe* universe, uint64_t seed) : universe_(*universe), random_(seed) {}

  const Universe& universe() const { return universe_; }

  uint64_t Bits() { return random_(); }
  size_t Below(size_t bound) { return static_cast<size_t>(random_() % bound); }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <typename List>
  const auto& Any(const List& list) {
    return list[Below(std::size(list))];
  }
  ScopeKey Scope() { return {Any(universe_.tenants), Any(universe_.models), Any(universe_.schemes)}; }

  // Mostly few hashes, mostly from the root of a family, seldom without any order. In large universes some are longer
  // than what an engine may keep in one piece.
  std::vector<std::string> ChainHashes() {
    const std::vector<std::string>& family = Any(universe_.families);
    const size_t length = 1 + Below(OneIn(8) && family.size() > 256 ? family.size() : OneIn(4) ? 40 : 8);
    const size_t start = OneIn(4) ? Below(family.size()) : 0;
    const bool disorderly = OneIn(20);
    std::vector<std::string> chain;
    for (size_t i = 0; i < length; ++i) {
      chain.push_back(disorderly ? Any(universe_.hashes) : family[(start + i) % family.size()]);
    }
    return chain;
  }
  // The same of packed hashes.
  std::vector<uint64_t> PackedHashes() {
    std::vector<uint64_t> packed;
    for (const std::string& hash : ChainHashes()) {
      if (hash.size() == kPackedHashBytes) packed.push_back(LoadBigEndian64(hash.data()));
    }
    if (packed.empty()) packed.push_back(Any(universe_.packed));
    return packed;
  }
  // Half of the time as many for each block but the last, which may be partial; else any.
  std::vector<int32_t> Tokens(size_t count) {
    std::vector<int32_t> tokens(count, OneIn(4) ? 32 : 16);
    if (OneIn(2)) {
      if (OneIn(2)) tokens.back() = static_cast<int32_t>(Below(16));
      return tokens;
    }
    for (int32_t& each : tokens) each = OneIn(8) ? 0 : static_cast<int32_t>(1 + Below(64));
    return tokens;
  }

  // With everything that a wire message can carry, malformed parts included.
  OwnedUpdate Update(absl::Time now) {
    OwnedUpdate update = {.replica_id = Any(universe_.replicas),
                          .model_id = Any(universe_.models),
                          .tenant_id = Any(universe_.tenants),
                          .hash_scheme = OneIn(30) ? "" : Any(universe_.schemes),
                          .adapter_id = Any(universe_.adapters),
                          .stamped_at = Stamp(now),
                          .clear = OneIn(25),
                          .retains_all = OneIn(6)};
    for (size_t i = Below(4); i > 0; --i) update.prefixes.push_back(Prefix());
    if (OneIn(5)) {
      if (OneIn(2)) update.evicted_hashes = EvictedStretch();
      for (size_t i = Below(4); i > 0; --i) update.evicted_hashes.push_back(Any(universe_.hashes));
      for (size_t i = Below(4); i > 0; --i) update.evicted_hashes_u64.push_back(Any(universe_.packed));
      if (OneIn(10)) update.evicted_hashes.push_back(std::string(OneIn(2) ? 0 : kMaxBlockHashBytes + 1, 'x'));
    }
    if (OneIn(6)) {
      update.stats = OwnedStats{.cache_memory_bytes = static_cast<int64_t>(Below(1000)),
                                .hit_rate = OneIn(10) ? std::numeric_limits<float>::infinity() : 0.5f,
                                .pressure = OneIn(10) ? std::numeric_limits<float>::quiet_NaN() : 0.25f,
                                .client_version = Any(universe_.models),
                                .t2_hit_tokens = static_cast<int64_t>(Below(1000)),
                                .t2_query_tokens = static_cast<int64_t>(Below(1000))};
    }
    if (OneIn(60)) {
      std::string* const names[] = {&update.replica_id, &update.model_id, &update.tenant_id, &update.hash_scheme,
                                    &update.adapter_id};
      *Any(names) = std::string(OneIn(2) ? 0 : kMaxNameBytes + 1, 'x');
    }
    return update;
  }

  OwnedEvent Event(absl::Time now) {
    static constexpr CacheEventType kTypes[] = {CacheEventType::kPrefixEvicted,  CacheEventType::kPrefixEvicted,
                                                CacheEventType::kPrefixEvicted,  CacheEventType::kAllCleared,
                                                CacheEventType::kReplicaUpdated, CacheEventType::kReplicaUpdated,
                                                CacheEventType::kPrefixAdded,    CacheEventType::kUnspecified};
    OwnedEvent event = {.type = Any(kTypes),
                        .replica_id = Any(universe_.replicas),
                        .model_id = Any(universe_.models),
                        .tenant_id = Any(universe_.tenants),
                        .prefix_hash = Any(universe_.hashes),
                        .adapter_id = Any(universe_.adapters),
                        .stamped_at = Stamp(now)};
    if (OneIn(60)) {
      std::string* const fields[] = {&event.replica_id, &event.model_id, &event.tenant_id, &event.prefix_hash};
      Any(fields)->clear();
    }
    return event;
  }

 private:
  // Few different times, so that many are equal.
  std::optional<absl::Time> Stamp(absl::Time now) {
    switch (Below(10)) {
      case 0:
        return now;
      case 1:
        return now + absl::Seconds(static_cast<int64_t>(Below(3)));
      case 2:
        return now - absl::Microseconds(static_cast<int64_t>(Below(3)));
      case 3:
      case 4:
        return now - absl::Minutes(static_cast<int64_t>(Below(4)));
      case 5:
        return now - absl::Hours(static_cast<int64_t>(Below(60)));
      case 6:
        return OneIn(8) ? absl::FromUnixMicros(static_cast<int64_t>(Below(3)) - 1)
                        : now - absl::Seconds(static_cast<int64_t>(Below(20)));
      default:
        return std::nullopt;
    }
  }

  OwnedPrefix Prefix() {
    OwnedPrefix prefix;
    const size_t roll = Below(20);
    if (roll < 10) {
      prefix = Blocks(ChainHashes());
      prefix.block_token_counts = Tokens(prefix.block_hashes.size());
      if (OneIn(8)) {
        prefix.prefix_hash = Any(universe_.hashes);
        prefix.token_count = static_cast<int32_t>(Below(100));
      }
    } else if (roll < 15) {
      prefix = Packed(PackedHashes(), static_cast<int32_t>(1 + Below(32)));
    } else {
      prefix = Single(Any(universe_.hashes), static_cast<int32_t>(Below(100)));
    }
    prefix.tier = static_cast<int32_t>(Below(6)) - 1;
    if (OneIn(6)) prefix.adapter_id = Any(universe_.adapters);
    if (OneIn(25)) Spoil(&prefix);
    return prefix;
  }

  // What an engine that runs out of room lets go of: a stretch of a chain, tail first or head first.
  std::vector<std::string> EvictedStretch() {
    std::vector<std::string> stretch = ChainHashes();
    if (OneIn(2)) std::reverse(stretch.begin(), stretch.end());
    return stretch;
  }

  // Mostly makes it malformed.
  void Spoil(OwnedPrefix* prefix) {
    switch (Below(7)) {
      case 0:
        prefix->prefix_hash = std::string(kMaxBlockHashBytes + 1, 'x');
        break;
      case 1:
        prefix->token_count = -1;
        break;
      case 2:
        prefix->block_token_counts.push_back(1);
        break;
      case 3:
        prefix->tokens_per_block = -prefix->tokens_per_block;
        break;
      case 4:
        prefix->adapter_id = std::string(kMaxNameBytes + 1, 'x');
        break;
      case 5:
        if (!prefix->block_hashes.empty()) prefix->block_hashes.back().clear();
        break;
      case 6:
        if (!prefix->block_token_counts.empty()) {
          prefix->block_token_counts.back() = OneIn(2) ? -1 : std::numeric_limits<int32_t>::max();
        }
        break;
    }
  }

  const Universe& universe_;
  std::mt19937_64 random_;
};

// --- For messages --------------------------------------------------------------------------------------------------

// The last bytes of a hash, which tell those of a universe apart, and its width.
inline std::string HashText(std::string_view hash) {
  if (hash.empty()) return "none";
  return std::to_string(static_cast<unsigned char>(hash.back())) + "/" + std::to_string(hash.size());
}

inline std::string HashText(const std::vector<std::string>& hashes) {
  std::string text;
  for (const std::string& hash : hashes) text += " " + HashText(hash);
  return text;
}

inline std::string HashText(const std::vector<uint64_t>& packed) {
  std::string text;
  for (const uint64_t hash : packed) text += " " + HashText(BytesOf(hash));
  return text;
}

inline std::string NameText(const std::string& name) { return name.substr(0, 8); }

inline std::string TimeText(const std::optional<absl::Time>& stamp, absl::Time now) {
  return stamp ? "now+" + absl::FormatDuration(*stamp - now) : "unstamped";
}

inline std::string Text(const OwnedUpdate& update, absl::Time now) {
  std::ostringstream text;
  text << "update " << NameText(update.tenant_id) << "/" << NameText(update.model_id) << "/"
       << NameText(update.hash_scheme) << "/" << NameText(update.adapter_id) << " of " << NameText(update.replica_id)
       << " at " << TimeText(update.stamped_at, now) << (update.clear ? " clear" : "")
       << (update.retains_all ? " lease" : "") << (update.stats ? " stats" : "") << "\n    evicts"
       << HashText(update.evicted_hashes) << ", packed" << HashText(update.evicted_hashes_u64);
  for (const OwnedPrefix& prefix : update.prefixes) {
    text << "\n    blocks" << HashText(prefix.block_hashes) << " (" << prefix.block_token_counts.size()
         << " counts), packed" << HashText(prefix.block_hashes_u64) << " of " << prefix.tokens_per_block << ", hash "
         << HashText(prefix.prefix_hash) << " of " << prefix.token_count << ", tier " << prefix.tier << ", adapter '"
         << NameText(prefix.adapter_id) << "'";
  }
  return text.str();
}

inline std::string Text(const OwnedEvent& event, absl::Time now) {
  return "event " + std::to_string(static_cast<int>(event.type)) + " " + event.tenant_id + "/" + event.model_id +
         "/*/" + event.adapter_id + " of " + event.replica_id + " hash " + HashText(event.prefix_hash) + " at " +
         TimeText(event.stamped_at, now);
}

}  // namespace icache::testing
