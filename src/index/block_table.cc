#include "index/block_table.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace icache {

BlockTable::BlockTable(Extents* extents, Retired* retired) : extents_(*extents), retired_(*retired) {
  constexpr uint32_t kInitial = 4;
  auto* const directory = static_cast<Directory*>(std::malloc(sizeof(Directory) + kInitial * sizeof(Segment)));
  directory->capacity = kInitial;
  new (&directory->count) std::atomic<uint32_t>(1);
  for (uint32_t i = 0; i < kInitial; ++i) new (directory->segments() + i) std::atomic<Segment>(0);
  const Segment first = MakeSegment({}, BucketsFor(0), /*base=*/0);
  directory->segments()[0].store(first, std::memory_order_relaxed);
  directory_.store(directory, std::memory_order_release);
  loads_.push_back({.places = 0, .most = MostIn(first)});
  bytes_ += directory->bytes();
}

BlockTable::~BlockTable() {
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < loads_.size(); ++i) extents_.Free(BucketsOf(SegmentAt(i)), BytesOf(SegmentAt(i)));
  std::free(directory);
}

// ---- Segments -------------------------------------------------------------------------------------------------------

void BlockTable::Gather(Segment segment, std::vector<uint64_t>* slots) {
  // Without a branch for each slot, as a third of them are free and none can tell which.
  const absl::Span<const uint64_t> words = WordsOf(segment);
  size_t count = slots->size();
  slots->resize(count + words.size());
  uint64_t* const to = slots->data();
  for (uint64_t word : words) {
    to[count] = word & ~kMark;
    count += static_cast<size_t>(to[count] != 0);
  }
  slots->resize(count);
}

BlockTable::Segment BlockTable::MakeSegment(absl::Span<const uint64_t> slots, uint64_t buckets, uint32_t base) {
  while (true) {
    if (buckets > 0xffff) throw std::bad_alloc();
    const uint64_t all = buckets + kPadding;
    // Plain words as long as nobody else knows them.
    auto* const words = static_cast<uint64_t*>(extents_.Allocate(all * sizeof(Bucket)));
    std::memset(words, 0, all * sizeof(Bucket));
    filled_.assign(all, 0);
    bool fits = true;
    for (uint64_t slot : slots) {
      const uint64_t value = slot & ~kMark;
      uint64_t at = HomeOf(TagOf(value), buckets);
      if (filled_[at] == kBucketSlots) {
        if (value == 0) continue;
        for (; filled_[at] == kBucketSlots && at + 1 < all; ++at) {
          words[at * kBucketSlots + MarkOf(TagOf(value))] |= kMark;
        }
        fits = filled_[at] < kBucketSlots;
        if (!fits) break;
      }
      // A free slot goes where the next in use overwrites it: no branch could foresee which are free.
      words[at * kBucketSlots + filled_[at]] = value;
      filled_[at] = static_cast<uint8_t>(filled_[at] + static_cast<uint8_t>(value != 0));
    }
    if (fits) {
      bytes_ += all * sizeof(Bucket);
      return WordFor(words, buckets, base);
    }
    extents_.Free(words, all * sizeof(Bucket));
    buckets = LargerThan(buckets);  // crowded at the end
  }
}

void BlockTable::Retire(Segment segment) {
  bytes_ -= BytesOf(segment);
  retired_.AddExtent(BucketsOf(segment), BytesOf(segment));
}

void BlockTable::Publish(size_t number, Segment segment, size_t places) {
  std::atomic<Segment>& entry = directory_.load(std::memory_order_relaxed)->segments()[number];
  const Segment old = entry.load(std::memory_order_relaxed);
  entry.store(segment, std::memory_order_release);
  loads_[number] = {.places = static_cast<uint32_t>(places), .most = MostIn(segment)};
  Retire(old);
}

void BlockTable::Resize(size_t number, uint64_t buckets) {
  const Segment segment = SegmentAt(number);
  Publish(number, MakeSegment(WordsOf(segment), buckets, BaseOf(segment)), loads_[number].places);
}

