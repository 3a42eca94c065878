// BlockTable: from the hash of a block to where it is, eight bytes a block.
//
// A slot holds a place, (run, offset), and a *tag* of 23 bits of the mixed hash; the hash itself is in the run, where a
// probe compares it. Linear hashing spreads the slots over segments of about kSegmentMean places, of which one splits
// when the table grows and the last folds back when it shrinks, so no step is long. A segment is an array of *buckets*,
// each of eight slots and one cache line, in memory of Extents. The home of a slot is the bucket tag × buckets ÷ 2^23;
// if that is full it passes on to the next, and leaves a *mark* in the bucket. Three bits of the tag say which of eight
// marks, each of which is a bit of a slot, whatever else that slot holds. A probe ends at the first bucket without the
// mark of its tag, nearly always the home, and nothing ever moves within a segment.
//
//   hash   63 ...................... base+23 | base+22 ............ base | base-1 ...... 0
//                                            | tag: home in its top bits | one segment's hashes have the same bits here
//
// A hash finds its segment by its lowest bits, of which the hashes of a segment share one more with each split. Which
// bits its tags have is the segment's: they start at its *base*, the multiple of eight at or below the number of bits
// shared. So a split reads in the tags who goes where, and only one in eight, which moves the base, looks up hashes in
// the runs.
//
// Threads. One writer at a time; readers at any time. A reader trusts what it finds, since it compares the hash itself,
// and that it found nothing when the segments were the same before and after. What the writer replaces it retires, for
// readers may still be in it. The word that names a segment tells its base, so no reader takes one base for another.
//
// The caller compares: `matches(place)` says whether the block there is the one that is sought.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "index/extents.h"
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
  static constexpr size_t kBucketSlots = 8;
  using Bucket = std::array<std::atomic<uint64_t>, kBucketSlots>;
  static_assert(sizeof(Bucket) == 64);

  // Where the search for a hash begins, for the writer.
  struct Probe {
    Bucket* home;
    uint32_t number;  // of the segment
    uint32_t tag;
  };

 public:
  // At most so many hashes in one batch.
  static constexpr size_t kMaxBatch = 256;

  // `extents` and `retired`, which takes over what readers may still look at, must outlive the table.
  BlockTable(Extents* extents, Retired* retired);
  // Requires that there are no readers.
  ~BlockTable();
  BlockTable(const BlockTable&) = delete;
  BlockTable& operator=(const BlockTable&) = delete;

  // Brings the slots of `hash` nearer to the processor.
  void Prefetch(uint64_t hash) const {
    const Directory& directory = *directory_.load(std::memory_order_acquire);
    const uint32_t number = NumberOf(hash, directory.count.load(std::memory_order_acquire));
    const Segment segment = directory.segments()[number].load(std::memory_order_acquire);
    __builtin_prefetch(BucketsOf(segment) + HomeOf(TagFor(hash, segment), CountOf(segment)));
  }

  // The place of the block, or run 0. For readers.
  template <typename Matches>
  Place Find(uint64_t hash, Matches matches) const {
    while (true) {
      const Directory* const directory = directory_.load(std::memory_order_acquire);
      const uint32_t count = directory->count.load(std::memory_order_acquire);
      const std::atomic<Segment>& entry = directory->segments()[NumberOf(hash, count)];
      const Segment segment = entry.load(std::memory_order_acquire);
      const uint64_t tag = TagFor(hash, segment);
      const Bucket* bucket = BucketsOf(segment) + HomeOf(tag, CountOf(segment));
      for (bool more = true; more; ++bucket) {
        for (uint32_t same = ScanOf(*bucket, tag).same; same != 0; same &= same - 1) {
          const Place place = PlaceOf((*bucket)[std::countr_zero(same)].load(std::memory_order_acquire));
          if (place.run != 0 && matches(place)) return place;
        }
        more = IsMarked(*bucket, MarkOf(tag)) != 0;
      }
      // A larger segment, or one more, may hold it by now.
      if (directory->count.load(std::memory_order_acquire) == count &&
          entry.load(std::memory_order_acquire) == segment && directory_.load(std::memory_order_acquire) == directory) {
        return {};
      }
    }
  }

  // For the writer: where the searches for many hashes begin, on their way to the processor. To be used before the
  // table is changed otherwise.
  class Batch {
   public:
    // `hashes`, at most kMaxBatch, must outlive the batch.
    Batch(const BlockTable& table, absl::Span<const uint64_t> hashes) : hashes_(hashes) {
      assert(hashes.size() <= kMaxBatch);
      const Directory& directory = *table.directory_.load(std::memory_order_relaxed);
      const uint32_t count = directory.count.load(std::memory_order_relaxed);
      for (size_t i = 0; i < hashes.size(); ++i) {
        probes_[i] = ProbeIn(directory, count, hashes[i]);
        __builtin_prefetch(probes_[i].home, /*rw=*/1);
      }
    }

   private:
    friend class BlockTable;
    const absl::Span<const uint64_t> hashes_;
    std::array<Probe, kMaxBatch> probes_;
  };

  // Adds the blocks of a batch as blocks 0, 1, … of a run. If some are there already, as `matches(i, place)` finds, it
  // adds none. Returns how many were added, or else the first that is there. Balance() must follow before long.
  template <typename Matches>
  uint32_t Insert(const Batch& batch, uint32_t run, Matches matches) {
    // Most find all they need in their home, most others in the bucket after it, and what is left goes in one by one.
    Numbers passed, left;
    const uint32_t full = InsertAtHome(batch, run, &passed) | InsertNextToHome(batch, run, passed, &left);
    const auto size = static_cast<uint32_t>(batch.hashes_.size());
    size_ += size - left.count;
    // In order, so that of two equal hashes the later one is found to be there.
    uint32_t done = 0;
    for (; done < left.count; ++done) {
      const uint32_t i = left.at[done];
      const auto same_block = [&](const Place& place) { return matches(i, place); };
      if (!InsertBeyond(batch.hashes_[i], {run, i}, same_block)) break;
    }
    for (uint32_t k = 0; k < done; ++k) GrowIfFull(batch.probes_[left.at[k]].number);
    if (full != 0) {
      for (uint32_t i = 0; i < size; ++i) GrowIfFull(batch.probes_[i].number);
    }
    if (done == left.count) return size;
    for (uint32_t i = 0, next = done; i < size; ++i) {
      if (next < left.count && i == left.at[next]) {
        ++next;
      } else {
        EraseAt(ProbeOf(batch.hashes_[i]), {run, i});
      }
    }
    return left.at[done];
  }
  // Adds one block. False, with nothing done, when `matches(place)` finds that it is there already.
  template <typename Matches>
  bool Insert(uint64_t hash, const Place& place, Matches matches) {
    if (!InsertBeyond(hash, place, matches)) return false;
    GrowIfFull(ProbeOf(hash).number);
    return true;
  }
  // Removes blocks of a run that are there: `hashes[i]` is that of `offsets[i]`. Balance() must follow before long.
  void Erase(absl::Span<const uint64_t> hashes, uint32_t run, absl::Span<const uint8_t> offsets);
  // Splits or folds segments so that they keep their size. `blocks` tells of places: HashOf(place), Prefetch(place).
  template <typename Blocks>
  void Balance(const Blocks& blocks) {
    while (size_ > kSegmentMean * loads_.size()) Split(blocks);
    while (loads_.size() > 1 && size_ < kSegmentMean / 2 * loads_.size()) Fold();
  }

  size_t size() const { return size_; }
  // Of an empty table: 0.
  size_t bytes() const { return size_ == 0 ? 0 : bytes_; }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (size_t i = 0; i < loads_.size(); ++i) {
      const Segment segment = SegmentAt(i);
      for (uint64_t at = 0; at < CountOf(segment) + kPadding; ++at) {
        for (const std::atomic<uint64_t>& slot : BucketsOf(segment)[at]) {
          const uint64_t value = slot.load(std::memory_order_relaxed) & ~kMark;
          if (value != 0) visit(PlaceOf(value));
        }
      }
    }
  }
  // For tests: homes of the slots, marks, loads and bases of the segments.
  bool CheckInvariants() const;

 private:
  static constexpr uint32_t kTagBits = 23;
  static constexpr uint64_t kTagMask = (uint64_t{1} << kTagBits) - 1;
  static constexpr uint32_t kTagShift = 64 - kTagBits;  // of a slot
  static constexpr uint32_t kMarkBit = 40;
  static constexpr uint64_t kMark = uint64_t{1} << kMarkBit;
  static constexpr uint32_t kBaseBits = 8;      // bases are multiples of it
  static constexpr size_t kSegmentMean = 1024;  // places per segment
  // Buckets beyond a segment's count, for slots that the last homes have no room for.
  static constexpr uint32_t kPadding = 2;

  // A word that names a segment: from the top its number of buckets, the 48 bits of the address of the first, and, in
  // the six of them that are 0, base ÷ kBaseBits.
  using Segment = uint64_t;

  struct Directory {
    std::atomic<uint32_t> count;
    uint32_t capacity;
    std::atomic<Segment>* segments() { return reinterpret_cast<std::atomic<Segment>*>(this + 1); }
    const std::atomic<Segment>* segments() const { return reinterpret_cast<const std::atomic<Segment>*>(this + 1); }
    size_t bytes() const { return sizeof(Directory) + capacity * sizeof(Segment); }
  };

  // What the writer knows of a segment.
  struct Load {
    uint32_t places = 0;
    uint32_t most = 0;  // beyond it the segment grows
  };

  static Probe ProbeIn(const Directory& directory, uint32_t count, uint64_t hash) {
    const uint32_t number = NumberOf(hash, count);
    const Segment segment = directory.segments()[number].load(std::memory_order_relaxed);
    const uint64_t tag = TagFor(hash, segment);
    return {.home = BucketsOf(segment) + HomeOf(tag, CountOf(segment)),
            .number = number,
            .tag = static_cast<uint32_t>(tag)};
  }
  Probe ProbeOf(uint64_t hash) const {
    const Directory& directory = *directory_.load(std::memory_order_relaxed);
    return ProbeIn(directory, directory.count.load(std::memory_order_relaxed), hash);
  }

  // Some blocks of a batch, by number, in order. Has room for one more, so that who lists some of a batch can write
  // each of them and count those that are meant, without a branch.
  struct Numbers {
    std::array<uint8_t, kMaxBatch + 1> at;
    uint32_t count = 0;
  };
  // Two passes over a batch. Each puts where it can be put at once what has not been seen to be there, and lists the
  // others, which may be there already, with their next bucket on its way. They leave nothing to a branch, which would
  // be guessed wrong each time. Both return 1 when a segment has become full, else 0.
  //
  // Into their home goes what has room there and whose mark nobody has left.
  uint32_t InsertAtHome(const Batch& batch, uint32_t run, Numbers* passed);
  // Of those that the first pass has listed, what has room at home or in the bucket after it, and has not passed that.
  uint32_t InsertNextToHome(const Batch& batch, uint32_t run, const Numbers& passed, Numbers* left);
  // Counts `places` more in a segment; 1 when it is full by that, else 0.
  static uint32_t AddPlaces(Load* load, uint32_t places) {
    load->places += places;
    return static_cast<uint32_t>(load->places > load->most);
  }
  // Brings the buckets that are so many beyond the homes of some blocks nearer to the processor.
  static void PrefetchBeyond(const Batch& batch, const Numbers& numbers, uint32_t beyond) {
    for (uint32_t k = 0; k < numbers.count; ++k) {
      __builtin_prefetch(batch.probes_[numbers.at[k]].home + beyond, /*rw=*/1);
    }
  }
  // Adds one block, wherever there is room for it, without regard to how full that makes the segment.
  template <typename Matches>
  bool InsertBeyond(uint64_t hash, const Place& place, Matches matches) {
    Probe probe = ProbeOf(hash);
    while (true) {
      const Segment segment = SegmentAt(probe.number);
      const Bucket* const end = BucketsOf(segment) + CountOf(segment) + kPadding;
      const uint32_t mark = MarkOf(probe.tag);
      Bucket* room = nullptr;
      uint32_t slot = 0;
      // All buckets that the block may be in are looked at, even beyond the first with room.
      bool more = true;
      for (Bucket* bucket = probe.home; bucket < end && (more || room == nullptr); ++bucket) {
        const Scan scan = ScanOf(*bucket, probe.tag);
        more = more && IsMarked(*bucket, mark) != 0;
        for (uint32_t same = scan.same & ~scan.free; same != 0; same &= same - 1) {
          if (matches(PlaceOf((*bucket)[std::countr_zero(same)].load(std::memory_order_relaxed)))) return false;
        }
        if (room == nullptr && scan.free != 0) {
          room = bucket;
          slot = static_cast<uint32_t>(std::countr_zero(scan.free));
        }
      }
      if (room != nullptr) {
        for (Bucket* bucket = probe.home; bucket < room; ++bucket) Mark(*bucket, mark, 1);
        Put(&(*room)[slot], SlotFor(probe.tag, place));
        ++loads_[probe.number].places;
        ++size_;
        return true;
      }
      Resize(probe.number, LargerThan(CountOf(segment)));  // crowded at the end
      probe = ProbeOf(hash);
    }
  }
  void GrowIfFull(uint32_t number) {
    const Load& load = loads_[number];
    if (load.places > load.most) Resize(number, BucketsFor(load.places));
  }
  void EraseAt(const Probe& probe, const Place& place);

  // Which slots of a bucket are free and which have a tag (and may be free nevertheless); bit i is slot i.
  struct Scan {
    uint32_t free = 0;
    uint32_t same = 0;
  };
  static Scan ScanOf(const Bucket& bucket, uint64_t tag) {
    Scan scan;
#ifdef ICACHE_BLOCK_TABLE_SSE2
    // Four slots at a time: the lower halves of slots in use are not 0, the upper ones have the tags. What is read is
    // acted upon after it has been read again, atomically.
    const auto* const slots = reinterpret_cast<const __m128i*>(&bucket);
    const __m128i wanted = _mm_set1_epi32(static_cast<int>(tag));
    __m128i free[2], same[2];
    for (int i = 0; i < 2; ++i) {
      const __m128 a = _mm_castsi128_ps(_mm_load_si128(slots + 2 * i));
      const __m128 b = _mm_castsi128_ps(_mm_load_si128(slots + 2 * i + 1));
      const __m128i lower = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88));
      const __m128i upper = _mm_castps_si128(_mm_shuffle_ps(a, b, 0xdd));
      free[i] = _mm_cmpeq_epi32(lower, _mm_setzero_si128());
      same[i] = _mm_cmpeq_epi32(_mm_srli_epi32(upper, kTagShift - 32), wanted);
    }
    const auto both = static_cast<uint32_t>(
        _mm_movemask_epi8(_mm_packs_epi16(_mm_packs_epi32(free[0], free[1]), _mm_packs_epi32(same[0], same[1]))));
    scan.free = both & 0xff;
    scan.same = both >> 8;
    std::atomic_signal_fence(std::memory_order_acquire);
