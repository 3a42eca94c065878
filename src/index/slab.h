// Slab: numbered objects in chunks that never move, with a free list.
//
// Small numbers instead of pointers halve the size of links, and chunks keep growth from ever copying what is there.
// When the last object goes, all chunks are given back. Not thread-safe.
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace icache {

template <typename T>
class Slab {
 public:
  using Id = uint32_t;
  static constexpr Id kNone = 0xffffffff;

  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  // Requires: every object has been freed, or the owner does not care (T's destructors do not run).
  ~Slab() = default;

  // A new default-constructed object.
  Id Allocate() {
    Id id;
    if (free_ != kNone) {
      id = free_;
      free_ = CellAt(id).next_free;
    } else {
      if (next_ == chunks_.size() * kChunk) chunks_.push_back(std::make_unique<Cell[]>(kChunk));
      id = next_++;
    }
    new (&CellAt(id).object) T();
    ++live_;
    return id;
  }

  void Free(Id id) {
    Cell& cell = CellAt(id);
    cell.object.~T();
    cell.next_free = free_;
    free_ = id;
    if (--live_ == 0) {
      chunks_.clear();
      free_ = kNone;
      next_ = 0;
    }
  }

  T& operator[](Id id) { return CellAt(id).object; }
  const T& operator[](Id id) const { return CellAt(id).object; }

  size_t live() const { return live_; }

 private:
  static constexpr size_t kChunk = 1024;

  union Cell {
    Cell() {}   // NOLINT(modernize-use-equals-default): T's constructor must not run here
    ~Cell() {}  // NOLINT(modernize-use-equals-default)
    T object;
    Id next_free;
  };

  Cell& CellAt(Id id) {
    assert(id < next_);
    return chunks_[id / kChunk][id % kChunk];
  }
  const Cell& CellAt(Id id) const {
    assert(id < next_);
    return chunks_[id / kChunk][id % kChunk];
  }

  std::vector<std::unique_ptr<Cell[]>> chunks_;
  Id free_ = kNone;
  Id next_ = 0;  // cells from here on were never used
  size_t live_ = 0;
};

}  // namespace icache
