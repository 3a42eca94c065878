// Numbers as the reports print them.
#pragma once

#include <cstdint>
#include <string>

#include "load/latency_histogram.h"

namespace icache {

// 1234567 -> "1,234,567".
std::string WithCommas(int64_t number);

// A histogram of nanoseconds as "p50 101 µs, p90 140 µs, p99 203 µs, p99.9 411 µs, max 1,203 µs".
std::string FormatLatencies(const LatencyHistogram& nanoseconds);

}  // namespace icache
