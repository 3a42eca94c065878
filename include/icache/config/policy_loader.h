// Policy files: YAML manifests of CachePolicy and CacheTenant -> one PolicySet. Source: contract/policy.md.
//
// A set is whole or refused: every problem of every file is gathered as `file:line:column: field: message`, one per
// line, into one InvalidArgument status. Free functions without state; nothing throws.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "icache/policy/cache_policy.h"

namespace icache {

inline constexpr size_t kMaxPolicyFiles = 10'000;    // of one folder
inline constexpr size_t kMaxPolicyBytes = 16 << 20;  // of all files together

// One policy file as it was read.
struct PolicyFile {
  std::string path;  // for messages
  std::string text;

  friend bool operator==(const PolicyFile& a, const PolicyFile& b) = default;
};

// Reads the file at `path`, or the files named *.yaml and *.yml of the folder there, in bytewise order of their names.
// Links are followed; hidden entries, other names and what lies in folders below are left out. No files for "".
absl::StatusOr<std::vector<PolicyFile>> ReadPolicyFiles(const std::string& path);

// The set that `files` make together; never null.
absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(absl::Span<const PolicyFile> files);
// Likewise for one text, which messages call `file_name`.
absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(std::string_view text, std::string_view file_name);

// ReadPolicyFiles, then ParsePolicies.
absl::StatusOr<std::shared_ptr<const PolicySet>> LoadPolicies(const std::string& path);

}  // namespace icache
