// Files read whole, within a bound.
#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace icache {

// The bytes of the regular file at `path`, links followed. Errors, whose messages leave out the path: InvalidArgument
// when it cannot be read or is no regular file (a pipe would block), ResourceExhausted beyond `max_bytes`.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

}  // namespace icache
