#include "icache/daemon/ending.h"

#include <unistd.h>

#include <cstdio>
#include <string>

namespace icache {

int FailToStart(std::string_view program, const absl::Status& why) {
  fprintf(stderr, "%s: %s\n", std::string(program).c_str(), std::string(why.message()).c_str());
  return absl::IsInvalidArgument(why) ? 2 : 1;
}

void ShutdownDeadline::Begin() {
  task_.emplace("deadline", kShutdownGrace + absl::Milliseconds(500), [this]() -> BackgroundTask::Next {
    logger_->Warn("shutdown_cut_short");
    _exit(0);
  });
}

}  // namespace icache
