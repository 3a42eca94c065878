// Published: a value that is replaced whole while others read it.
//
// A reader takes what is in force once and keeps it for as long as it needs one consistent view. Who reads often has a
// Reader of its own, and then meets no other thread at it unless the value has been replaced.
#pragma once

#include <atomic>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"

namespace icache {

// Thread-safe.
template <typename T>
class Published {
 public:
  // Keeps what it has read, also beyond the end of its publisher, until it reads another. For one thread at a time.
  class Reader {
   public:
    // Like published.Current(); valid until the next call. It need not be the same publisher at each call.
    const T* Current(const Published& published) {
      // What is held here lives, so a value at the same address is the same value.
      if (published.latest_.load(std::memory_order_relaxed) != value_.get()) value_ = published.Current();
      return value_.get();
    }

   private:
    std::shared_ptr<const T> value_;
  };

  // Null before the first Publish().
  std::shared_ptr<const T> Current() const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return current_;
  }

  // Replaces the value in force.
  void Publish(std::shared_ptr<const T> value) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    current_.swap(value);
    latest_.store(current_.get(), std::memory_order_relaxed);
    // The old one, now in `value`, dies after the lock.
  }

 private:
  mutable Mutex mutex_;
  std::shared_ptr<const T> current_ ABSL_GUARDED_BY(mutex_);
  // The address of current_, written with it. Relaxed: it is only compared, the value is reached through current_.
  std::atomic<const T*> latest_ = nullptr;
};

}  // namespace icache
