// BackgroundTask: a thread that does something again and again, an interval apart.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "icache/base/stop_signal.h"

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
  void Run();

  const absl::Duration interval_;
  const std::function<Next()> step_;
  StopSignal stop_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace icache