#else
    for (uint32_t i = 0; i < kBucketSlots; ++i) {
      const uint64_t value = bucket[i].load(std::memory_order_acquire);
      scan.free |= static_cast<uint32_t>(PlaceOf(value).run == 0) << i;
      scan.same |= static_cast<uint32_t>(TagOf(value) == tag) << i;
    }
#endif
    return scan;
  }

  // The mark of a tag, of bits that neither the home nor the segment decides.
  static uint32_t MarkOf(uint64_t tag) { return static_cast<uint32_t>(tag >> kBaseBits) % kBucketSlots; }
  static uint32_t IsMarked(const Bucket& bucket, uint32_t mark) {
    return static_cast<uint32_t>(bucket[mark].load(std::memory_order_acquire) >> kMarkBit) & 1;
  }
  // Sets a mark if `passes` is 1 rather than 0.
  static void Mark(Bucket& bucket, uint32_t mark, uint64_t passes) {
    bucket[mark].store(bucket[mark].load(std::memory_order_relaxed) | passes << kMarkBit, std::memory_order_release);
  }
  // Fills a free slot, whose mark stays.
  static void Put(std::atomic<uint64_t>* slot, uint64_t value) {
    slot->store(value | (slot->load(std::memory_order_relaxed) & kMark), std::memory_order_release);
  }
  // `slot` if `wanted` is 1, `nowhere` if it is 0. In numbers, for a compiler makes a branch of a condition.
  static std::atomic<uint64_t>* SlotIf(uint32_t wanted, std::atomic<uint64_t>* slot, std::atomic<uint64_t>* nowhere) {
    const auto place = reinterpret_cast<uintptr_t>(slot), other = reinterpret_cast<uintptr_t>(nowhere);
    return reinterpret_cast<std::atomic<uint64_t>*>(other ^ ((place ^ other) & (uintptr_t{0} - wanted)));
  }

  static uint64_t TagOf(uint64_t slot) { return slot >> kTagShift; }
  static Place PlaceOf(uint64_t slot) {
    return {.run = static_cast<uint32_t>(slot), .offset = static_cast<uint32_t>(slot >> 32 & 0xff)};
  }
  static uint64_t SlotFor(uint64_t tag, const Place& place) {
    return tag << kTagShift | uint64_t{place.offset} << 32 | place.run;
  }
  // The same slot with another tag and without a mark.
  static uint64_t Retagged(uint64_t slot, uint64_t tag) { return tag << kTagShift | (slot & (kMark - 1)); }
  static uint64_t HomeOf(uint64_t tag, uint64_t buckets) { return tag * buckets >> kTagBits; }

  static Segment WordFor(const void* first, uint64_t buckets, uint32_t base) {
    return buckets << 48 | reinterpret_cast<uint64_t>(first) | base / kBaseBits;
  }
  static Bucket* BucketsOf(Segment segment) {
    return reinterpret_cast<Bucket*>(segment & ((uint64_t{1} << 48) - sizeof(Bucket)));
  }
  static uint64_t CountOf(Segment segment) { return segment >> 48; }
  static uint32_t BaseOf(Segment segment) { return static_cast<uint32_t>(segment & (sizeof(Bucket) - 1)) * kBaseBits; }
  static uint64_t TagFor(uint64_t hash, Segment segment) { return hash >> BaseOf(segment) & kTagMask; }
  static size_t BytesOf(Segment segment) { return (CountOf(segment) + kPadding) * sizeof(Bucket); }

  // Segments whose number is beyond a power of two have split: hashes find theirs by one more bit.
  static uint32_t NumberOf(uint64_t hash, uint32_t count) {
    const uint32_t mask = MaskOf(count);
    const uint32_t number = static_cast<uint32_t>(hash) & mask;
    return number < count ? number : number & (mask >> 1);
  }
  static uint32_t MaskOf(uint32_t count) { return count == 1 ? 0 : ~uint32_t{0} >> __builtin_clz(count - 1); }
  // What segment `number`, once the last, was split from.
  static uint32_t ParentOf(uint32_t number) { return number & (MaskOf(number + 1) >> 1); }
  // The bits of their hashes that segment `number` and its parent agree in, just before the split.
  static uint32_t SharedBefore(uint32_t number) { return static_cast<uint32_t>(std::bit_width(number)) - 1; }
  static uint32_t BaseFor(uint32_t shared) { return shared / kBaseBits * kBaseBits; }

  Segment SegmentAt(size_t number) const {
    return directory_.load(std::memory_order_relaxed)->segments()[number].load(std::memory_order_relaxed);
  }
  // How many buckets are 4/7 full with so many places, as extents come; a segment grows when it is 4/5 full. So in a
  // table that grows, each is resized once between two splits.
  static uint64_t BucketsFor(size_t places) { return Rounded((places * 7 / 4 + kBucketSlots - 1) / kBucketSlots); }
  static uint64_t LargerThan(uint64_t buckets) { return Rounded(buckets + 1 + buckets / 4); }
  static uint64_t Rounded(uint64_t buckets) {
    constexpr uint64_t kStep = Extents::kUnit / sizeof(Bucket);
    return (buckets + kPadding + kStep - 1) / kStep * kStep - kPadding;
  }
  static uint32_t MostIn(Segment segment) { return static_cast<uint32_t>(CountOf(segment) * kBucketSlots * 4 / 5); }

  // The words of its slots, those of the padding included, for the writer.
  static absl::Span<const uint64_t> WordsOf(Segment segment) {
    return {reinterpret_cast<const uint64_t*>(BucketsOf(segment)), (CountOf(segment) + kPadding) * kBucketSlots};
  }
  // Appends the slots in use of a segment, without marks.
  static void Gather(Segment segment, std::vector<uint64_t>* slots);
  // A segment of these slots (those that are free and all marks do not count), with at least so many buckets, rounded.
  Segment MakeSegment(absl::Span<const uint64_t> slots, uint64_t buckets, uint32_t base);
  void Retire(Segment segment);
  // Makes `segment` the one of this number, with so many places.
  void Publish(size_t number, Segment segment, size_t places);
  // Gives a segment at least so many buckets, rounded.
  void Resize(size_t number, uint64_t buckets);

  template <typename Blocks>
  void Split(const Blocks& blocks) {
    const auto number = static_cast<uint32_t>(loads_.size());
    const uint32_t parent = ParentOf(number);
    const uint32_t shared = SharedBefore(number);
    const Segment segment = SegmentAt(parent);
    if (BaseFor(shared + 1) == BaseOf(segment)) {
      Part(segment, shared - BaseOf(segment));
    } else {
      PartAnew(segment, blocks, shared);
    }
    AddSegment(number);
  }
  // Parts the slots of a segment into kept_ and moved_ by one bit of their tags.
  void Part(Segment segment, uint32_t bit);
  // The same by bit `shared` of their hashes, with tags of a new base.
  template <typename Blocks>
  void PartAnew(Segment segment, const Blocks& blocks, uint32_t shared) {
    constexpr size_t kAhead = 16;
    slots_.clear();
    Gather(segment, &slots_);
    kept_.clear();
    moved_.clear();
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (i + kAhead < slots_.size()) blocks.Prefetch(PlaceOf(slots_[i + kAhead]));
      const uint64_t hash = blocks.HashOf(PlaceOf(slots_[i]));
      const uint64_t slot = Retagged(slots_[i], hash >> BaseFor(shared + 1) & kTagMask);
      ((hash >> shared & 1) == 0 ? kept_ : moved_).push_back(slot);
    }
  }
  // The second half of a split: kept_ for the parent, moved_ for the new segment.
  void AddSegment(uint32_t number);
  void Fold();

  // Takes the mark from a bucket if no slot that has it has passed the bucket.
  static void UnmarkIfUnused(Segment segment, Bucket& bucket, uint32_t mark);

  Extents& extents_;
  Retired& retired_;
  std::atomic<Directory*> directory_{nullptr};
  std::vector<Load> loads_;  // by segment
  size_t size_ = 0;
  size_t bytes_ = 0;
  // Of use while segments are made.
  std::vector<uint64_t> slots_, kept_, moved_;
  std::vector<uint8_t> filled_;  // by bucket
};

}  // namespace icache