// ---- Insertions of a batch ------------------------------------------------------------------------------------------

uint32_t BlockTable::InsertAtHome(const Batch& batch, uint32_t run, Numbers* passed) {
  uint32_t full = 0;
  uint32_t count = 0;
  std::atomic<uint64_t> nowhere = 0;
  Load* const loads = loads_.data();
  const auto size = static_cast<uint32_t>(batch.hashes_.size());
  for (uint32_t i = 0; i < size; ++i) {
    const Probe& probe = batch.probes_[i];
    Bucket& home = *probe.home;
    const Scan scan = ScanOf(home, probe.tag);
    const uint32_t fits = static_cast<uint32_t>(scan.same == 0) & static_cast<uint32_t>(scan.free != 0) &
                          (IsMarked(home, MarkOf(probe.tag)) ^ 1);
    std::atomic<uint64_t>* const slot = home.data() + std::countr_zero(scan.free | 1u << kBucketSlots);
    Put(SlotIf(fits, slot, &nowhere), SlotFor(probe.tag, {run, i}));
    full |= AddPlaces(loads + probe.number, fits);
    passed->at[count] = static_cast<uint8_t>(i);
    count += 1 - fits;
  }
  passed->count = count;
  PrefetchBeyond(batch, *passed, 1);
  return full;
}

uint32_t BlockTable::InsertNextToHome(const Batch& batch, uint32_t run, const Numbers& passed, Numbers* left) {
  uint32_t full = 0;
  uint32_t count = 0;
  std::atomic<uint64_t> nowhere = 0;
  Load* const loads = loads_.data();
  for (uint32_t k = 0; k < passed.count; ++k) {
    const uint32_t i = passed.at[k];
    const Probe& probe = batch.probes_[i];
    Bucket& home = *probe.home;
    Bucket& next = *(probe.home + 1);
    const uint32_t mark = MarkOf(probe.tag);
    const Scan here = ScanOf(home, probe.tag);
    const Scan there = ScanOf(next, probe.tag);
    const uint32_t fits = static_cast<uint32_t>((here.same | there.same) == 0) &
                          static_cast<uint32_t>((here.free | there.free) != 0) & (IsMarked(next, mark) ^ 1);
    const uint32_t passes = static_cast<uint32_t>(here.free == 0);
    Mark(home, mark, fits & passes);
    const uint32_t free = passes != 0 ? there.free : here.free;
    std::atomic<uint64_t>* const slot = (probe.home + passes)->data() + std::countr_zero(free | 1u << kBucketSlots);
    Put(SlotIf(fits, slot, &nowhere), SlotFor(probe.tag, {run, i}));
    full |= AddPlaces(loads + probe.number, fits);
    left->at[count] = static_cast<uint8_t>(i);
    count += 1 - fits;
  }
  left->count = count;
  PrefetchBeyond(batch, *left, 2);
  return full;
}

// ---- Marks and removals ---------------------------------------------------------------------------------------------

void BlockTable::UnmarkIfUnused(Segment segment, Bucket& bucket, uint32_t mark) {
  const Bucket* const first = BucketsOf(segment);
  const auto number = static_cast<uint64_t>(&bucket - first);
  const Bucket* beyond = &bucket;
  do {
    ++beyond;
    for (const std::atomic<uint64_t>& slot : *beyond) {
      const uint64_t value = slot.load(std::memory_order_relaxed);
      if (PlaceOf(value).run != 0 && MarkOf(TagOf(value)) == mark && HomeOf(TagOf(value), CountOf(segment)) <= number) {
        return;
      }
    }
  } while (IsMarked(*beyond, mark) != 0);
  bucket[mark].store(bucket[mark].load(std::memory_order_relaxed) & ~kMark, std::memory_order_release);
}

