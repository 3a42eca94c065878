// The clock that durations are measured with: nanoseconds since some fixed moment, never set back.
#pragma once

#include <chrono>
#include <cstdint>

namespace icache {

inline int64_t SteadyNanos() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace icache
