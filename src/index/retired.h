// Retired: memory that the writer has let go of while readers may still be looking at it.
//
// Readers hold the shard's lock shared for as long as they look. Whoever has held it exclusively for an instant since
// something was retired knows that nobody sees it any more, and may call Free(). Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>
#include <vector>

#include "index/arena.h"
#include "index/extents.h"

namespace icache {

class Retired {
 public:
  Retired(Arena* arena, Extents* extents) : arena_(*arena), extents_(*extents) {}
  ~Retired() { Free(); }
  Retired(const Retired&) = delete;
  Retired& operator=(const Retired&) = delete;

  // What std::malloc gave.
  void Add(void* block, size_t bytes) {
    blocks_.push_back(block);
    bytes_ += bytes;
  }
  void Add(Arena::Ref record, size_t bytes) {
    records_.emplace_back(record, static_cast<uint32_t>(bytes));
    record_bytes_ += Arena::Rounded(bytes);
    bytes_ += bytes;
  }
  void AddExtent(void* extent, size_t bytes) {
    retired_extents_.emplace_back(extent, bytes);
    bytes_ += bytes;
  }
  void Free() {
    for (void* block : blocks_) std::free(block);
    for (const auto& [extent, bytes] : retired_extents_) extents_.Free(extent, bytes);
    for (const auto& [record, bytes] : records_) arena_.Free(record, bytes);
    blocks_.clear();
    records_.clear();
    retired_extents_.clear();
    bytes_ = record_bytes_ = 0;
  }

  size_t bytes() const { return bytes_; }
  // Of records alone, rounded.
  size_t record_bytes() const { return record_bytes_; }

 private:
  Arena& arena_;
  Extents& extents_;
  std::vector<void*> blocks_;
  std::vector<std::pair<void*, size_t>> retired_extents_;
  std::vector<std::pair<Arena::Ref, uint32_t>> records_;
  size_t bytes_ = 0;
  size_t record_bytes_ = 0;
};

}  // namespace icache
