// policies: what is in force for a tenant, what files would put in force, and how the two differ.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/settings.h"

namespace icache {

// Prints the tenant's policy in force in the daemon. True.
absl::StatusOr<bool> RunPoliciesShow(const Settings& settings);

// Checks each path, a file or a folder, as a set of its own, with the daemon's code and without a daemon. Returns
// whether all are valid.
absl::StatusOr<bool> RunPoliciesValidate(const Settings& settings, const std::vector<std::string>& paths);

// Prints what differs between the sets at two paths, or, with one, between what the daemon has in force and that set,
// for the tenants that it names. Returns whether nothing does. Errors: InvalidArgument for a refused set.
absl::StatusOr<bool> RunPoliciesDiff(const Settings& settings, const std::vector<std::string>& paths);

}  // namespace icache
