// Run: a stretch of consecutive blocks as they were first reported together, and who holds which part of it.
//
// A run is a record of the Arena: this header, then the hashes of its blocks, `width` bytes each, which never change.
// What changes is who holds them. A *span* is a part of the run that one replica holds alike: one last-seen time, tier
// and access count, token counts that rise by the run's `step`, depths that rise by one. A replica whose blocks differ
// in any of this has several spans, one that has lost a block in the middle has two. Spans are ordered by (slot, start)
// and those of one replica do not overlap.
//
//            offset 0        8               16              24
//   hashes        |h0 h1 ... |               |               |
//   replica 3     [====== 12:04:07.3 T1 =====][= 12:05:11.0 =]
//   replica 7     [== 12:04:09 ==]      [==== 12:04:09 ======]      (lost three blocks)
//
// One span is stored in the header itself; more are stored in a SpanList of their own.
//
// Threads. One writer at a time changes runs while readers read them. A reader copies what the header says under its
// version, which is odd while the writer is at it. A SpanList never changes in shape: who adds or removes spans
// publishes a new list. The words of a span are changed one by one in place; each is meaningful beside older ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string_view>

#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/index/observation.h"
#include "index/arena.h"

namespace icache {

inline constexpr uint32_t kMaxRunBlocks = 256;
inline constexpr size_t kMaxRunHashBytes = 2048;

using RunRef = Arena::Ref;

// A span as a value.
struct Span {
  uint32_t slot = 0;  // of the replica in the scope
  uint32_t leaf = 0;  // where AgeTree keeps it
  int64_t seen_us = 0;
  int32_t tokens = 0;  // cumulative, of block `start`
  uint32_t depth = 0;  // of block `start`
  uint32_t access = 0;
  uint32_t start = 0;
  uint32_t end = 0;      // blocks [start, end) of the run
  uint32_t witness = 0;  // blocks [start, witness) count on this span in the order of quota eviction (AgeTree)
  Tier tier = Tier::kT1;

  uint32_t size() const { return end - start; }
  // The depth of the last block before offset `limit`.
  uint32_t DepthBelow(uint32_t limit) const { return depth + (limit - 1 - start); }
};

// A span as it is stored, in words that are read and written whole.
class StoredSpan {
 public:
  Span Load() const {
    const uint64_t a = words_[0].load(std::memory_order_acquire);
    const uint64_t b = words_[1].load(std::memory_order_acquire);
    const uint64_t c = words_[2].load(std::memory_order_acquire);
    const uint64_t d = words_[3].load(std::memory_order_acquire);
    return {.slot = Low(a),
            .leaf = High(a),
            .seen_us = static_cast<int64_t>(b),
            .tokens = static_cast<int32_t>(Low(c)),
            .depth = High(c),
            .access = Low(d),
            .start = static_cast<uint32_t>(d >> 32 & 0xff),
            .end = static_cast<uint32_t>(d >> 40 & 0x1ff),
            .witness = static_cast<uint32_t>(d >> 49 & 0x1ff),
            .tier = static_cast<Tier>(1 + (d >> 58 & 3))};
  }
  void Store(const Span& span) {
    words_[0].store(Pack(span.slot, span.leaf), std::memory_order_release);
    words_[1].store(static_cast<uint64_t>(span.seen_us), std::memory_order_release);
    words_[2].store(Pack(static_cast<uint32_t>(span.tokens), span.depth), std::memory_order_release);
    const uint64_t place = span.start | span.end << 8 | span.witness << 17 |
                           (static_cast<uint32_t>(span.tier) - static_cast<uint32_t>(Tier::kT1)) << 26;
    words_[3].store(uint64_t{span.access} | place << 32, std::memory_order_release);
  }
  uint32_t slot() const { return Low(words_[0].load(std::memory_order_acquire)); }
  void set_leaf(uint32_t leaf) { words_[0].store(Pack(slot(), leaf), std::memory_order_release); }

  // For the writer: copies spans to memory that nobody else knows yet, and returns its end.
  static StoredSpan* Copy(absl::Span<const StoredSpan> spans, StoredSpan* to) {
    std::memcpy(static_cast<void*>(to), spans.data(), spans.size() * sizeof(StoredSpan));
    return to + spans.size();
  }

  // Instead of a span: a pointer, which slot() tells by being kPointer.
  static constexpr uint32_t kPointer = 0xffffffff;
  void StorePointer(const void* pointer) {
    words_[0].store(Pack(kPointer, 0), std::memory_order_release);
    words_[1].store(reinterpret_cast<uint64_t>(pointer), std::memory_order_release);
  }
  uint64_t pointer() const { return words_[1].load(std::memory_order_acquire); }

