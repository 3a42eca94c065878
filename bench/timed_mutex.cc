#include "bench/timed_mutex.h"

#include <pthread.h>

#include <atomic>

#include "bench/measure.h"
#include "icache/base/mutex.h"

namespace icache {
namespace {

std::atomic<int64_t> longest_hold{0};
// Of this thread: how many it holds, and since when the first of them.
thread_local int held_count = 0;
thread_local int64_t held_since = 0;

}  // namespace

SharedMutex::SharedMutex() { pthread_rwlock_init(&lock_, nullptr); }
SharedMutex::~SharedMutex() { pthread_rwlock_destroy(&lock_); }

void SharedMutex::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  writers_.lock();
  pthread_rwlock_wrlock(&lock_);
  if (held_count++ == 0) held_since = bench::CpuNanos();
}

void SharedMutex::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  const int64_t held = bench::CpuNanos() - held_since;
  int64_t longest = longest_hold.load(std::memory_order_relaxed);
  while (held > longest && !longest_hold.compare_exchange_weak(longest, held, std::memory_order_relaxed)) {
  }
  --held_count;
  pthread_rwlock_unlock(&lock_);
  writers_.unlock();
}

void SharedMutex::ReaderLock() ABSL_NO_THREAD_SAFETY_ANALYSIS { pthread_rwlock_rdlock(&lock_); }
void SharedMutex::ReaderUnlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { pthread_rwlock_unlock(&lock_); }

namespace bench {

int64_t TakeLongestHold() { return longest_hold.exchange(0, std::memory_order_relaxed); }

}  // namespace bench
}  // namespace icache
