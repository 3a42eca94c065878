// How the programs that run until they are told to end come to their end.
#pragma once

#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "icache/daemon/background_task.h"
#include "icache/telemetry/logging.h"

namespace icache {

// Says on standard error why `program` does not start. Returns the exit status: 2 for what somebody must put right in
// flags, config or policies first, 1 for all else.
int FailToStart(std::string_view program, const absl::Status& why);

// How long what is under way may take when a program is told to end.
inline constexpr absl::Duration kShutdownGrace = absl::Seconds(4);

// Ends the process with status 0 when its end takes so long that a supervisor may kill it. Thread-compatible.
class ShutdownDeadline {
 public:
  // `logger` is not owned and must outlive it.
  explicit ShutdownDeadline(Logger* logger) : logger_(logger) {}
  // The end begins now. What is left of it half a second after kShutdownGrace is not worth waiting for: memory to be
  // freed, calls that a client has piled up, a scrape under way.
  void Begin();

 private:
  Logger* const logger_;
  std::optional<BackgroundTask> task_;
};

}  // namespace icache
