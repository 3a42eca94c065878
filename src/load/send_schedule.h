// SendSchedule: when each call of an open loop is meant to be sent.
//
// Call i belongs at start + i / rate, whether or not the calls before it have been answered. A latency that is counted
// from there includes the time that a call spent waiting behind slow ones, which a loop that sends the next call after
// the last answer would leave out. Immutable.
#pragma once

#include <cstdint>

namespace icache {

class SendSchedule {
 public:
  // `rate` calls a second, > 0: first `warm_up` calls that do not count, then `measured` that do.
  SendSchedule(double rate, int64_t start_ns, uint64_t warm_up, uint64_t measured)
      : nanos_per_call_(1e9 / rate), start_ns_(start_ns), warm_up_(warm_up), measured_(measured) {}

  uint64_t size() const { return warm_up_ + measured_; }
  bool IsMeasured(uint64_t call) const { return call >= warm_up_; }
  // Requires: call <= size(). At size() it is the end of the schedule.
  int64_t TimeOf(uint64_t call) const {
    return start_ns_ + static_cast<int64_t>(nanos_per_call_ * static_cast<double>(call));
  }

 private:
  const double nanos_per_call_;
  const int64_t start_ns_;
  const uint64_t warm_up_;
  const uint64_t measured_;
};

}  // namespace icache
