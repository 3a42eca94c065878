// BlockTable: from the hash of a block to where it is, eight bytes a block.
//
// A slot holds a place, (run, offset), and a *tag* of 23 bits of the mixed hash; the hash itself is in the run, where a
// probe compares it. Linear hashing spreads the slots over segments of about kSegmentMean places, of which one splits
// when the table grows and the last folds back when it shrinks, so no step is long. A segment is an array of any number
// of *buckets*, each of eight slots and one cache line. The home of a slot is the bucket tag × buckets ÷ 2^23; if that
// is full it passes on to the next, and leaves a *pass mark* in the bucket. A mark is one bit of a slot, whatever else
// the slot holds, so a bucket counts up to eight; one that has all eight keeps them. A probe ends at the first bucket
// without marks, nearly always the home, and nothing ever moves within a segment.
//
// Threads. One writer at a time; readers at any time. A reader trusts what it finds, since it compares the hash itself,
// and that it found nothing when the segments were the same before and after. What the writer replaces it retires, for
// readers may still be in it.
//
// The caller compares: `matches(place)` says whether the block there is the one that is sought.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "index/retired.h"

// The thread sanitizer would take vector loads of atomic words for races.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__)
#if !defined(__has_feature)
#define ICACHE_BLOCK_TABLE_SSE2
#elif !__has_feature(thread_sanitizer)
#define ICACHE_BLOCK_TABLE_SSE2
#endif
#endif
#ifdef ICACHE_BLOCK_TABLE_SSE2
#include <emmintrin.h>
#endif

namespace icache {

// A block of a run. Its number is never 0, as no run is.
struct Place {
  uint32_t run = 0;
  uint32_t offset = 0;  // < 256
};

class BlockTable {
 public:
  // `retired` takes over what readers may still look at. It must outlive the table.
  explicit BlockTable(Retired* retired);
  // Requires that there are no readers.
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Brings the slots of `hash` nearer to the processor.
  void Prefetch(uint64_t hash) const {
    const Directory& directory = *directory_.load(std::memory_order_acquire);
    const uint32_t number = NumberOf(hash, directory.count.load(std::memory_order_acquire));
    const Segment segment = directory.segments()[number].load(std::memory_order_acquire);
    __builtin_prefetch(BucketsOf(segment) + HomeOf(TagFor(hash), CountOf(segment)));
  }

  // The place of the block, or run 0. For readers.
  template <typename Matches>
  Place Find(uint64_t hash, Matches matches) const {
    const uint64_t tag = TagFor(hash);
    while (true) {
      const Directory* const directory = directory_.load(std::memory_order_acquire);
      const uint32_t count = directory->count.load(std::memory_order_acquire);
      const std::atomic<Segment>& entry = directory->segments()[NumberOf(hash, count)];
      const Segment segment = entry.load(std::memory_order_acquire);
      const Bucket* bucket = BucketsOf(segment) + HomeOf(tag, CountOf(segment));
      for (Scan scan = {.marks = 1}; scan.marks != 0; ++bucket) {
        scan = ScanOf(*bucket, tag);
        for (uint32_t same = scan.same; same != 0; same &= same - 1) {
          const Place place = PlaceOf((*bucket)[std::countr_zero(same)].load(std::memory_order_acquire));
          if (place.run != 0 && matches(place)) return place;
        }
      }
      // A larger segment, or one more, may hold it by now.
      if (directory->count.load(std::memory_order_acquire) == count &&
          entry.load(std::memory_order_acquire) == segment && directory_.load(std::memory_order_acquire) == directory) {
        return {};
      }
    }
  }

