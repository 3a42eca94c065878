// report, evict and clear: observations by hand.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/settings.h"

namespace icache {

// Sends the updates in `input` (argument.h), one JSON object a line in the shape of CacheStateUpdate, on one stream.
// Names that a line leaves out come from the settings. Everything is read before anything is sent. Returns whether the
// daemon accepted. Errors: InvalidArgument as `line N: path: what`.
absl::StatusOr<bool> RunReport(const Settings& settings, const std::string& input);

// Tells the daemon that `replica` no longer holds `hashes` (argument.h), under any scheme.
absl::StatusOr<bool> RunEvict(const Settings& settings, const std::string& replica, const std::string& hashes);

// Tells the daemon that `replica` holds nothing any more for the tenant's model.
absl::StatusOr<bool> RunClear(const Settings& settings, const std::string& replica);

}  // namespace icache
