// Access files: YAML documents, one grant each -> one set of AccessRules. docs/security.md has the fields.
//
// A set is whole or refused, with every problem as `file:line:column: message`. The files hold secrets: messages never
// quote them. Free functions without state; nothing throws.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "icache/access/access_rules.h"
#include "icache/config/file_set.h"

namespace icache {

inline constexpr size_t kMinTokenBytes = 16;
inline constexpr size_t kMaxTokenBytes = 4096;
inline constexpr size_t kMaxGrantNameBytes = 512;  // of a grant, a tenant or a certificate

// Whether any listener asks clients for certificates. Where none does, a grant to a certificate is a mistake: it would
// say that somebody may call who never can.
enum class ClientCertificates { kNotAskedFor, kAskedFor };

// The rules that `files` make together; never null.
absl::StatusOr<std::shared_ptr<const AccessRules>> ParseAccess(absl::Span<const TextFile> files,
                                                               ClientCertificates certificates);

// Reads the files at `path` (file_set.h), then parses them. Null for "": everybody may do everything.
absl::StatusOr<std::shared_ptr<const AccessRules>> LoadAccess(const std::string& path, ClientCertificates certificates);

}  // namespace icache
