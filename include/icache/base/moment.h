// Moment: a point in time on two clocks. What waits for time to pass counts on the steady one, which nobody sets; only
// what is written down for others to read goes by the wall clock.
#pragma once

#include "absl/time/time.h"

namespace icache {

// On the clock that nobody sets. Only differences mean something.
absl::Time SteadyNow();

struct Moment {
  absl::Time steady;
  absl::Time wall;  // Unix time, as the host has it; may step back

  static Moment Now();
};

}  // namespace icache
