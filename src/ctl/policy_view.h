// Policies as operators see them: every field with its value, wherever the policy comes from.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "icache/policy/cache_policy.h"
#include "inferencecache/ops/v1alpha1/ops.pb.h"

namespace icache {

// A field by its name in policy files, and its value.
using PolicyField = std::pair<std::string, std::string>;

// All fields, in the order of the manifest. A TTL of 0 reads "the daemon's default".
std::vector<PolicyField> FieldsOf(const inferencecache::ops::v1alpha1::Policy& policy);

// What decides most lookups, in one line.
std::string PolicySummary(const inferencecache::ops::v1alpha1::Policy& policy);

// The tenant's policy in `set`, as the daemon would tell it but for the default TTL, which is 0 here.
inferencecache::ops::v1alpha1::Policy PolicyIn(const PolicySet& set, std::string_view tenant_id);

}  // namespace icache
