#include "icache/access/access_rules.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace icache {
namespace {

constexpr std::string_view kScheme = "bearer ";

uint64_t KeyOf(const std::array<unsigned char, 32>& digest) {
  uint64_t key = 0;
  memcpy(&key, digest.data(), sizeof(key));
  return key;
}

// The token in an Authorization header, whose scheme is written in any case; "" when it is of another scheme.
std::string_view TokenOf(std::string_view authorization) {
  if (authorization.size() < kScheme.size()) return {};
  const bool bearer = std::equal(kScheme.begin(), kScheme.end(), authorization.begin(), [](char expected, char actual) {
    return expected == (actual >= 'A' && actual <= 'Z' ? static_cast<char>(actual - 'A' + 'a') : actual);
  });
  if (!bearer) return {};
  authorization.remove_prefix(kScheme.size());
  const size_t begin = std::min(authorization.find_first_not_of(' '), authorization.size());
  return authorization.substr(begin, authorization.find_last_not_of(' ') + 1 - begin);
}

bool IsFor(const Grant& grant, std::string_view tenant_id) {
  return grant.tenants.empty() || std::binary_search(grant.tenants.begin(), grant.tenants.end(), tenant_id);
}

absl::Status NotGranted(Role role) {
  const std::string_view name = RoleName(role);
  return absl::PermissionDeniedError("the role " + std::string(name) + " is needed");
}

}  // namespace

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kLookup:
      return "lookup";
    case Role::kObserve:
      return "observe";
    case Role::kAdmin:
      return "admin";
  }
  return "";
}

AccessRules::AccessRules() {
  // Only a machine without a source of randomness gets here: it could keep no secret.
  if (RAND_bytes(key_.data(), static_cast<int>(key_.size())) != 1) std::abort();
}

size_t AccessRules::AddGrant(Grant grant) {
  std::sort(grant.tenants.begin(), grant.tenants.end());
  grants_.push_back(std::move(grant));
  return grants_.size() - 1;
}

bool AccessRules::AddToken(std::string_view token, size_t grant) {
  const Digest digest = DigestOf(token);
  return tokens_.try_emplace(KeyOf(digest), Token{digest, grant}).second;
}

bool AccessRules::AddCertificateName(std::string_view name, size_t grant) {
  return certificate_names_.try_emplace(std::string(name), grant).second;
}

const Grant* AccessRules::OfToken(std::string_view token) const {
  const Digest digest = DigestOf(token);
  const auto found = tokens_.find(KeyOf(digest));
  if (found == tokens_.end()) return nullptr;
  const bool same = CRYPTO_memcmp(found->second.digest.data(), digest.data(), digest.size()) == 0;
  return same ? &grants_[found->second.grant] : nullptr;
}

const Grant* AccessRules::OfCertificateName(std::string_view name) const {
  const auto found = certificate_names_.find(name);
  return found == certificate_names_.end() ? nullptr : &grants_[found->second];
}

AccessRules::Digest AccessRules::DigestOf(std::string_view token) const {
  Digest digest = {};
  HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), reinterpret_cast<const unsigned char*>(token.data()),
       token.size(), digest.data(), nullptr);
  return digest;
}

absl::StatusOr<Caller> Caller::Identify(const AccessRules& rules, const Credentials& credentials) {
  Caller caller;
  if (!credentials.authorization.empty()) {
    const Grant* const grant = rules.OfToken(TokenOf(credentials.authorization));
    if (grant == nullptr) return absl::UnauthenticatedError("the token is not known");
    caller.grants_.push_back(grant);
    return caller;
  }
  for (const std::string_view name : credentials.certificate_names) {
    if (const Grant* const grant = rules.OfCertificateName(name)) caller.grants_.push_back(grant);
  }
  if (!caller.grants_.empty()) return caller;
  return absl::UnauthenticatedError("a token or a certificate that is granted something is needed");
}

absl::Status Caller::May(Role role) const {
  for (const Grant* const grant : grants_) {
    if (grant->roles[static_cast<size_t>(role)]) return absl::OkStatus();
  }
  return NotGranted(role);
}

absl::Status Caller::May(Role role, std::string_view tenant_id) const {
  for (const Grant* const grant : grants_) {
    if (grant->roles[static_cast<size_t>(role)] && IsFor(*grant, tenant_id)) return absl::OkStatus();
  }
  const absl::Status role_status = May(role);
  return role_status.ok() ? absl::PermissionDeniedError("not granted for this tenant") : role_status;
}

absl::Status Caller::MayForAll(Role role) const {
  for (const Grant* const grant : grants_) {
    if (grant->roles[static_cast<size_t>(role)] && grant->tenants.empty()) return absl::OkStatus();
  }
  const absl::Status role_status = May(role);
  return role_status.ok() ? absl::PermissionDeniedError("not granted for all tenants") : role_status;
}

}  // namespace icache