  // Adds blocks 0, 1, … of a run, until `matches(i, place)` finds that block i is there already. Returns how many were
  // added. Balance() must follow before long.
  template <typename Matches>
  uint32_t Insert(absl::Span<const uint64_t> hashes, uint32_t run, Matches matches) {
    Probes probes(*this, hashes);
    for (uint32_t i = 0; i < hashes.size(); ++i) {
      const auto same_block = [&](const Place& place) { return matches(i, place); };
      if (!InsertAt(probes.Next(), hashes[i], {run, i}, same_block)) return i;
    }
    return static_cast<uint32_t>(hashes.size());
  }
  // Adds one block. False, with nothing done, when `matches(place)` finds that it is there already.
  template <typename Matches>
  bool Insert(uint64_t hash, const Place& place, Matches matches) {
    return InsertAt(ProbeOf(hash), hash, place, matches);
  }
  // Removes blocks of a run that are there: `hashes[i]` is that of `offsets[i]`. Balance() must follow before long.
  void Erase(absl::Span<const uint64_t> hashes, uint32_t run, absl::Span<const uint8_t> offsets);
  // Splits or folds segments so that they keep their size. `blocks` tells of places: HashOf(place), Prefetch(place).
  template <typename Blocks>
  void Balance(const Blocks& blocks) {
    while (size_ > kSegmentMean * counts_.size()) Split(blocks);
    while (counts_.size() > 1 && size_ < kSegmentMean / 2 * counts_.size()) Fold();
  }

  size_t size() const { return size_; }
  // Of an empty table: 0.
  size_t bytes() const { return size_ == 0 ? 0 : bytes_; }

  template <typename Visit>
  void ForEach(Visit visit) const {
    const Directory& directory = *directory_.load(std::memory_order_relaxed);
    for (size_t i = 0; i < counts_.size(); ++i) {
      ForEachIn(directory.segments()[i].load(std::memory_order_relaxed),
                [&](uint64_t value) { visit(PlaceOf(value)); });
    }
  }
  // For tests: homes of the slots and counts of the segments.
  bool CheckInvariants() const;

 private:
  static constexpr uint32_t kTagBits = 23;
  static constexpr uint64_t kMark = uint64_t{1} << 40;
  static constexpr size_t kSegmentMean = 1024;  // places per segment; they have up to about twice as many
  static constexpr size_t kBucketSlots = 8;
  // Buckets beyond a segment's count, for slots that the last homes have no room for.
  static constexpr uint32_t kPadding = 2;

  using Bucket = std::array<std::atomic<uint64_t>, kBucketSlots>;
  // A word that names a segment: its number of buckets above the 48 bits of the address of the first.
  using Segment = uint64_t;

  struct Directory {
    std::atomic<uint32_t> count;
    uint32_t capacity;
    std::atomic<Segment>* segments() { return reinterpret_cast<std::atomic<Segment>*>(this + 1); }
    const std::atomic<Segment>* segments() const { return reinterpret_cast<const std::atomic<Segment>*>(this + 1); }
    size_t bytes() const { return sizeof(Directory) + capacity * sizeof(Segment); }
  };

  // Where the search for a hash begins, for the writer.
  struct Probe {
    uint32_t number = 0;  // of the segment
    Bucket* home = nullptr;
  };
  Probe ProbeOf(uint64_t hash) const {
    const uint32_t number = NumberOf(hash, static_cast<uint32_t>(counts_.size()));
    const Segment segment = SegmentAt(number);
    return {.number = number, .home = BucketsOf(segment) + HomeOf(TagFor(hash), CountOf(segment))};
  }
  // The probes of many hashes, fetched ahead of their use.
  class Probes {
   public:
    Probes(const BlockTable& table, absl::Span<const uint64_t> hashes) : table_(table), hashes_(hashes) {
      while (fetched_ < std::min<size_t>(kAhead, hashes_.size())) Fetch();
    }
    Probe Next() {
      const Probe probe = generation_ == table_.generation_ ? ahead_[next_ % kAhead] : table_.ProbeOf(hashes_[next_]);
      ++next_;
      if (fetched_ < hashes_.size()) Fetch();
      return probe;
    }

   private:
    static constexpr size_t kAhead = 16;

    void Fetch() {
      Probe& probe = ahead_[fetched_ % kAhead];
      probe = table_.ProbeOf(hashes_[fetched_]);
      __builtin_prefetch(probe.home, /*rw=*/1);
      ++fetched_;
    }

    const BlockTable& table_;
    const absl::Span<const uint64_t> hashes_;
    const uint64_t generation_ = table_.generation_;
    size_t fetched_ = 0;
    size_t next_ = 0;
    std::array<Probe, kAhead> ahead_;
  };