 private:
  static uint32_t Low(uint64_t word) { return static_cast<uint32_t>(word); }
  static uint32_t High(uint64_t word) { return static_cast<uint32_t>(word >> 32); }
  static uint64_t Pack(uint32_t low, uint32_t high) { return uint64_t{high} << 32 | low; }

  std::atomic<uint64_t> words_[4];
};

// The spans of a run that has more than one. Allocated with room for just as many.
struct SpanList {
  static SpanList* Make(size_t count) {
    auto* const list = static_cast<SpanList*>(std::malloc(Bytes(count)));
    if (list == nullptr) throw std::bad_alloc();
    list->count = static_cast<uint32_t>(count);
    return list;
  }
  static size_t Bytes(size_t count) { return sizeof(SpanList) + count * sizeof(StoredSpan); }

  StoredSpan* spans() { return reinterpret_cast<StoredSpan*>(this + 1); }
  const StoredSpan* spans() const { return reinterpret_cast<const StoredSpan*>(this + 1); }

  uint64_t count;
};

// Some blocks of one run.
class BlockSet {
 public:
  void Add(uint32_t first, uint32_t end) {
    for (; first < end && first % 64 != 0; ++first) words_[first / 64] |= uint64_t{1} << (first % 64);
    for (; first + 64 <= end; first += 64) words_[first / 64] = ~uint64_t{0};
    for (; first < end; ++first) words_[first / 64] |= uint64_t{1} << (first % 64);
  }
  void Remove(const BlockSet& other) {
    for (size_t i = 0; i < 4; ++i) words_[i] &= ~other.words_[i];
  }
  bool Has(uint32_t block) const { return (words_[block / 64] >> (block % 64) & 1) != 0; }
  uint32_t Count() const {
    int count = 0;
    for (uint64_t word : words_) count += std::popcount(word);
    return static_cast<uint32_t>(count);
  }
  template <typename Visit>
  void ForEach(Visit visit) const {
    for (uint32_t i = 0; i < 4; ++i) {
      for (uint64_t word = words_[i]; word != 0; word &= word - 1) {
        visit(i * 64 + static_cast<uint32_t>(std::countr_zero(word)));
      }
    }
  }

 private:
  uint64_t words_[4] = {};
};

class Run {
 public:
  // `record` is of Bytes(size, width) bytes. The run has no spans yet; all its blocks count as live.
  static Run* Make(char* record, uint32_t partition, uint32_t size, uint32_t width, int32_t step) {
    Run* const run = new (record) Run;
    run->partition_ = partition;
    run->shape_.store(size | size << 10 | width << 20, std::memory_order_relaxed);
    run->step_.store(step, std::memory_order_relaxed);
    return run;
  }
  static size_t Bytes(uint32_t size, uint32_t width) { return sizeof(Run) + size_t{size} * width; }
  // How many hashes of one width a run can take.
  static uint32_t Capacity(size_t width) {
    return static_cast<uint32_t>(std::min<size_t>(kMaxRunBlocks, kMaxRunHashBytes / width));
  }

  uint32_t partition() const { return partition_; }
  uint32_t size() const { return shape_.load(std::memory_order_relaxed) & 0x3ff; }
  // Blocks that somebody holds.
  uint32_t live() const { return shape_.load(std::memory_order_relaxed) >> 10 & 0x3ff; }
  uint32_t width() const { return shape_.load(std::memory_order_relaxed) >> 20; }
  size_t bytes() const { return Bytes(size(), width()); }
  // By how much the token count of a block exceeds that of the one before.
  int32_t step() const { return step_.load(std::memory_order_relaxed); }

  void set_live(uint32_t live) {
    shape_.store((shape_.load(std::memory_order_relaxed) & ~(0x3ffu << 10)) | live << 10, std::memory_order_relaxed);
  }
  void set_step(int32_t step) { step_.store(step, std::memory_order_relaxed); }

  char* data() { return reinterpret_cast<char*>(this + 1); }
  const char* data() const { return reinterpret_cast<const char*>(this + 1); }
  bool IsPacked() const { return width() == kPackedHashBytes; }
  BlockHash hash(uint32_t offset) const {
    if (IsPacked()) {
      uint64_t packed;
      std::memcpy(&packed, data() + offset * kPackedHashBytes, sizeof packed);
      return BlockHash(packed);
    }
    return BlockHash(std::string_view(data() + offset * width(), width()));
  }
  bool Equals(uint32_t offset, const BlockHash& hash) const {
    if (hash.size() != width()) return false;
    if (!hash.IsPacked()) return std::memcmp(data() + offset * width(), hash.wide().data(), hash.wide().size()) == 0;
    uint64_t packed;
    std::memcpy(&packed, data() + offset * kPackedHashBytes, sizeof packed);
    return packed == hash.packed();
  }

