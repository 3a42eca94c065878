// watch: the daemon's stream of cache events, as it comes.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ctl/settings.h"

namespace icache {

// Prints every event until SIGINT or SIGTERM, or for `duration`: as a line, as JSON on a line of its own, or as a YAML
// document. `types` are names of CacheEvent.Type, empty = all; tenant and model of the settings narrow it down. True.
// Errors: InvalidArgument for an unknown type; those of the stream when the daemon ends it.
absl::StatusOr<bool> RunWatch(const Settings& settings, const std::vector<std::string>& types, absl::Duration duration);

}  // namespace icache
