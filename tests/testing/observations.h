// Observations that own their bytes, and one-line questions to an index, for tests.
//
// The index's own types are views into a wire message; these hold the strings, and lend the views for one call.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/block_hash.h"
#include "icache/index/observation.h"
#include "icache/index/prefix_index.h"

namespace icache::testing {

// A list of strings as the views that spans are made of; valid as long as `texts`.
inline std::vector<std::string_view> ViewsOf(const std::vector<std::string>& texts) {
  return {texts.begin(), texts.end()};
}

// The 8 bytes that spell a packed hash.
inline std::string BytesOf(uint64_t packed) {
  std::string bytes(kPackedHashBytes, '\0');
  StoreBigEndian64(packed, bytes.data());
  return bytes;
}

struct OwnedPrefix {
  std::vector<std::string> block_hashes = {};
  std::vector<int32_t> block_token_counts = {};
  std::vector<uint64_t> block_hashes_u64 = {};
  int32_t tokens_per_block = 0;
  std::string prefix_hash = {};
  int32_t token_count = 0;
  int32_t tier = 0;
  std::string adapter_id = {};
};

struct OwnedStats {
  int64_t cache_memory_bytes = 0;
  float hit_rate = 0;
  float pressure = 0;
  std::string client_version = {};
  int64_t t2_hit_tokens = 0;
  int64_t t2_query_tokens = 0;
};

struct OwnedUpdate {
  std::string replica_id = "r0";
  std::string model_id = "m";
  std::string tenant_id = "t";
  std::string hash_scheme = "vllm";
  std::string adapter_id = {};
  std::optional<absl::Time> stamped_at = std::nullopt;
  bool clear = false;
  std::vector<std::string> evicted_hashes = {};
  std::vector<uint64_t> evicted_hashes_u64 = {};
  std::vector<OwnedPrefix> prefixes = {};
  bool retains_all = false;
  std::optional<OwnedStats> stats = std::nullopt;
};

struct OwnedEvent {
  CacheEventType type = CacheEventType::kUnspecified;
  std::string replica_id = "r0";
  std::string model_id = "m";
  std::string tenant_id = "t";
  std::string prefix_hash = {};
  std::string adapter_id = {};
  std::optional<absl::Time> stamped_at = std::nullopt;
};

inline OwnedPrefix Single(std::string hash, int32_t tokens = 64) {
  return {.prefix_hash = std::move(hash), .token_count = tokens};
}
inline OwnedPrefix Blocks(std::vector<std::string> hashes, std::vector<int32_t> tokens) {
  return {.block_hashes = std::move(hashes), .block_token_counts = std::move(tokens)};
}
// Every block has 16 tokens.
inline OwnedPrefix Blocks(std::vector<std::string> hashes) {
  std::vector<int32_t> tokens(hashes.size(), 16);
  return Blocks(std::move(hashes), std::move(tokens));
}
inline OwnedPrefix Packed(std::vector<uint64_t> hashes, int32_t tokens_per_block) {
  return {.block_hashes_u64 = std::move(hashes), .tokens_per_block = tokens_per_block};
}

// Calls `use` with the views of `update` and hands back what it returns.
template <typename Use>
auto WithViews(const OwnedUpdate& update, Use use) {
  std::vector<std::vector<std::string_view>> hashes;
  std::vector<PrefixReport> prefixes;
  hashes.reserve(update.prefixes.size());
  for (const OwnedPrefix& prefix : update.prefixes) {
    hashes.push_back(ViewsOf(prefix.block_hashes));
    prefixes.push_back({.chain = {.block_hashes = hashes.back(),
                                  .block_token_counts = prefix.block_token_counts,
                                  .block_hashes_u64 = prefix.block_hashes_u64,
                                  .tokens_per_block = prefix.tokens_per_block},
                        .prefix_hash = prefix.prefix_hash,
                        .token_count = prefix.token_count,
                        .tier = prefix.tier,
                        .adapter_id = prefix.adapter_id});
  }
  const std::vector<std::string_view> evicted = ViewsOf(update.evicted_hashes);
  std::optional<StatsReport> stats;
  if (update.stats) {
    stats = StatsReport{.cache_memory_bytes = update.stats->cache_memory_bytes,
                        .hit_rate = update.stats->hit_rate,
                        .pressure = update.stats->pressure,
                        .client_version = update.stats->client_version,
                        .t2_hit_tokens = update.stats->t2_hit_tokens,
                        .t2_query_tokens = update.stats->t2_query_tokens};
  }
  return use(StateUpdate{.replica_id = update.replica_id,
                         .model_id = update.model_id,
                         .tenant_id = update.tenant_id,
                         .hash_scheme = update.hash_scheme,
                         .adapter_id = update.adapter_id,
                         .stamped_at = update.stamped_at,
                         .clear = update.clear,
                         .evicted_hashes = evicted,
                         .evicted_hashes_u64 = update.evicted_hashes_u64,
                         .prefixes = prefixes,
                         .retains_all = update.retains_all,
                         .stats = stats});
}

inline ApplyResult Apply(PrefixIndex& index, const OwnedUpdate& update, absl::Time now) {
  return WithViews(update, [&](const StateUpdate& views) { return index.ApplyUpdate(views, now); });
}

inline ApplyResult Apply(PrefixIndex& index, const OwnedEvent& event, absl::Time now) {
  return index.ApplyEvent({.type = event.type,
                           .replica_id = event.replica_id,
                           .model_id = event.model_id,
                           .tenant_id = event.tenant_id,
                           .prefix_hash = event.prefix_hash,
                           .adapter_id = event.adapter_id,
                           .stamped_at = event.stamped_at},
                          now);
}

// A ReplicaMatch that outlives its view.
struct Match {
  std::string replica_id;
  uint32_t blocks = 0;
  int32_t tokens = 0;
  absl::Time last_seen;
  Tier tier = Tier::kT1;

  friend bool operator==(const Match&, const Match&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Match& match) {
    return out << "{" << match.replica_id << " blocks=" << match.blocks << " tokens=" << match.tokens
               << " last_seen=" << absl::ToUnixMicros(match.last_seen) << "us tier=" << static_cast<int>(match.tier)
               << "}";
  }
};

// `matches` ordered by replica.
inline std::vector<Match> Owned(const std::vector<ReplicaMatch>& matches) {
  std::vector<Match> owned;
  for (const ReplicaMatch& match : matches) {
    owned.push_back({.replica_id = std::string(match.replica_id),
                     .blocks = match.matched_blocks,
                     .tokens = match.matched_tokens,
                     .last_seen = absl::FromUnixMicros(match.last_seen_us),
                     .tier = match.tier});
  }
  std::sort(owned.begin(), owned.end(), [](const Match& a, const Match& b) { return a.replica_id < b.replica_id; });
  return owned;
}

// The holders of one hash, ordered by replica.
inline std::vector<Match> HoldersOf(const PrefixIndex& index, const ScopeKey& scope, std::string_view adapter_id,
                                    std::string_view hash, absl::Time expired_through = absl::InfinitePast()) {
  std::vector<ReplicaMatch> matches;
  std::vector<Match> owned;
  index.Read(scope, [&](const ScopeView& view) {
    view.MatchHash(adapter_id, BlockHash(hash), expired_through, &matches);
    owned = Owned(matches);
  });
  return owned;
}

}  // namespace icache::testing