  // How many blocks of `chain` from `first` on equal those of the run from `offset` on, at most `limit`.
  uint32_t CommonLength(uint32_t offset, const Chain& chain, size_t first, uint32_t limit) const {
    const absl::Span<const uint64_t> packed = chain.hashes().packed();
    uint32_t length = 0;
    if (packed.empty() || !IsPacked()) {
      while (length < limit && Equals(offset + length, chain.hash(first + length))) ++length;
      return length;
    }
    const char* const a = reinterpret_cast<const char*>(packed.data() + first);
    const char* const b = data() + offset * kPackedHashBytes;
    if (std::memcmp(a, b, limit * kPackedHashBytes) == 0) return limit;
    while (std::memcmp(a + length * kPackedHashBytes, b + length * kPackedHashBytes, kPackedHashBytes) == 0) ++length;
    return length;
  }
  // The blocks of `chain` from `first` on become those of the run.
  void SetHashes(const Chain& chain, size_t first) {
    const absl::Span<const uint64_t> packed = chain.hashes().packed();
    if (!packed.empty()) {
      std::memcpy(data(), packed.data() + first, size() * kPackedHashBytes);
    } else {
      for (uint32_t i = 0; i < size(); ++i) set_hash(i, chain.hash(first + i));
    }
  }

  // For the writer: the spans in their order.
  absl::Span<StoredSpan> spans() {
    if (one_.slot() != StoredSpan::kPointer) return absl::MakeSpan(&one_, 1);
    SpanList* const list = this->list();
    return absl::MakeSpan(list->spans(), list->count);
  }
  absl::Span<const StoredSpan> spans() const { return const_cast<Run*>(this)->spans(); }
  // The list, or null when there is one span only.
  SpanList* list() {
    return one_.slot() == StoredSpan::kPointer ? reinterpret_cast<SpanList*>(one_.pointer()) : nullptr;
  }
  // For the writer: replaces all spans, by one or by a list. The list that there was is the caller's to retire.
  void SetOne(const Span& span) {
    Change([&] { one_.Store(span); });
  }
  void SetList(SpanList* list) {
    Change([&] { one_.StorePointer(list); });
  }

  // Brings a list of spans nearer to the processor, or some of it. For readers: what is read is only a guess.
  void PrefetchSpans() const {
    if (one_.slot() != StoredSpan::kPointer) return;
    const auto* const list = reinterpret_cast<const char*>(one_.pointer());
    for (size_t line = 0; line < 4; ++line) __builtin_prefetch(list + line * 64);
  }
  // For readers: what the header says at one instant. `copy` is where a single span is put.
  absl::Span<const StoredSpan> Snapshot(StoredSpan* copy) const {
    while (true) {
      const uint32_t version = version_.load(std::memory_order_acquire);
      const uint32_t slot = one_.slot();
      if (slot == StoredSpan::kPointer) {
        const uint64_t pointer = one_.pointer();
        if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version) {
          const auto* const list = reinterpret_cast<const SpanList*>(pointer);
          return absl::MakeConstSpan(list->spans(), list->count);
        }
        continue;
      }
      const Span span = one_.Load();
      if (version % 2 == 0 && version_.load(std::memory_order_relaxed) == version) {
        copy->Store(span);
        return absl::MakeConstSpan(copy, 1);
      }
    }
  }

 private:
  Run() = default;

  void set_hash(uint32_t offset, const BlockHash& hash) {
    if (hash.IsPacked()) {
      const uint64_t packed = hash.packed();
      std::memcpy(data() + offset * kPackedHashBytes, &packed, sizeof packed);
    } else {
      std::memcpy(data() + offset * width(), hash.wide().data(), hash.wide().size());
    }
  }

  template <typename Write>
  void Change(Write write) {
    const uint32_t version = version_.load(std::memory_order_relaxed);
    version_.store(version + 1, std::memory_order_relaxed);
    write();
    version_.store(version + 2, std::memory_order_release);
  }

  uint32_t partition_ = 0;            // Partition::id
  std::atomic<uint32_t> shape_{0};    // size, live, width
  std::atomic<uint32_t> version_{0};  // of one_
  std::atomic<int32_t> step_{0};
  StoredSpan one_;
};

static_assert(sizeof(Run) == 48);

}  // namespace icache
