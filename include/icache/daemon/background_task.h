// BackgroundTask: a thread that does something again and again, an interval apart.
#pragma once

#include <condition_variable>
#include <functional>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/base/mutex.h"

namespace icache {

// Thread-compatible.
class BackgroundTask {
 public:
  enum class Next { kRepeat, kEnd };

  // Starts the thread, called `name` (at most 15 bytes). It waits `interval`, runs `step`, and so on until the step
  // says kEnd or the task is stopped.
  BackgroundTask(const std::string& name, absl::Duration interval, std::function<Next()> step);
  // Stops: no step begins any more, one that runs is waited for.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

 private:
  void Run() ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether the interval passed without a stop.
  bool Wait() ABSL_LOCKS_EXCLUDED(mutex_);

  const absl::Duration interval_;
  const std::function<Next()> step_;
  Mutex mutex_;
  std::condition_variable_any stopped_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace icache
