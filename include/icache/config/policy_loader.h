// Policy files: YAML manifests of CachePolicy and CacheTenant -> one PolicySet. Source: contract/policy.md.
//
// A set is whole or refused: every problem of every file is gathered as `file:line:column: field: message`, one per
// line, into one InvalidArgument status. Free functions without state; nothing throws.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "icache/config/file_set.h"
#include "icache/policy/cache_policy.h"

namespace icache {

// The set that `files` make together; never null.
absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(absl::Span<const TextFile> files);
// Likewise for one text, which messages call `file_name`.
absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(std::string_view text, std::string_view file_name);

// ReadFileSet, then ParsePolicies. "" = the empty set.
absl::StatusOr<std::shared_ptr<const PolicySet>> LoadPolicies(const std::string& path);

}  // namespace icache
