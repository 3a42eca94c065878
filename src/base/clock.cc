#include "icache/base/clock.h"

#include "absl/time/clock.h"

namespace icache {
namespace {

class SystemClock final : public Clock {
 public:
  absl::Time Now() const override { return absl::Now(); }
};

}  // namespace

const Clock* Clock::System() {
  static const SystemClock* const clock = new SystemClock;
  return clock;
}

}  // namespace icache
