// BlockLedger: which blocks one engine replica holds, learned from its events, and what is to be reported of them.
//
// Two kinds of records:
//   block    a content: (adapter, fingerprint of all tokens up to its end). What a daemon is told about.
//   alias    an engine hash that stands for a block, with the number of copies per medium.
// Usually one alias per block. An engine whose hashes depend on one page's tokens alone has hashes that stand for
// several blocks; an engine with several cache groups has several copies. What is not taken of such a hash must not be
// forgotten, or what continues it would seem to continue what was taken: a blank alias, one per hash, stands for all
// that is unknown of it. It counts copies, too: those of blocks that were dropped, and those that are left when a
// removal did not say which of several blocks it is of.
//
// Changes gather per block, so what is reported is where a block ended, however often it came and went in between.
// Drain() hands them out; ReportAll() tells everything instead.
//
// Loss. MarkSuspect() says that events are missing: what is held now becomes suspect and is reported no more. A suspect
// that is stored again is trusted again; one that is removed is gone at once, for its copies cannot be counted any
// more. ForgetSuspects() drops the rest.
//
//   1. A block is held while it has copies or is kept by the offload tier. One that is not stays until it is drained
//      and no alias stands for it.
//   2. Copies of an alias count in its block's sums exactly when both are of the same epoch; an alias's is never the
//      later one.
//   3. An alias has copies, or stands for a block that the offload tier keeps.
//   4. A hash with a blank alias is no parent; nor is any hash that may stand for several blocks, once some of what
//      hashes stand for has been missed.
//   5. At most max_blocks blocks held, and as many gone but not drained; two aliases for each, and as many blank ones;
//      max_adapters adapters. What is beyond is dropped and counted.
//
// Pure: no clock, no I/O. Thread-compatible. Source: contract/engine-events.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/string_map.h"
#include "icache/engine/hash_chain_proof.h"
#include "icache/engine/kv_events.h"

namespace icache {

// What becomes of a block whose last copy on the GPU is removed.
enum class GpuRemoval {
  kEvict,    // gone, unless another medium has it
  kOffload,  // kept by an external tier that announces nothing: T2 for one TTL
};

struct LedgerOptions {
  std::optional<int32_t> block_size;                   // tokens; blocks of another size are dropped. nullopt: any size
  absl::flat_hash_map<int64_t, std::string> adapters;  // lora_id -> name, for engines that send no name
  GpuRemoval gpu_removal = GpuRemoval::kEvict;
  absl::Duration ttl = absl::Minutes(30);  // of offloaded blocks
  // Each engine hash stands for one content, unless it turns out otherwise. false: that has to be proven.
  bool hashes_are_chained = true;
  size_t max_blocks = 4'000'000;
  size_t max_adapters = 4096;
};

// Why stored blocks were not taken. The label values of inferencecache_bridge_dropped_blocks_total.
enum class BlockDrop : size_t {
  kUnknownParent,   // their parent was never seen, or could be several
  kUnknownAdapter,  // a lora_id without a name, or a name that is too long
  kExtraKeys,       // their tokens alone do not identify them: a cache salt, an image
  kCacheGroup,      // of a cache group that is no full attention
  kBlockSize,       // of another size than configured
  kTooLong,         // their prefix has more tokens than int32 holds
  kLedgerFull,      // beyond the bounds on blocks, aliases or adapters
};
inline constexpr size_t kBlockDropCount = 7;
std::string_view BlockDropName(BlockDrop reason);
using BlockDropCounts = std::array<int64_t, kBlockDropCount>;

// Consecutive blocks of one chain.
struct BlockRun {
  std::string_view adapter_id;        // "" = the base model
  bool warm = true;                   // T1; else T2
  int32_t tokens_before = 0;          // of the prefix that the first block continues
  int32_t tokens_per_block = 0;       // >= 1
  absl::Span<const uint64_t> hashes;  // fingerprints, at least one
};

// Takes what a ledger reports. Views live for the call.
class LedgerSink {
 public:
  virtual ~LedgerSink() = default;
  virtual void OnHeld(const BlockRun& run) = 0;
  virtual void OnEvicted(std::string_view adapter_id, uint64_t hash) = 0;
};

class BlockLedger {
 public:
  // `options` is not owned and must outlive the ledger.
  explicit BlockLedger(const LedgerOptions* options);
  BlockLedger(const BlockLedger&) = delete;
  BlockLedger& operator=(const BlockLedger&) = delete;

  // O(blocks of the event). Strings of events are copied.
  void Store(const BlockStored& event);
  // `at`: on the clock of ExpireOffloaded().
  void Remove(const BlockRemoved& event, absl::Time at);

