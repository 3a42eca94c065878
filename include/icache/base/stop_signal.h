// StopSignal: tells threads that they are to end, also while they wait for time to pass.
#pragma once

#include <chrono>
#include <condition_variable>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"

namespace icache {

// Thread-safe.
class StopSignal {
 public:
  // For good. Idempotent.
  void Give() ABSL_LOCKS_EXCLUDED(mutex_) {
    {
      MutexLock lock(&mutex_);
      given_ = true;
    }
    changed_.notify_all();
  }

  bool IsGiven() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return given_;
  }

  // Waits until it is given, but not beyond `time`. Returns whether it is.
  bool AwaitUntil(std::chrono::steady_clock::time_point time) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    while (!given_ && changed_.wait_until(mutex_, time) != std::cv_status::timeout) {
    }
    return given_;
  }

 private:
  mutable Mutex mutex_;
  mutable std::condition_variable_any changed_;
  bool given_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace icache
