#include "icache/base/moment.h"

#include <chrono>

#include "absl/time/clock.h"

namespace icache {

absl::Time SteadyNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

Moment Moment::Now() { return {.steady = SteadyNow(), .wall = absl::Now()}; }

}  // namespace icache