  // The engine starts anew: forgets everything. `known_from_start`: events from here on are the whole story, so that a
  // parent that nobody has seen can be recognised as the value that the engine sends in place of nil.
  void Restart(bool known_from_start);
  // The engine has dropped all its blocks. How it begins a sequence stays what it was: a block of before that is named
  // as a parent must not be taken for the root.
  void Clear();
  // Something of the stream was not understood: a root value can no longer be recognised, nor what a hash stands for.
  void MarkIncomplete() {
    learning_root_ = false;
    meanings_missed_ = true;
    seen_store_ = true;  // perhaps
  }
  // Events are lost.
  void MarkSuspect();
  // Behind MarkSuspect(): what follows may be another engine's. What only holds of the one before counts no more.
  void ForgetEngine();
  // Blocks that are suspect since `epoch` (as epoch() said after MarkSuspect()) or longer are dropped. O(these).
  void ForgetSuspects(uint32_t epoch);
  // Whether it has turned out that blocks may have been taken for what they are not: hashes stand for several blocks,
  // and some of what they stand for has been missed. True once each time; as if events were lost.
  bool TakeDoubt() { return std::exchange(doubt_, false); }
  // Offloaded blocks whose time has come go. `now` is of a steady clock.
  void ExpireOffloaded(absl::Time now);

  // Counts MarkSuspect().
  uint32_t epoch() const { return epoch_; }
  bool HasChanges() const { return !changed_.empty(); }
  size_t changed_blocks() const { return changed_.size(); }
  // Blocks held, suspects included; and those that are to be reported.
  size_t held_blocks() const { return blocks_.size() - free_blocks_.size() - gone_; }
  size_t suspect_blocks() const { return suspects_; }
  const BlockDropCounts& drops() const { return drops_; }
  size_t memory_bytes() const;
  // Internal unless an invariant is broken. For tests; O(blocks held).
  absl::Status CheckInvariants() const;

  // What an eviction under the base model takes away at those who are told.
  enum class BaseEviction {
    kThatBlock,
    kAllAdapters,  // the blocks of the same content under every adapter, too: those that are held are told again
  };
  // Tells what changed since the last call. O(changes); with kAllAdapters also O(adapters) for each eviction.
  void Drain(LedgerSink* sink, BaseEviction base_eviction = BaseEviction::kThatBlock);
  // Tells every trusted block, roots before what continues them, and forgets the changes. O(blocks held).
  void ReportAll(LedgerSink* sink);

 private:
  using Id = uint32_t;
  static constexpr Id kNone = UINT32_MAX;
  static constexpr Id kUnknown = kNone - 1;  // the block of a blank alias
  static constexpr size_t kMedia = 4;        // GPU, and three others; more share the last

  struct Block {
    uint64_t fingerprint;
    Id parent;               // the block it continues; may be stale, so only good as a hint of order
    int32_t tokens_through;  // cumulative; 0 = a free record
    int32_t block_tokens;
    uint32_t epoch;
    uint32_t warm_copies;
    uint32_t cold_copies;
    uint16_t adapter;
    uint16_t aliases;  // that stand for it, those of earlier epochs included
    bool changed;      // in changed_
    bool offloaded;    // in offloaded_
  };
  struct Alias {
    EngineHash hash{0};
    Id block;  // kNone = a free record
    Id next;   // the next alias of the same hash
    Id older;  // the neighbours in the order of epochs
    Id newer;
    uint32_t epoch;
    std::array<uint16_t, kMedia> copies;
  };

  // Sets of ids that hash and compare as the records they name, so that no key is stored twice.
  struct BlockKey {
    uint16_t adapter;
    uint64_t fingerprint;
    friend bool operator==(const BlockKey&, const BlockKey&) = default;
  };
  struct ByBlockKey {
    using is_transparent = void;
    const BlockLedger* ledger;
    BlockKey KeyOf(Id id) const;
    static BlockKey KeyOf(const BlockKey& key) { return key; }
    size_t operator()(const auto& value) const {
      const BlockKey key = KeyOf(value);
      return absl::HashOf(key.adapter, key.fingerprint);
    }
    bool operator()(const auto& a, const auto& b) const { return KeyOf(a) == KeyOf(b); }
  };
  struct ByEngineHash {
    using is_transparent = void;
    const BlockLedger* ledger;
    const EngineHash& KeyOf(Id id) const;
    static const EngineHash& KeyOf(const EngineHash& hash) { return hash; }
    size_t operator()(const auto& value) const { return absl::HashOf(KeyOf(value)); }
    bool operator()(const auto& a, const auto& b) const { return KeyOf(a) == KeyOf(b); }
  };

  struct Parent {
    Id block = kNone;
    std::optional<uint64_t> fingerprint;  // nullopt: the start of a sequence
    int32_t tokens_through = 0;
  };

  // Whether a hash can stand for no more than one content.
  bool HashesAreChained() const {
    return chain_proof_.found() || (options_->hashes_are_chained && !hashes_are_ambiguous_);
  }
  bool IsSuspect(const Block& block) const { return block.epoch != epoch_; }
  static bool IsHeld(const Block& block) { return block.warm_copies + block.cold_copies > 0 || block.offloaded; }

