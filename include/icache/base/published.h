// Published: a value that is replaced whole while others read it.
//
// A reader takes what is in force once and keeps it for as long as it needs one consistent view.
#pragma once

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"

namespace icache {

// Thread-safe.
template <typename T>
class Published {
 public:
  // Null before the first Publish().
  std::shared_ptr<const T> Current() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return current_;
  }

  // Replaces the value in force.
  void Publish(std::shared_ptr<const T> value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    current_.swap(value);
    // The old one, now in `value`, dies after the lock.
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const T> current_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
