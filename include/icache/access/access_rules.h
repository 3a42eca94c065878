// Access rules: who may call what, and for whom.
//
// A grant gives those who show one of its tokens, or a certificate with one of its names, some roles, for some tenants
// or all. A caller with a token is what the token makes it, whatever its certificate says. A caller with a certificate
// alone has all grants that any of the certificate's names are in.
//
// Tokens are kept as digests under a key that nobody knows (HMAC-SHA-256). One is looked for by its digest, of whose
// bytes a caller can guess nothing from the time it takes, and the digests are then compared in constant time.
//
//   const std::shared_ptr<const AccessRules> rules = …;
//   absl::StatusOr<Caller> caller = Caller::Identify(*rules, {.authorization = "Bearer …"});
//   if (caller.ok()) caller->May(Role::kLookup, tenant_id);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "icache/base/string_map.h"

namespace icache {

// What a caller may do. None includes another.
enum class Role : uint8_t {
  kLookup,   // ask: lookups, RenderTemplate, GetCacheState
  kObserve,  // report: ReportCacheState, PublishEvent
  kAdmin,    // watch and explain: observer streams, operators' calls, the HTTP paths that are not for all
};
inline constexpr size_t kRoleCount = 3;

// "lookup", "observe" or "admin".
std::string_view RoleName(Role role);

struct Grant {
  std::string name;                      // for people
  std::array<bool, kRoleCount> roles{};  // by Role
  std::vector<std::string> tenants;      // sorted; empty = all, and what concerns no single tenant
};

// Immutable once built; then thread-safe.
class AccessRules {
 public:
  AccessRules();

  // Returns the grant's number.
  size_t AddGrant(Grant grant);
  // Makes it `grant`'s. False, changing nothing, when it is some grant's already.
  bool AddToken(std::string_view token, size_t grant);
  bool AddCertificateName(std::string_view name, size_t grant);

  // Null when nobody has it. Valid as long as the rules.
  const Grant* OfToken(std::string_view token) const;
  const Grant* OfCertificateName(std::string_view name) const;

  size_t grant_count() const { return grants_.size(); }

 private:
  using Digest = std::array<unsigned char, 32>;  // HMAC-SHA-256
  struct Token {
    Digest digest;
    size_t grant;
  };

  Digest DigestOf(std::string_view token) const;

  std::array<unsigned char, 32> key_;  // random
  std::vector<Grant> grants_;
  absl::flat_hash_map<uint64_t, Token> tokens_;  // by the first 8 bytes of the digest
  StringMap<size_t> certificate_names_;
};

// What a caller shows of itself.
struct Credentials {
  std::string_view authorization;                        // the header's value; "" = none
  absl::Span<const std::string_view> certificate_names;  // of a certificate that has been verified
};

// Somebody who has been recognised. The rules must outlive it.
class Caller {
 public:
  // Unauthenticated when the rules know neither the token nor, without one, any of the names.
  static absl::StatusOr<Caller> Identify(const AccessRules& rules, const Credentials& credentials);

  // PermissionDenied, with what is missing, unless a grant has the role,
  absl::Status May(Role role) const;
  // … for this tenant,
  absl::Status May(Role role, std::string_view tenant_id) const;
  // … for all tenants.
  absl::Status MayForAll(Role role) const;

 private:
  Caller() = default;

  absl::InlinedVector<const Grant*, 2> grants_;
};

}  // namespace icache
