#include "load/latency_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace icache {

LatencyHistogram::LatencyHistogram() : buckets_(kBucketCount) {}

void LatencyHistogram::Record(int64_t value) {
  value = std::max<int64_t>(value, 0);
  ++buckets_[BucketOf(static_cast<uint64_t>(value))];
  ++count_;
  max_ = std::max(max_, value);
  sum_ += static_cast<double>(value);
}

void LatencyHistogram::Merge(const LatencyHistogram& other) {
  for (size_t i = 0; i < kBucketCount; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
  sum_ += other.sum_;
}

int64_t LatencyHistogram::Quantile(double quantile) const {
  const double wanted = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(count_));
  const auto rank = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, std::max<uint64_t>(count_, 1));
  uint64_t seen = 0;
  for (size_t bucket = 0; bucket < kBucketCount; ++bucket) {
    seen += buckets_[bucket];
    if (seen >= rank) return static_cast<int64_t>(std::min(UpperEnd(bucket), static_cast<uint64_t>(max_)));
  }
  return max_;
}

double LatencyHistogram::Mean() const { return count_ == 0 ? 0 : sum_ / static_cast<double>(count_); }

// Buckets come in groups of 128. Group 0 holds the values below 128 one by one; group g >= 1 those whose highest bit is
// 7 + (g - 1), told apart by the seven bits below it.
size_t LatencyHistogram::BucketOf(uint64_t value) {
  const int shift = std::max(static_cast<int>(std::bit_width(value)) - 1 - kPrecisionBits, 0);
  const size_t group = value < (1u << kPrecisionBits) ? 0 : static_cast<size_t>(shift) + 1;
  const size_t part = (value >> shift) & ((1u << kPrecisionBits) - 1);
  return (group << kPrecisionBits) + part;
}

uint64_t LatencyHistogram::UpperEnd(size_t bucket) {
  const size_t group = bucket >> kPrecisionBits;
  const uint64_t part = bucket & ((1u << kPrecisionBits) - 1);
  if (group == 0) return part;
  const int shift = static_cast<int>(group) - 1;
  return (((uint64_t{1} << kPrecisionBits) + part + 1) << shift) - 1;
}

}  // namespace icache
