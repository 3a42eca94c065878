// `icache-load replay`.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "load/connection.h"
#include "load/replay.h"

namespace icache {

struct ReplayCommand {
  Target target;
  std::string trace_path;
  size_t max_requests = 0;  // 0 = the whole trace
  ReplayOptions options;
  std::string json_path;  // "-" is standard output, in place of the text; "" = none
  std::string plot_path;  // an SVG file; "" = none
};

// Plays the trace and prints the outcome. The target's tenant and model must be nobody else's: what others hold there
// would be part of the answers. The engines clear what they reported before this returns.
// Errors: those of the trace and of the daemon; FailedPrecondition when (tenant, model) is not empty.
absl::Status RunReplay(const ReplayCommand& command);

}  // namespace icache
