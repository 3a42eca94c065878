#include "icache/daemon/background_task.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace icache {
namespace {

constexpr absl::Duration kLongest = absl::Hours(24 * 365);  // short enough for every clock to count

}  // namespace

BackgroundTask::BackgroundTask(const std::string& name, absl::Duration interval, std::function<Next()> step)
    : interval_(std::min(interval, kLongest)), step_(std::move(step)), thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), name.c_str());
}

BackgroundTask::~BackgroundTask() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

void BackgroundTask::Run() {
  while (Wait() && step_() == Next::kRepeat) {
  }
}

bool BackgroundTask::Wait() {
  const auto wake_at = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(interval_);
  MutexLock lock(&mutex_);
  while (!stopping_) {
    if (stopped_.wait_until(mutex_, wake_at) == std::cv_status::timeout) return !stopping_;
  }
  return false;
}

}  // namespace icache
