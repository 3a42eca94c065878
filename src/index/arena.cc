#include "index/arena.h"

#include <sys/mman.h>

#include <new>

namespace icache {
namespace {

constexpr size_t kRegionBytes = size_t{64} << 20;
// What an arena takes beyond this it takes in huge pages where the kernel has them, for lookups in a large index wait
// for address translation as much as for memory.
constexpr size_t kSmallBytes = size_t{4} << 20;

}  // namespace

Arena::~Arena() {
  for (std::atomic<char*>& region : regions_) {
    char* const start = region.load(std::memory_order_relaxed);
    if (start == nullptr) break;
    munmap(start, kRegionBytes);
  }
}

Arena::Ref Arena::Allocate(size_t bytes) {
  const uint32_t size_class = ClassOf(bytes);
  const uint32_t units = UnitsOf(size_class);
  uint32_t number = open_[size_class];
  if (number == kNone) number = OpenChunk(size_class);
  Chunk& chunk = chunks_[number];
  uint32_t unit;
  if (chunk.free != kNone) {
    unit = chunk.free;
    chunk.free = *NextFree(number, unit);
  } else {
    unit = chunk.fresh;
    chunk.fresh += units;
  }
  ++chunk.used;
  if (chunk.free == kNone && chunk.fresh + units > kChunkUnits) Unlink(number);
  bytes_ += units * kUnit;
  return number * kChunkUnits + unit;
}

void Arena::Free(Ref ref, size_t bytes) {
  const uint32_t number = ref / kChunkUnits;
  Chunk& chunk = chunks_[number];
  const uint32_t units = UnitsOf(ClassOf(bytes));
  bytes_ -= units * kUnit;
  const bool was_full = chunk.free == kNone && chunk.fresh + units > kChunkUnits;
  const uint32_t unit = ref % kChunkUnits;
  *NextFree(number, unit) = chunk.free;
  chunk.free = unit;
  if (was_full) Link(number);
  if (--chunk.used > 0) return;
  Unlink(number);
  kept_.push_back(number);
  while (kept_.size() > (bytes_ == 0 ? 0 : kKeptChunks)) {
    const uint32_t given = kept_.back();
    kept_.pop_back();
    madvise(At(given * kChunkUnits), kChunkUnits * kUnit, MADV_DONTNEED);
    chunks_[given].next = free_;
    free_ = given;
  }
  if (bytes_ > 0) return;
  // A huge page that came for one chunk brought memory of its neighbours, which may not have been in use since.
  for (std::atomic<char*>& region : regions_) {
    char* const start = region.load(std::memory_order_relaxed);
    if (start == nullptr) break;
    madvise(start, kRegionBytes, MADV_DONTNEED);
  }
}

uint32_t Arena::OpenChunk(uint32_t size_class) {
  uint32_t number = free_;
  if (!kept_.empty()) {
    number = kept_.back();
    kept_.pop_back();
  } else if (number != kNone) {
    free_ = chunks_[number].next;
  } else {
    number = static_cast<uint32_t>(chunks_.size());
    const size_t region = size_t{number} * kChunkUnits / kRegionUnits;
    if (region == regions_.size()) throw std::bad_alloc();
    if (number % (kRegionUnits / kChunkUnits) == 0) {  // the first of its region
      void* const start =
          mmap(nullptr, kRegionBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (start == MAP_FAILED) throw std::bad_alloc();
      const size_t small = region == 0 ? kSmallBytes : 0;
      madvise(static_cast<char*>(start) + small, kRegionBytes - small, MADV_HUGEPAGE);
      regions_[region].store(static_cast<char*>(start), std::memory_order_relaxed);
    }
    chunks_.emplace_back();
  }
  // Ref 0 is no record.
  chunks_[number] = {.size_class = size_class, .fresh = number == 0 ? 1u : 0u};
  Link(number);
  return number;
}

void Arena::Link(uint32_t number) {
  Chunk& chunk = chunks_[number];
  uint32_t& head = open_[chunk.size_class];
  chunk.previous = kNone;
  chunk.next = head;
  if (head != kNone) chunks_[head].previous = number;
  head = number;
}

void Arena::Unlink(uint32_t number) {
  const Chunk& chunk = chunks_[number];
  (chunk.previous == kNone ? open_[chunk.size_class] : chunks_[chunk.previous].next) = chunk.next;
  if (chunk.next != kNone) chunks_[chunk.next].previous = chunk.previous;
}

}  // namespace icache
