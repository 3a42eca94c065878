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
  stop_.Give();
  thread_.join();
}

void BackgroundTask::Run() {
  const auto interval = absl::ToChronoNanoseconds(interval_);
  while (!stop_.AwaitUntil(std::chrono::steady_clock::now() + interval) && step_() == Next::kRepeat) {
  }
}

}  // namespace icache