  template <typename Matches>
  bool InsertAt(Probe probe, uint64_t hash, const Place& place, Matches matches) {
    const uint32_t number = probe.number;
    if ((counts_[number] + 1) * uint64_t{10} > CountOf(SegmentAt(number)) * kBucketSlots * 8) {
      Resize(number);
      probe = ProbeOf(hash);
    }
    while (true) {
      const Segment segment = SegmentAt(number);
      const Bucket* const end = BucketsOf(segment) + CountOf(segment) + kPadding;
      Bucket* room = nullptr;
      uint32_t slot = 0;
      // All buckets that the block may be in are looked at, even beyond the first with room.
      Scan scan = {.marks = 1};
      for (Bucket* bucket = probe.home; bucket < end && (scan.marks != 0 || room == nullptr); ++bucket) {
        scan = ScanOf(*bucket, TagFor(hash));
        for (uint32_t same = scan.same; same != 0; same &= same - 1) {
          if (matches(PlaceOf((*bucket)[std::countr_zero(same)].load(std::memory_order_relaxed)))) return false;
        }
        if (room == nullptr && scan.free != 0) {
          room = bucket;
          slot = static_cast<uint32_t>(std::countr_zero(scan.free));
        }
      }
      if (room != nullptr) {
        for (Bucket* bucket = probe.home; bucket < room; ++bucket) Mark(*bucket);
        const uint64_t mark = (*room)[slot].load(std::memory_order_relaxed) & kMark;
        (*room)[slot].store(SlotFor(hash, place) | mark, std::memory_order_release);
        ++counts_[number];
        ++size_;
        return true;
      }
      Resize(number, CountOf(segment) + 1 + CountOf(segment) / 4);  // crowded at the end
      probe = ProbeOf(hash);
    }
  }
  void EraseAt(const Probe& probe, uint64_t hash, const Place& place);

  // Which slots of a bucket are free, which others have a tag, and which carry a pass mark; bit i is slot i.
  struct Scan {
    uint32_t free = 0;
    uint32_t same = 0;
    uint32_t marks = 0;
  };
  static Scan ScanOf(const Bucket& bucket, uint64_t tag) {
    Scan scan;
#ifdef ICACHE_BLOCK_TABLE_SSE2
    // Four slots at a time: the lower halves of slots in use are not 0, the upper ones have the tags. What is read is
    // acted upon after it has been read again, atomically.
    const auto* const slots = reinterpret_cast<const __m128i*>(&bucket);
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
    for (int i = 0; i < 2; ++i) {
      const __m128 a = _mm_castsi128_ps(_mm_load_si128(slots + 2 * i));
      const __m128 b = _mm_castsi128_ps(_mm_load_si128(slots + 2 * i + 1));
      const __m128i lower = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88));
      const __m128i upper = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
      scan.free |= MaskOf(_mm_cmpeq_epi32(lower, _mm_setzero_si128())) << 4 * i;
      scan.same |= MaskOf(_mm_cmpeq_epi32(_mm_srli_epi32(upper, 9), wanted)) << 4 * i;
      scan.marks |= MaskOf(_mm_slli_epi32(upper, 23)) << 4 * i;
    }
    std::atomic_signal_fence(std::memory_order_acquire);
#else
    for (uint32_t i = 0; i < kBucketSlots; ++i) {
      const uint64_t value = bucket[i].load(std::memory_order_acquire);
      scan.free |= static_cast<uint32_t>(PlaceOf(value).run == 0) << i;
      scan.marks |= static_cast<uint32_t>((value & kMark) != 0) << i;
      scan.same |= static_cast<uint32_t>(TagOf(value) == tag) << i;
    }
#endif
    scan.same &= ~scan.free;
    return scan;
  }
#ifdef ICACHE_BLOCK_TABLE_SSE2
  static uint32_t MaskOf(__m128i lanes) { return static_cast<uint32_t>(_mm_movemask_ps(_mm_castsi128_ps(lanes))); }
