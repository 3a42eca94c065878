// `icache-load demo`: a tour of the hints. Three replicas report a few real chains, a handful of questions are asked,
// and each is printed beside its answer.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "load/connection.h"

namespace icache {

struct DemoOptions {
  Target target{.tenant = "demo", .model = "demo-model"};
  std::string trace_path;   // its first two requests are used; they must have 4 hash_ids at least
  int32_t block_size = 16;  // tokens, >= 1; the question with token ids needs it to be the daemon's
};

// Prints the tour to standard output. What was reported is cleared in the end.
// Errors: those of the trace and of the daemon; FailedPrecondition when no answer was a PREFIX_MATCH.
absl::Status RunDemo(const DemoOptions& options);

}  // namespace icache
