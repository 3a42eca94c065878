#include "index/extents.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <new>

namespace icache {
namespace {

constexpr size_t kChunkBytes = Extents::kMaxBytes;
constexpr size_t kRegionChunks = 32;
constexpr size_t kRegionBytes = kRegionChunks * kChunkBytes;
constexpr size_t kSmallChunks = 2;  // of the first region
constexpr size_t kLittleLeft = 16;  // all that is empty is given back when less than a 16th of the peak is left

}  // namespace

Extents::~Extents() {
  for (char* region : regions_) munmap(region, kRegionBytes);
}

uint32_t Extents::Chunk::Find(uint32_t units) const {
  uint32_t at = 0;
  while (at + units <= kUnits) {
    // To the next free unit, and from there to the next that is taken.
    const uint64_t free_here = ~taken[at / 64] >> (at % 64);
    if (free_here == 0) {
      at = (at / 64 + 1) * 64;
      continue;
    }
    at += static_cast<uint32_t>(std::countr_zero(free_here));
    uint32_t end = at;
    while (end < kUnits && end - at < units) {
      const uint64_t taken_here = taken[end / 64] >> (end % 64);
      if (taken_here != 0) {
        end += static_cast<uint32_t>(std::countr_zero(taken_here));
        break;
      }
      end = (end / 64 + 1) * 64;
    }
    if (end - at >= units) return at;
    at = end;
  }
  return kNone;
}

void Extents::Chunk::Set(uint32_t first, uint32_t units, bool taken_now) {
  for (uint32_t at = first; at < first + units;) {
    const uint32_t bits = std::min(64 - at % 64, first + units - at);
    const uint64_t mask = (~uint64_t{0} >> (64 - bits)) << (at % 64);
    taken[at / 64] = taken_now ? taken[at / 64] | mask : taken[at / 64] & ~mask;
    at += bits;
  }
}

void* Extents::Allocate(size_t bytes) {
  const auto units = static_cast<uint32_t>(bytes / kUnit);
  if (units > kUnits) throw std::bad_alloc();
  for (uint32_t number = 0;; ++number) {
    if (number == chunks_.size()) AddRegion();
    Chunk& chunk = chunks_[number];
    if (units > chunk.most) continue;
    const uint32_t first = chunk.Find(units);
    if (first == kNone) {
      chunk.most = units - 1;
      continue;
    }
    chunk.Set(first, units, true);
    chunk.used += units;
    used_ += units;
    peak_ = std::max(peak_, used_);
    if (number == spare_) spare_ = kNone;
    return chunk.start + size_t{first} * kUnit;
  }
}

void Extents::Free(void* extent, size_t bytes) {
  const auto units = static_cast<uint32_t>(bytes / kUnit);
  const uint32_t number = ChunkOf(extent);
  Chunk& chunk = chunks_[number];
  chunk.Set(static_cast<uint32_t>(static_cast<size_t>(static_cast<char*>(extent) - chunk.start) / kUnit), units, false);
  chunk.used -= units;
  chunk.most = kUnits;
  used_ -= units;
  if (chunk.used == 0) {
    if (spare_ != kNone) GiveBackEmpty(chunks_[spare_]);
    spare_ = number;
  }
  if (used_ * kLittleLeft >= peak_) return;
  for (const Chunk& each : chunks_) {
    if (each.used > 0) GiveBackEmpty(each);
  }
  if (spare_ != kNone) GiveBackEmpty(chunks_[spare_]);
  spare_ = kNone;
  peak_ = used_;
}

void Extents::GiveBackEmpty(const Chunk& chunk) {
  // By the 64 units of a word, which are whole pages.
  constexpr size_t kWordBytes = 64 * kUnit;
  for (size_t first = 0; first < chunk.taken.size();) {
    size_t end = first;
    while (end < chunk.taken.size() && chunk.taken[end] == 0) ++end;
    if (end > first) madvise(chunk.start + first * kWordBytes, (end - first) * kWordBytes, MADV_DONTNEED);
    first = end + 1;
  }
}

void Extents::AddRegion() {
  // The kernel gives a region of this size at a multiple of a small page only, so a chunk more is asked for.
  void* const mapped = mmap(nullptr, kRegionBytes + kChunkBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(mapped);
  const size_t before = (kChunkBytes - address % kChunkBytes) % kChunkBytes;
  char* const start = static_cast<char*>(mapped) + before;
  if (before > 0) munmap(mapped, before);
  munmap(start + kRegionBytes, kChunkBytes - before);
  const size_t small = regions_.empty() ? kSmallChunks * kChunkBytes : 0;
  madvise(start + small, kRegionBytes - small, MADV_HUGEPAGE);
  regions_.push_back(start);
  for (size_t i = 0; i < kRegionChunks; ++i) chunks_.push_back({.start = start + i * kChunkBytes});
}

uint32_t Extents::ChunkOf(const void* extent) const {
  const auto* const at = static_cast<const char*>(extent);
  for (size_t i = 0;; ++i) {
    assert(i < regions_.size());
    if (at < regions_[i] || at >= regions_[i] + kRegionBytes) continue;
    return static_cast<uint32_t>(i * kRegionChunks + static_cast<size_t>(at - regions_[i]) / kChunkBytes);
  }
}

}  // namespace icache
