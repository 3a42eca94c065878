#include "bridge/queue_waker.h"

#include <utility>

namespace icache {

void QueueWaker::Attach(grpc::CompletionQueue* queue) {
  MutexLock lock(&mutex_);
  queue_ = queue;
  pending_ = false;
}

void QueueWaker::Detach() {
  MutexLock lock(&mutex_);
  queue_ = nullptr;
}

void QueueWaker::Wake() {
  MutexLock lock(&mutex_);
  if (queue_ == nullptr || std::exchange(pending_, true)) return;
  alarm_.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC), tag_);
}

void QueueWaker::OnWoken() {
  MutexLock lock(&mutex_);
  pending_ = false;
}

}  // namespace icache