#endif

  static uint64_t TagFor(uint64_t hash) { return hash & ((uint64_t{1} << kTagBits) - 1); }
  static uint64_t TagOf(uint64_t slot) { return slot >> 41; }
  static Place PlaceOf(uint64_t slot) {
    return {.run = static_cast<uint32_t>(slot), .offset = static_cast<uint32_t>(slot >> 32 & 0xff)};
  }
  static uint64_t SlotFor(uint64_t hash, const Place& place) {
    return TagFor(hash) << 41 | uint64_t{place.offset} << 32 | place.run;
  }
  static uint64_t HomeOf(uint64_t tag, uint64_t buckets) { return tag * buckets >> kTagBits; }
  static Bucket* BucketsOf(Segment segment) { return reinterpret_cast<Bucket*>(segment & ((uint64_t{1} << 48) - 1)); }
  static uint64_t CountOf(Segment segment) { return segment >> 48; }
  static size_t BytesOf(Segment segment) { return (CountOf(segment) + kPadding) * sizeof(Bucket); }
  template <typename Visit>
  static void ForEachIn(Segment segment, Visit visit) {
    for (uint64_t i = 0; i < CountOf(segment) + kPadding; ++i) {
      for (const std::atomic<uint64_t>& slot : BucketsOf(segment)[i]) {
        const uint64_t value = slot.load(std::memory_order_relaxed) & ~kMark;
        if (value != 0) visit(value);
      }
    }
  }

  // Segments whose number is beyond a power of two have split: hashes find theirs by one more bit.
  static uint32_t NumberOf(uint64_t hash, uint32_t count) {
    const uint32_t mask = MaskOf(count);
    const uint32_t number = static_cast<uint32_t>(hash >> kTagBits) & mask;
    return number < count ? number : number & (mask >> 1);
  }
  static uint32_t MaskOf(uint32_t count) { return count == 1 ? 0 : ~uint32_t{0} >> __builtin_clz(count - 1); }
  // What segment `number`, once the last, was split from.
  static uint32_t ParentOf(uint32_t number) { return number & (MaskOf(number + 1) >> 1); }

  Segment SegmentAt(size_t number) const {
    return directory_.load(std::memory_order_relaxed)->segments()[number].load(std::memory_order_relaxed);
  }
  // How many buckets are two thirds full with so many places; a segment grows when it is four fifths full.
  static uint64_t BucketsFor(size_t places) { return std::max<uint64_t>(1, (places * 3 / 2 + 7) / kBucketSlots); }
  // A segment of these slots, with at least so many buckets.
  Segment MakeSegment(const std::vector<uint64_t>& slots, uint64_t buckets);
  void Retire(Segment segment);
  // Makes `segment` the one of this number.
  void Publish(size_t number, Segment segment);
  // Gives a segment room for one more, or at least so many buckets.
  void Resize(size_t number) { Resize(number, BucketsFor(counts_[number] + 1)); }
  void Resize(size_t number, uint64_t buckets);

  template <typename Blocks>
  void Split(const Blocks& blocks) {
    constexpr size_t kAhead = 16;
    const auto number = static_cast<uint32_t>(counts_.size());
    const uint32_t parent = ParentOf(number);
    std::vector<uint64_t> all, kept, moved;
    ForEachIn(SegmentAt(parent), [&](uint64_t value) { all.push_back(value); });
    for (size_t i = 0; i < all.size(); ++i) {
      if (i + kAhead < all.size()) blocks.Prefetch(PlaceOf(all[i + kAhead]));
      (NumberOf(blocks.HashOf(PlaceOf(all[i])), number + 1) == parent ? kept : moved).push_back(all[i]);
    }
    AddSegment(kept, moved);
  }
  void AddSegment(const std::vector<uint64_t>& kept, const std::vector<uint64_t>& moved);
  void Fold();

  // One more slot has passed a bucket, or one less does.
  static void Mark(Bucket& bucket);
  static void Unmark(Bucket& bucket);

  Retired& retired_;
  std::atomic<Directory*> directory_{nullptr};
  std::vector<uint32_t> counts_;  // places, by segment
  size_t size_ = 0;
  size_t bytes_ = 0;
  uint64_t generation_ = 0;  // rises when a segment is replaced
};

}  // namespace icache
