// Arena: numbered records of mixed sizes.
//
// A record is named by a Ref of 32 bits, half a pointer, and never moves. Space comes in regions of address space that
// the kernel backs page by page; a region is cut into chunks, each of one size class, and a chunk whose last record
// goes is given back to the kernel, but for a few that are kept for the next. Sizes are rounded up to units of 16
// bytes, beyond 640 bytes to 64.
//
// Not thread-safe but for At(), which any thread may call for a record that it knows to be allocated.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace icache {

class Arena {
 public:
  using Ref = uint32_t;
  static constexpr Ref kNull = 0;  // no record
  static constexpr size_t kMaxBytes = 4096;

  Arena() = default;
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // A record of `bytes` uninitialized bytes, aligned to 16; 1 <= bytes <= kMaxBytes.
  Ref Allocate(size_t bytes);
  // `bytes` as it was allocated.
  void Free(Ref ref, size_t bytes);

  char* At(Ref ref) const {
    return regions_[ref >> kRegionBits].load(std::memory_order_relaxed) + size_t{ref & (kRegionUnits - 1)} * kUnit;
  }

  // What a record of `bytes` takes.
  static size_t Rounded(size_t bytes) { return UnitsOf(ClassOf(bytes)) * kUnit; }
  // Of all records, rounded.
  size_t bytes() const { return bytes_; }

 private:
  static constexpr size_t kUnit = 16;
  static constexpr uint32_t kRegionBits = 22;  // 64 MiB of units
  static constexpr uint32_t kRegionUnits = 1u << kRegionBits;
  static constexpr uint32_t kChunkUnits = 4096;
  static constexpr uint32_t kFineUnits = 40;  // up to here every number of units is a class
  static constexpr uint32_t kCoarseUnits = 4;
  static constexpr uint32_t kClasses = kFineUnits + (kMaxBytes / kUnit - kFineUnits) / kCoarseUnits + 1;
  static constexpr size_t kKeptChunks = 4;
  static constexpr uint32_t kNone = 0xffffffff;

  struct Chunk {
    uint32_t size_class = 0;
    uint32_t used = 0;          // records
    uint32_t fresh = 0;         // units from here on were never used
    uint32_t free = kNone;      // first free record, each of which holds the next; units from the chunk's start
    uint32_t previous = kNone;  // among the chunks of the class that have room
    uint32_t next = kNone;      // the same, or the next free chunk
  };

  static uint32_t ClassOf(size_t bytes) {
    const auto units = static_cast<uint32_t>((bytes + kUnit - 1) / kUnit);
    return units <= kFineUnits ? units : kFineUnits + (units - kFineUnits + kCoarseUnits - 1) / kCoarseUnits;
  }
  static uint32_t UnitsOf(uint32_t size_class) {
    return size_class <= kFineUnits ? size_class : kFineUnits + (size_class - kFineUnits) * kCoarseUnits;
  }

  uint32_t OpenChunk(uint32_t size_class);
  void Link(uint32_t chunk);
  void Unlink(uint32_t chunk);
  uint32_t* NextFree(uint32_t chunk, uint32_t unit) const {
    return reinterpret_cast<uint32_t*>(At(chunk * kChunkUnits + unit));
  }

  std::array<std::atomic<char*>, 1u << (32 - kRegionBits)> regions_ = {};
  std::vector<Chunk> chunks_;
  std::array<uint32_t, kClasses> open_ = [] {
    std::array<uint32_t, kClasses> none;
    none.fill(kNone);
    return none;
  }();                          // by class: a chunk that has room
  std::vector<uint32_t> kept_;  // chunks without records, kept
  uint32_t free_ = kNone;       // those given back
  size_t bytes_ = 0;
};

}  // namespace icache
