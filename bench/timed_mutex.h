// How long lookups can be kept out. timed_mutex.cc defines SharedMutex once more, timing it; a program that links it
// gets that one instead of base's.
#pragma once

#include <cstdint>

namespace icache::bench {

// The longest that any SharedMutex was held exclusively since the last call, in nanoseconds of the holder's CPU time,
// so that neither waiting for a lock nor other programs count. Thread-safe.
int64_t TakeLongestHold();

}  // namespace icache::bench
