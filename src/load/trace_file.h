// A whole request trace: the lines of load/trace_line.h, in the order of their timestamps.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "load/trace_line.h"

namespace icache {

// The first `max_requests` requests of the file, or all of them when it has fewer (0 = all).
// Errors: NotFound when the file cannot be opened; InvalidArgument as "FILE:LINE:COLUMN: what" for a bad line, for one
// whose timestamp is earlier than the line before, and for a file without a request; DataLoss when reading fails.
absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t max_requests);

}  // namespace icache
