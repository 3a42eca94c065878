// SimulatedEngine: an engine's KV cache that lives a random life and publishes it as engines do.
//
// The cache is kept as the engine sees it (hash, medium, copies); Held() says what of it may be claimed, computed from
// the tokens. Batches are written by the msgpack library, in all forms that engines have sent, mixed at random.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <msgpack.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace icache::testing {

struct SimulatedEngineOptions {
  uint64_t seed = 1;
  bool bytes_hashes = false;  // 32 bytes in place of integers
  bool sends_root = false;    // a value of its own in place of nil, as older engines do
  double clears = 0.0005;     // of events
  double restarts = 0.0;      // of batches
  int max_blocks_per_event = 8;
  std::optional<int64_t> rank = std::nullopt;
};

struct SimulatedBatch {
  uint64_t sequence = 0;
  double time = 0;
  std::string payload;
};

// (adapter, fingerprint) of a block.
using ContentKey = std::pair<std::string, uint64_t>;
struct HeldContent {
  bool warm = true;
  int32_t tokens = 0;  // cumulative
  friend bool operator==(const HeldContent&, const HeldContent&) = default;
};
using HeldContents = std::map<ContentKey, HeldContent>;

// Thread-compatible.
class SimulatedEngine {
 public:
  // The adapter that blocks with this lora_id and no name belong to.
  static constexpr int64_t kMappedLoraId = 7;
  static constexpr char kMappedLora[] = "mapped-lora";

  explicit SimulatedEngine(const SimulatedEngineOptions& options) : options_(options), random_(options.seed) {
    StartProcess();
  }

  // The next batch, published at `time` (Unix seconds).
  SimulatedBatch Publish(double time);
  // One without events.
  SimulatedBatch PublishNothing(double time);
  // A new process: an empty cache, other hashes, numbers from 0.
  void Restart() { StartProcess(); }

  HeldContents Held() const;
  // All that this process could ever have claimed.
  std::vector<ContentKey> EverHeld() const;
  size_t stored_blocks() const { return stored_blocks_; }

 private:
  using Packer = msgpack::packer<msgpack::sbuffer>;
  struct Block {
    uint64_t id = 0;                      // what its hash is made from
    std::optional<size_t> parent;         // in blocks_
    std::vector<uint32_t> tokens;         // of this block
    std::optional<uint64_t> fingerprint;  // nullopt: not to be claimed
    std::string adapter;                  // "" = base
    int32_t tokens_through = 0;
    bool salted = false;
    std::map<std::string, int> copies;  // by medium
  };

  void StartProcess();
  size_t Pick(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  bool Chance(double p) { return std::bernoulli_distribution(p)(random_); }

  void PackEvent(Packer* packer);
  void PackNewBlocks(Packer* packer);
  void PackCopy(Packer* packer, size_t block, const std::string& medium);
  void PackRemoval(Packer* packer);
  void PackForeignGroup(Packer* packer);
  void PackStored(Packer* packer, const std::vector<size_t>& blocks, const std::string& medium,
                  const std::string& spec_kind = "");
  void PackHash(Packer* packer, uint64_t id);
  void PackText(Packer* packer, const std::string& text) { packer->pack(text); }
  SimulatedBatch Finish(double time, const std::string& events, size_t count);
  std::string HashBytes(uint64_t id) const;

  const SimulatedEngineOptions options_;
  std::mt19937_64 random_;
  uint64_t process_ = 0;  // salts the hashes
  uint64_t next_sequence_ = 0;
  uint64_t next_id_ = 1;
  std::vector<Block> blocks_;  // all of this process; those without copies are gone
  std::vector<size_t> live_;   // may name some that are gone
  bool foreign_group_seen_ = false;
  size_t stored_blocks_ = 0;
};

}  // namespace icache::testing
