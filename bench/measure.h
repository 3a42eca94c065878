// What benches measure by.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <ctime>
#include <fstream>

namespace icache::bench {

inline int64_t NanosBy(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}
inline int64_t WallNanos() { return NanosBy(CLOCK_MONOTONIC); }
// Of this thread.
inline int64_t CpuNanos() { return NanosBy(CLOCK_THREAD_CPUTIME_ID); }
inline double CpuSeconds() { return 1e-9 * static_cast<double>(CpuNanos()); }

// Of this process.
inline int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace icache::bench
