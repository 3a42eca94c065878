// SegmentedMap: a hash map from keys to 32-bit ids that never rehashes much at once.
//
// One big open-addressing table stalls its users whenever it doubles. This is linear hashing over segments: many small
// tables, of which one splits when the map grows and the last folds back when it shrinks, so the longest stall is that
// of one segment. Not thread-safe for writers; any number of readers may share it between writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace icache {

// `Map` is an absl hash map to uint32_t.
template <typename Map>
class SegmentedMap {
 public:
  static constexpr uint32_t kNone = 0xffffffff;

  SegmentedMap() : segments_(1) {}

  template <typename Key>
  uint32_t Find(const Key& key) const {
    const size_t hash = HashOf(key);
    const Map& segment = segments_[SegmentOf(hash)];
    auto found = segment.find(key, hash);
    return found == segment.end() ? kNone : found->second;
  }

  // Requires: `key` is absent.
  template <typename Key>
  void Insert(const Key& key, uint32_t id) {
    segments_[SegmentOf(HashOf(key))].emplace(key, id);
    if (++size_ > kSegmentSize * segments_.size()) Split();
  }

  // Requires: `key` is present.
  template <typename Key>
  void Erase(const Key& key) {
    Map& segment = segments_[SegmentOf(HashOf(key))];
    segment.erase(segment.find(key));
    --size_;
    if (segments_.size() > 1 && size_ < kSegmentSize / 4 * segments_.size()) Fold();
    if (size_ == 0) segments_[0] = Map();
  }

  size_t size() const { return size_; }

  template <typename Visit>
  void ForEach(Visit visit) const {
    for (const Map& segment : segments_) {
      for (const auto& [key, id] : segment) visit(key, id);
    }
  }

 private:
  static constexpr size_t kSegmentSize = 8192;  // mean load at which the next segment is added

  template <typename Key>
  static size_t HashOf(const Key& key) {
    return typename Map::hasher()(key);
  }

  // Segments beyond base_ have split: keys find theirs by one more bit of the hash. The bits taken are ones that the
  // segment's own table does not lean on.
  size_t SegmentOf(size_t hash) const {
    const size_t bits = hash >> 40;
    const size_t wide = bits & (2 * base_ - 1);
    return wide < segments_.size() ? wide : bits & (base_ - 1);
  }

  void Split() {
    const size_t source = segments_.size() - base_;
    segments_.emplace_back();
    Map keep;
    Map& moved = segments_.back();
    for (auto& [key, id] : segments_[source]) {
      (SegmentOf(HashOf(key)) == source ? keep : moved).emplace(key, id);
    }
    segments_[source] = std::move(keep);
    if (segments_.size() == 2 * base_) base_ *= 2;
  }

  void Fold() {
    if (segments_.size() == base_) base_ /= 2;
    Map last = std::move(segments_.back());
    segments_.pop_back();
    Map& target = segments_[segments_.size() - base_];
    Map joined;
    joined.reserve(target.size() + last.size());
    for (auto& [key, id] : target) joined.emplace(key, id);
    for (auto& [key, id] : last) joined.emplace(key, id);
    target = std::move(joined);
  }

  std::vector<Map> segments_;
  size_t base_ = 1;  // the largest power of two <= segments_.size()
  size_t size_ = 0;
};

}  // namespace icache
