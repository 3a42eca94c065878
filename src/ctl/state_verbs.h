// state and replicas: what the daemon knows of one tenant's model.
#pragma once

#include "absl/status/statusor.h"
#include "ctl/settings.h"

namespace icache {

// Prints the prefixes held and the stats reported. Returns whether there are any.
absl::StatusOr<bool> RunState(const Settings& settings);

// Prints the replicas present in the scope with their leases and signs of life. Returns whether there are any.
absl::StatusOr<bool> RunReplicas(const Settings& settings);

}  // namespace icache