void BlockTable::Erase(absl::Span<const uint64_t> hashes, uint32_t run, absl::Span<const uint8_t> offsets) {
  const Batch batch(*this, hashes);
  // Most are in their home; the next bucket of the others is fetched before they are looked for there.
  Numbers passed;
  uint32_t count = 0;
  std::atomic<uint64_t> nowhere = 0;
  for (uint32_t i = 0; i < hashes.size(); ++i) {
    const Probe& probe = batch.probes_[i];
    const uint64_t value = SlotFor(probe.tag, {run, offsets[i]});
    std::atomic<uint64_t>* const slot =
        probe.home->data() + std::countr_zero(ScanOf(*probe.home, probe.tag).same | 1u << (kBucketSlots - 1));
    const auto is_home = static_cast<uint32_t>((slot->load(std::memory_order_relaxed) & ~kMark) == value);
    std::atomic<uint64_t>* const erased = SlotIf(is_home, slot, &nowhere);
    erased->store(erased->load(std::memory_order_relaxed) & kMark, std::memory_order_release);
    loads_[probe.number].places -= is_home;
    passed.at[count] = static_cast<uint8_t>(i);
    count += 1 - is_home;
  }
  passed.count = count;
  PrefetchBeyond(batch, passed, 1);
  size_ -= hashes.size() - count;
  for (uint32_t k = 0; k < passed.count; ++k) EraseAt(batch.probes_[passed.at[k]], {run, offsets[passed.at[k]]});
  for (size_t i = 0; i < hashes.size(); ++i) {
    const uint32_t number = batch.probes_[i].number;
    const uint32_t places = loads_[number].places;
    const uint64_t buckets = CountOf(SegmentAt(number));
    if (places * 2 < buckets * kBucketSlots && BucketsFor(places) < buckets) Resize(number, BucketsFor(places));
  }
}

void BlockTable::EraseAt(const Probe& probe, const Place& place) {
  const uint64_t value = SlotFor(probe.tag, place);
  for (Bucket* bucket = probe.home;; ++bucket) {
    uint32_t same = ScanOf(*bucket, probe.tag).same;
    while (same != 0 && ((*bucket)[std::countr_zero(same)].load(std::memory_order_relaxed) & ~kMark) != value) {
      same &= same - 1;
    }
    if (same == 0) continue;
    std::atomic<uint64_t>& slot = (*bucket)[std::countr_zero(same)];
    slot.store(slot.load(std::memory_order_relaxed) & kMark, std::memory_order_release);
    const Segment segment = SegmentAt(probe.number);
    while (bucket-- != probe.home) UnmarkIfUnused(segment, *bucket, MarkOf(probe.tag));
    break;
  }
  --size_;
  --loads_[probe.number].places;
}

// ---- Growing and shrinking ------------------------------------------------------------------------------------------

void BlockTable::Part(Segment segment, uint32_t bit) {
  const absl::Span<const uint64_t> words = WordsOf(segment);
  const uint32_t shift = kTagShift + bit;
  kept_.resize(words.size());
  moved_.resize(words.size());
  size_t kept = 0, moved = 0;
  for (uint64_t word : words) {
    const uint64_t value = word & ~kMark;
    const size_t moves = value >> shift & 1;
    kept_[kept] = value;
    moved_[moved] = value;
    kept += static_cast<size_t>(value != 0) - moves;
    moved += moves;
  }
  kept_.resize(kept);
  moved_.resize(moved);
}

