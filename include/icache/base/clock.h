// Clock: where every part of the project takes the time from, so that tests can move it by hand.
#pragma once

#include "absl/time/time.h"

namespace icache {

class Clock {
 public:
  virtual ~Clock() = default;
  // Unix time. May step back when the host's clock is set; callers treat a negative age as zero. Thread-safe.
  virtual absl::Time Now() const = 0;

  // The host's clock; never destroyed.
  static const Clock* System();
};

}  // namespace icache
