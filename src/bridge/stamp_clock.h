// StampClock: the times that what is said of one replica is stamped with, by the wall clock, whatever becomes of that.
//
// Entries, evictions and clears of one replica must not go back in time; and time goes on where the wall clock is set
// back, or leases would stand still until that has caught up.
//
// Pure. Thread-compatible. Source: contract/index.md
#pragma once

#include <algorithm>

#include "absl/time/time.h"
#include "icache/base/moment.h"

namespace icache {

class StampClock {
 public:
  // The latest stamp; infinite past before the first.
  absl::Time last() const { return last_; }
  // For what was so at `at`: that, or last() if it is later.
  absl::Time At(absl::Time at) { return last_ = std::max(last_, at); }
  absl::Time Now(Moment now) {
    now_ = {now.steady, std::max(now.wall, now_.wall + (now.steady - now_.steady))};
    return At(now_.wall);
  }
  // From now on no stamp is earlier than `floor`, and time goes on from there.
  void RaiseTo(absl::Time floor, Moment now) {
    if (floor <= last_) return;
    Now(now);
    now_.wall = std::max(now_.wall, floor);
    At(floor);
  }

 private:
  absl::Time last_ = absl::InfinitePast();
  Moment now_ = {absl::InfinitePast(), absl::InfinitePast()};  // when Now() was last asked, and what for
};

}  // namespace icache
