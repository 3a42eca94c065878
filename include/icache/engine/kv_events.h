// What an engine says of its KV cache, decoded: batches of events, as values.
//
// An engine names blocks by hashes of its own. They identify blocks between events of one replica and mean nothing
// elsewhere. Source: contract/engine-events.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/time.h"

namespace icache {

inline constexpr size_t kMaxEngineHashBytes = 64;

// An engine's name for a block: 64 bits, or a byte string. The same 64-bit pattern is the same name, whether it came as
// a signed or an unsigned integer or as 8 bytes. A longer string is held as its 128-bit digest.
class EngineHash {
 public:
  explicit EngineHash(uint64_t pattern) : low_(pattern) {}
  static EngineHash FromBytes(std::string_view bytes);

  friend bool operator==(const EngineHash&, const EngineHash&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const EngineHash& hash) {
    return H::combine(std::move(state), hash.low_, hash.high_);
  }

 private:
  EngineHash(uint64_t low, uint64_t high) : low_(low), high_(high) {}

  uint64_t low_;
  uint64_t high_ = 0;
};

// What one block was hashed with beside its tokens.
struct BlockKeys {
  enum class Kind {
    kNone,
    kOneText,  // a single string: the adapter's name, or a cache salt, or a multimodal id
    kOther,
  };
  Kind kind = Kind::kNone;
  std::string_view text;  // of kOneText
};

// Strings are views into the payload that the event was decoded from.
struct BlockStored {
  std::vector<EngineHash> block_hashes;    // at least one
  std::optional<EngineHash> parent;        // nullopt: the blocks start a sequence
  std::vector<uint32_t> token_ids;         // block_size for each block
  int32_t block_size = 0;                  // tokens, >= 1
  std::optional<int64_t> lora_id;          // nullopt: the base model, unless there is a name
  std::optional<std::string_view> medium;  // nullopt: "GPU"
  std::optional<std::string_view> lora_name;
  std::vector<BlockKeys> extra_keys;          // empty, or one for each block
  std::optional<int64_t> group_idx;           // of several cache groups
  std::optional<std::string_view> spec_kind;  // of the group's layers; nullopt: full attention
};

struct BlockRemoved {
  std::vector<EngineHash> block_hashes;  // at least one
  std::optional<std::string_view> medium;
  std::optional<int64_t> group_idx;
};

struct AllBlocksCleared {};

// Events in a row that cannot be read and may have removed blocks.
struct LostRemoval {};

using KvEvent = std::variant<BlockStored, BlockRemoved, AllBlocksCleared, LostRemoval>;

struct KvBatch {
  absl::Time time;              // the engine's, as it was published
  std::optional<int64_t> rank;  // of data parallelism, >= 0
  std::deque<KvEvent> events;   // in order; events of unknown kinds are left out
  size_t malformed_events = 0;  // left out, too, or lost removals
  size_t unknown_events = 0;
};

}  // namespace icache
