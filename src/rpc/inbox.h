// Inbox: functions of other threads that a queue's thread is to run.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "rpc/completion.h"

namespace icache {

// An alarm without delay brings them there. Thread-safe.
class Inbox final : public Completion {
 public:
  // `queue` is not owned.
  explicit Inbox(grpc::CompletionQueue* queue) : queue_(queue) {}

  // Requires that the queue has not been shut down.
  void Post(std::function<void()> function) ABSL_LOCKS_EXCLUDED(mutex_);
  void OnCompletion(bool ok) override ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  grpc::CompletionQueue* const queue_;
  Mutex mutex_;
  std::vector<std::function<void()>> functions_ ABSL_GUARDED_BY(mutex_);  // not empty while the alarm is set
  grpc::Alarm alarm_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