  void CountDrops(BlockDrop reason, size_t blocks) {
    drops_[static_cast<size_t>(reason)] += static_cast<int64_t>(blocks);
  }
  // Counts `blocks` of the event's as dropped, from the one at `first` on, and notes that their hashes stand for
  // something unknown.
  void Drop(BlockDrop reason, const BlockStored& event, size_t first, size_t blocks);
  // The event's adapter, or why it has none.
  bool ResolveAdapter(const BlockStored& event, std::string_view* name) const;
  std::optional<uint16_t> InternAdapter(std::string_view name);
  // Blocks at the event's front that their tokens and adapter identify.
  static size_t PlainBlocks(const BlockStored& event, std::string_view adapter);
  std::optional<Parent> ResolveParent(const BlockStored& event, uint16_t adapter);
  std::optional<Parent> ParentOfHash(const EngineHash& hash, uint16_t adapter) const;
  // Whether `event` shows that its unknown parent is the engine's root value.
  bool ShowsRoot(const BlockStored& event, uint16_t adapter) const;
  size_t MediumOf(std::optional<std::string_view> medium);

  Id FindOrAddBlock(const BlockKey& key, Id parent, int32_t tokens_through, int32_t block_tokens);
  // kNone beyond the bounds. `block` may be kUnknown.
  Id FindOrAddAlias(const EngineHash& hash, Id block);
  // Counts `copies` of something unknown that `hash` stands for.
  void AddUnknown(const EngineHash& hash, size_t medium, uint16_t copies);
  void AddCopy(Id alias, size_t medium);
  // Brings the alias into the present epoch, without copies.
  void Renew(Id alias);
  void AppendByEpoch(Id alias);
  void UnlinkByEpoch(Id alias);
  // Takes `copies` of the alias's in `medium` away.
  void TakeCopies(Alias* alias, size_t medium, uint16_t copies);
  void RemoveHash(const EngineHash& hash, size_t medium, absl::Time at);
  // Takes one copy of the alias's in `medium` away, or `all` of them; a suspect goes at once. Returns how many copies
  // are known to have been there.
  uint16_t RemoveCopies(Id alias, size_t medium, bool all, absl::Time at);
  void RemoveUnknown(Id blank, size_t medium);
  void Offload(Id alias, absl::Time at);
  // The offload tier keeps `block` no more. Frees the alias that stood for it there, unless it is `kept`.
  void EndOffload(Id block, Id kept);
  void MarkChanged(Id block);
  // An alias of a block goes with all its copies, and the block with it when nothing else holds that.
  void EndAlias(Id alias);
  void FreeAlias(Id id);
  // Frees the block, if no alias stands for it. Requires that it is neither held nor in changed_.
  void FreeBlock(Id id);
  // Tells the held blocks among `ids` in runs as long as their order allows.
  void TellRuns(absl::Span<const Id> ids, LedgerSink* sink);

  const LedgerOptions* const options_;

  std::deque<Block> blocks_;
  std::deque<Alias> aliases_;
  std::vector<Id> free_blocks_;
  std::vector<Id> free_aliases_;
  size_t blanks_ = 0;  // blank aliases
  Id oldest_ = kNone;  // ends of the list of aliases in the order of epochs
  Id newest_ = kNone;
  absl::flat_hash_set<Id, ByBlockKey, ByBlockKey> block_ids_;
  absl::flat_hash_set<Id, ByEngineHash, ByEngineHash> alias_ids_;  // the first alias of each hash

  std::vector<std::string> adapters_;  // by Block::adapter
  StringMap<uint16_t> adapter_ids_;
  std::vector<std::string> media_;  // other than the GPU, at most kMedia - 1

  std::vector<Id> changed_;
  size_t gone_ = 0;      // blocks that are held no more but not drained yet
  size_t suspects_ = 0;  // blocks that are suspect
  uint32_t epoch_ = 0;

  struct Offloaded {
    absl::Time until;
    Id alias;
  };
  absl::flat_hash_map<Id, Offloaded> offloaded_;              // by block
  absl::btree_set<std::pair<absl::Time, Id>> offload_order_;  // (until, block) of each

  // Of the engine's process; a clear changes none of it.
  absl::flat_hash_set<int64_t> skipped_groups_;  // cache groups that are no full attention
  absl::flat_hash_set<int64_t> full_groups_;     // those that are, or were once; none is both
  bool groups_are_named_ = true;                 // no block of full attention has come without its group
  // Sent in place of nil; never the name of a block. It outlives ForgetEngine(): another engine's block has its 64 bits
  // by chance alone, and without it, of an engine that sends one, nothing could be claimed any more.
  std::optional<EngineHash> root_;
  bool learning_root_ = false;  // everything it has stored was seen, understood and kept
  bool seen_store_ = false;     // blocks have been stored, understood or not
  HashChainProof chain_proof_;
  bool hashes_are_ambiguous_ = false;  // some hash has stood for several blocks; of all the engine's processes
  bool meanings_missed_ = false;       // hashes may stand for what no alias tells of; until all is cleared
  bool doubt_ = false;                 // not taken yet

  BlockDropCounts drops_ = {};
  std::vector<uint64_t> scratch_hashes_;
  std::vector<Id> scratch_ids_;
};

}  // namespace icache
