// QueueWaker: wakes a thread that waits for its completion queue.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"

namespace icache {

// Thread-safe; queues are attached and detached by the threads that wait for them, one queue at a time.
class QueueWaker {
 public:
  // `tag` comes out of a queue to wake its thread. It must not have been used for another operation.
  explicit QueueWaker(void* tag) : tag_(tag) {}
  // Requires that what was attached last has been emptied.
  ~QueueWaker() = default;
  QueueWaker(const QueueWaker&) = delete;
  QueueWaker& operator=(const QueueWaker&) = delete;

  // Requires that what was attached before has been emptied.
  void Attach(grpc::CompletionQueue* queue) ABSL_LOCKS_EXCLUDED(mutex_);
  // Wakes it no more. The tag may still be in the queue, or on its way: the queue must be shut down and emptied.
  void Detach() ABSL_LOCKS_EXCLUDED(mutex_);

  // Has the tag come out of the attached queue soon, once for any number of calls; nothing without a queue.
  void Wake() ABSL_LOCKS_EXCLUDED(mutex_);
  // The tag has come out of the attached queue.
  void OnWoken() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void* const tag_;
  Mutex mutex_;
  grpc::CompletionQueue* queue_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool pending_ ABSL_GUARDED_BY(mutex_) = false;
  // gRPC 1.51 uses an alarm's memory from a thread of its own until its tag has come out of the queue, even if it is
  // destroyed before: it must not be.
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
