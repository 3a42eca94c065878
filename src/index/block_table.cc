#include "index/block_table.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace icache {

BlockTable::BlockTable(Retired* retired) : retired_(*retired) {
  constexpr uint32_t kInitial = 4;
  auto* const directory = static_cast<Directory*>(std::malloc(sizeof(Directory) + kInitial * sizeof(Segment)));
  directory->capacity = kInitial;
  new (&directory->count) std::atomic<uint32_t>(1);
  for (uint32_t i = 0; i < kInitial; ++i) new (directory->segments() + i) std::atomic<Segment>(0);
  directory->segments()[0].store(MakeSegment({}, 1), std::memory_order_relaxed);
  directory_.store(directory, std::memory_order_release);
  counts_.push_back(0);
  bytes_ += directory->bytes();
}

BlockTable::~BlockTable() {
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < counts_.size(); ++i) std::free(BucketsOf(SegmentAt(i)));
  std::free(directory);
}

BlockTable::Segment BlockTable::MakeSegment(const std::vector<uint64_t>& slots, uint64_t buckets) {
  while (true) {
    if (buckets > 0xffff) throw std::bad_alloc();
    auto* const first = static_cast<Bucket*>(std::aligned_alloc(sizeof(Bucket), (buckets + kPadding) * sizeof(Bucket)));
    if (first == nullptr) throw std::bad_alloc();
    for (uint64_t i = 0; i < buckets + kPadding; ++i) {
      new (first + i) Bucket;
      for (std::atomic<uint64_t>& slot : first[i]) slot.store(0, std::memory_order_relaxed);
    }
    bool fits = true;
    for (uint64_t value : slots) {
      uint64_t at = HomeOf(TagOf(value), buckets);
      uint32_t free;
      while ((free = ScanOf(first[at], 0).free) == 0 && at + 1 < buckets + kPadding) Mark(first[at++]);
      fits = free != 0;
      if (!fits) break;
      std::atomic<uint64_t>& slot = first[at][std::countr_zero(free)];
      slot.store(value | (slot.load(std::memory_order_relaxed) & kMark), std::memory_order_relaxed);
    }
    if (fits) {
      const Segment segment = buckets << 48 | reinterpret_cast<uint64_t>(first);
      bytes_ += BytesOf(segment);
      return segment;
    }
    std::free(first);
    buckets += 1 + buckets / 4;  // crowded at the end
  }
}

void BlockTable::Retire(Segment segment) {
  bytes_ -= BytesOf(segment);
  retired_.Add(BucketsOf(segment), BytesOf(segment));
}

void BlockTable::Publish(size_t number, Segment segment) {
  std::atomic<Segment>& entry = directory_.load(std::memory_order_relaxed)->segments()[number];
  const Segment old = entry.load(std::memory_order_relaxed);
  entry.store(segment, std::memory_order_release);
  ++generation_;
  Retire(old);
}

void BlockTable::Resize(size_t number, uint64_t buckets) {
  std::vector<uint64_t> slots;
  slots.reserve(counts_[number]);
  ForEachIn(SegmentAt(number), [&](uint64_t value) { slots.push_back(value); });
  Publish(number, MakeSegment(slots, buckets));
}

void BlockTable::Mark(Bucket& bucket) {
  const uint32_t marks = ScanOf(bucket, 0).marks;
  if (marks == 0xff) return;
  std::atomic<uint64_t>& slot = bucket[std::countr_one(marks)];
  slot.store(slot.load(std::memory_order_relaxed) | kMark, std::memory_order_release);
}

void BlockTable::Unmark(Bucket& bucket) {
  const uint32_t marks = ScanOf(bucket, 0).marks;
  if (marks == 0xff) return;
  std::atomic<uint64_t>& slot = bucket[std::countr_zero(marks)];
  slot.store(slot.load(std::memory_order_relaxed) & ~kMark, std::memory_order_release);
}

void BlockTable::Erase(absl::Span<const uint64_t> hashes, uint32_t run, absl::Span<const uint8_t> offsets) {
  Probes probes(*this, hashes);
  for (size_t i = 0; i < hashes.size(); ++i) EraseAt(probes.Next(), hashes[i], {run, offsets[i]});
}

void BlockTable::EraseAt(const Probe& probe, uint64_t hash, const Place& place) {
  const uint64_t value = SlotFor(hash, place);
  for (Bucket* bucket = probe.home;; ++bucket) {
    uint32_t same = ScanOf(*bucket, TagFor(hash)).same;
    while (same != 0 && ((*bucket)[std::countr_zero(same)].load(std::memory_order_relaxed) & ~kMark) != value) {
      same &= same - 1;
    }
    if (same == 0) continue;
    std::atomic<uint64_t>& slot = (*bucket)[std::countr_zero(same)];
    slot.store(slot.load(std::memory_order_relaxed) & kMark, std::memory_order_release);
    for (Bucket* passed = probe.home; passed < bucket; ++passed) Unmark(*passed);
    break;
  }
  --size_;
  const uint64_t count = --counts_[probe.number];
  const uint64_t buckets = CountOf(SegmentAt(probe.number));
  if (buckets > 2 && count * 2 < buckets * kBucketSlots) Resize(probe.number);
}

void BlockTable::AddSegment(const std::vector<uint64_t>& kept, const std::vector<uint64_t>& moved) {
  const auto number = static_cast<uint32_t>(counts_.size());
  const uint32_t parent = ParentOf(number);
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
  directory->segments()[number].store(MakeSegment(moved, BucketsFor(moved.size())), std::memory_order_release);
  counts_.push_back(static_cast<uint32_t>(moved.size()));
  counts_[parent] = static_cast<uint32_t>(kept.size());
  directory->count.store(number + 1, std::memory_order_release);
  Publish(parent, MakeSegment(kept, BucketsFor(kept.size())));
}

void BlockTable::Fold() {
  const auto number = static_cast<uint32_t>(counts_.size()) - 1;
  const uint32_t parent = ParentOf(number);
  std::vector<uint64_t> joined;
  for (uint32_t each : {parent, number}) {
    ForEachIn(SegmentAt(each), [&](uint64_t value) { joined.push_back(value); });
  }
  Publish(parent, MakeSegment(joined, BucketsFor(joined.size())));
  Directory* const directory = directory_.load(std::memory_order_relaxed);
  directory->count.store(number, std::memory_order_release);
  Retire(directory->segments()[number].load(std::memory_order_relaxed));
  counts_.pop_back();
  counts_[parent] = static_cast<uint32_t>(joined.size());
}

bool BlockTable::CheckInvariants() const {
  size_t total = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    const Segment segment = SegmentAt(i);
    size_t count = 0;
    std::vector<uint32_t> passed(CountOf(segment) + kPadding, 0);
    for (uint64_t at = 0; at < passed.size(); ++at) {
      for (const std::atomic<uint64_t>& slot : BucketsOf(segment)[at]) {
        const uint64_t value = slot.load(std::memory_order_relaxed) & ~kMark;
        if (value == 0) continue;
        ++count;
        const uint64_t home = HomeOf(TagOf(value), CountOf(segment));
        if (home > at) return false;
        for (uint64_t each = home; each < at; ++each) ++passed[each];
      }
    }
    for (uint64_t at = 0; at < passed.size(); ++at) {
      const uint32_t marks = ScanOf(BucketsOf(segment)[at], 0).marks;
      if (marks != 0xff && static_cast<uint32_t>(std::popcount(marks)) != passed[at]) return false;
    }
    if (count != counts_[i]) return false;
    total += count;
  }
  return total == size_;
}

}  // namespace icache