void BlockTable::AddSegment(uint32_t number) {
  const uint32_t parent = ParentOf(number);
  const uint32_t base = BaseFor(SharedBefore(number) + 1);
  Directory* directory = directory_.load(std::memory_order_relaxed);
  if (number == directory->capacity) {
    const uint32_t capacity = 2 * directory->capacity;
    auto* const larger = static_cast<Directory*>(std::malloc(sizeof(Directory) + capacity * sizeof(Segment)));
    larger->capacity = capacity;
    new (&larger->count) std::atomic<uint32_t>(number);
    for (uint32_t i = 0; i < capacity; ++i) {
      new (larger->segments() + i) std::atomic<Segment>(i < number ? SegmentAt(i) : 0);
    }
    bytes_ += larger->bytes() - directory->bytes();
    retired_.Add(directory, directory->bytes());
    directory_.store(larger, std::memory_order_release);
    directory = larger;
  }
  const Segment segment = MakeSegment(moved_, BucketsFor(moved_.size()), base);
  directory->segments()[number].store(segment, std::memory_order_release);
  loads_.push_back({.places = static_cast<uint32_t>(moved_.size()), .most = MostIn(segment)});
  // A reader that finds the parent without what has moved sees the new count when it looks again.
  directory->count.store(number + 1, std::memory_order_release);
  Publish(parent, MakeSegment(kept_, BucketsFor(kept_.size()), base), kept_.size());
}

void BlockTable::Fold() {
  const auto number = static_cast<uint32_t>(loads_.size()) - 1;
  const uint32_t parent = ParentOf(number);
  const uint32_t base = BaseFor(SharedBefore(number));
  slots_.clear();
  for (uint32_t each : {parent, number}) {
    const size_t first = slots_.size();
    Gather(SegmentAt(each), &slots_);
    if (BaseOf(SegmentAt(each)) == base) continue;
    // The bits that tags of the lower base have in front are those of the segment's number.
    for (size_t i = first; i < slots_.size(); ++i) {
      const uint64_t tag = TagOf(slots_[i]) << kBaseBits | each >> base;
      slots_[i] = Retagged(slots_[i], tag & kTagMask);
    }
  }
  // A reader that looks for the last segment's blocks finds them there until it sees the lower count, and in the parent
  // from then on.
  Publish(parent, MakeSegment(slots_, BucketsFor(slots_.size()), base), slots_.size());
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  directory->count.store(number, std::memory_order_release);
  Retire(directory->segments()[number].load(std::memory_order_relaxed));
  loads_.pop_back();
}

bool BlockTable::CheckInvariants() const {
  size_t total = 0;
  for (size_t i = 0; i < loads_.size(); ++i) {
    const Segment segment = SegmentAt(i);
    size_t places = 0;
    std::vector<uint32_t> marks(CountOf(segment) + kPadding, 0);
    // Those that have split since their number last doubled, and what split off, share a bit more than the others.
    const auto count = static_cast<uint32_t>(loads_.size());
    const uint32_t half = (MaskOf(count) + 1) / 2;
    const uint32_t shared = static_cast<uint32_t>(std::bit_width(MaskOf(count))) - ((i | half) >= count ? 1 : 0);
    if (BaseOf(segment) != BaseFor(shared)) return false;
    for (uint64_t at = 0; at < marks.size(); ++at) {
      for (const std::atomic<uint64_t>& slot : BucketsOf(segment)[at]) {
        const uint64_t value = slot.load(std::memory_order_relaxed) & ~kMark;
        if (value == 0) continue;
        ++places;
        const uint64_t home = HomeOf(TagOf(value), CountOf(segment));
        if (home > at) return false;
        for (uint64_t each = home; each < at; ++each) marks[each] |= 1u << MarkOf(TagOf(value));
        const uint64_t shared_in_tag = (uint64_t{1} << (shared - BaseOf(segment))) - 1;
        if (((TagOf(value) ^ i >> BaseOf(segment)) & shared_in_tag) != 0) return false;
      }
    }
    for (uint64_t at = 0; at < marks.size(); ++at) {
      for (uint32_t mark = 0; mark < kBucketSlots; ++mark) {
        if (IsMarked(BucketsOf(segment)[at], mark) != (marks[at] >> mark & 1)) return false;
      }
    }
    if (places != loads_[i].places || loads_[i].most != MostIn(segment)) return false;
    total += places;
  }
  return total == size_;
}

}  // namespace icache
