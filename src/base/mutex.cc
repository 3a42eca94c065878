#include "icache/base/mutex.h"

namespace icache {

SharedMutex::SharedMutex() {
  pthread_rwlockattr_t attributes;
  pthread_rwlockattr_init(&attributes);
  pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  pthread_rwlock_init(&lock_, &attributes);
  pthread_rwlockattr_destroy(&attributes);
}

SharedMutex::~SharedMutex() { pthread_rwlock_destroy(&lock_); }

void SharedMutex::Lock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  writers_.lock();
  pthread_rwlock_wrlock(&lock_);
}

void SharedMutex::Unlock() ABSL_NO_THREAD_SAFETY_ANALYSIS {
  pthread_rwlock_unlock(&lock_);
  writers_.unlock();
}

void SharedMutex::ReaderLock() ABSL_NO_THREAD_SAFETY_ANALYSIS { pthread_rwlock_rdlock(&lock_); }

void SharedMutex::ReaderUnlock() ABSL_NO_THREAD_SAFETY_ANALYSIS { pthread_rwlock_unlock(&lock_); }

}  // namespace icache
