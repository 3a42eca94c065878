// Extents: memory for the segments of a BlockTable, a few to a few dozen KiB each, of sizes that change as it grows.
//
// An extent is a number of neighbouring units of a *chunk* of 2 MiB: the first stretch of them that is free, in the
// first chunk that has one. Chunks are the size of a huge page, which is what they are where the kernel has them, for a
// probe goes to any place of a large table and would wait for the address translation as long as for the memory. The
// first chunks are left in small pages, so that a small index stays small. A chunk that is empty goes back to the
// kernel, except for one that waits for the next extent; when little is left of what there was, so does all that no
// extent lies in.
//
// What an extent holds at first is not defined. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace icache {

class Extents {
 public:
  // A coarse unit leaves fewer holes that nothing fits into; what it adds to a segment the segment makes use of.
  static constexpr size_t kUnit = 2048;
  static constexpr size_t kMaxBytes = size_t{2} << 20;

  Extents() = default;
  ~Extents();
  Extents(const Extents&) = delete;
  Extents& operator=(const Extents&) = delete;

  // `bytes` is a multiple of kUnit up to kMaxBytes. What comes back is aligned to kUnit.
  void* Allocate(size_t bytes);
  // `bytes` as it was allocated.
  void Free(void* extent, size_t bytes);

 private:
  static constexpr uint32_t kUnits = kMaxBytes / kUnit;  // of a chunk
  static constexpr uint32_t kNone = 0xffffffff;

  struct Chunk {
    char* start = nullptr;
    uint32_t used = 0;       // units
    uint32_t most = kUnits;  // no stretch of free units is longer
    std::array<uint64_t, kUnits / 64> taken = {};

    // The first stretch of `units` free ones, or kNone.
    uint32_t Find(uint32_t units) const;
    void Set(uint32_t first, uint32_t units, bool taken_now);
  };

  void GiveBackEmpty(const Chunk& chunk);
  void AddRegion();
  uint32_t ChunkOf(const void* extent) const;

  std::vector<Chunk> chunks_;   // 32 to a region
  std::vector<char*> regions_;  // where each starts
  uint32_t spare_ = kNone;      // an empty chunk that has been in use
  size_t used_ = 0;             // units
  size_t peak_ = 0;             // most of used_ since all that was empty was given back
};

}  // namespace icache
