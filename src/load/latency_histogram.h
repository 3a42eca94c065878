// LatencyHistogram: percentiles of any number of values in a fixed 60 KB, off by less than 1 %.
//
// Buckets are exact below 128 and otherwise split each power of two into 128 equal parts, so the width of a bucket is
// at most 1/128 of the values in it. Thread-compatible: give each thread its own and Merge().
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace icache {

class LatencyHistogram {
 public:
  LatencyHistogram();

  // Negative values count as 0.
  void Record(int64_t value);
  void Merge(const LatencyHistogram& other);

  // A value v such that at least `quantile` of the recorded values are <= v: the upper end of the bucket that the exact
  // answer (the value of rank ceil(quantile * count), and at least 1) falls into, and never more than max(). 0 when
  // nothing was recorded. `quantile` is clamped to [0, 1].
  int64_t Quantile(double quantile) const;

  uint64_t count() const { return count_; }
  int64_t max() const { return max_; }
  double Mean() const;  // exact; 0 when nothing was recorded

 private:
  static constexpr int kPrecisionBits = 7;
  static constexpr size_t kBucketCount = (64 - kPrecisionBits) << kPrecisionBits;

  static size_t BucketOf(uint64_t value);
  static uint64_t UpperEnd(size_t bucket);

  std::vector<uint64_t> buckets_;  // kBucketCount of them
  uint64_t count_ = 0;
  int64_t max_ = 0;
  double sum_ = 0;
};

}  // namespace icache
