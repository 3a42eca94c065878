// FakeClock: a clock that stands still until a test moves it. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "absl/time/time.h"
#include "icache/base/clock.h"

namespace icache::testing {

class FakeClock final : public Clock {
 public:
  explicit FakeClock(absl::Time start = absl::FromUnixSeconds(1'700'000'000)) : now_us_(absl::ToUnixMicros(start)) {}

  absl::Time Now() const override { return absl::FromUnixMicros(now_us_.load(std::memory_order_relaxed)); }
  void Advance(absl::Duration by) { now_us_.fetch_add(absl::ToInt64Microseconds(by), std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_us_;
};

}  // namespace icache::testing
