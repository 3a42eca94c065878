// TlsSessions: gives each new TLS connection of the HTTP server the identity that is in force when it comes.
#pragma once

#include <gnutls/gnutls.h>

#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "icache/access/client_authority.h"
#include "icache/access/tls_identity.h"
#include "icache/base/published.h"

namespace icache {

// One identity in the library's shape. Must outlive the sessions that use it.
class TlsCredentials {
 public:
  // InvalidArgument, with the library's word, when it cannot use the identity.
  static absl::StatusOr<std::shared_ptr<const TlsCredentials>> Create(const TlsIdentity& identity);
  ~TlsCredentials();
  TlsCredentials(const TlsCredentials&) = delete;
  TlsCredentials& operator=(const TlsCredentials&) = delete;

  // Makes `session`, which is before its handshake, use this identity.
  void Give(gnutls_session_t session) const;

  // Judges the clients' certificates; null when they are not asked for any.
  const ClientAuthority* client_authority() const { return client_authority_.get(); }

 private:
  TlsCredentials() = default;

  gnutls_certificate_credentials_t credentials_ = nullptr;
  std::shared_ptr<const ClientAuthority> client_authority_;
};

// Thread-compatible.
class TlsSessions {
 public:
  // `identity` is not owned and holds a value.
  explicit TlsSessions(const Published<TlsIdentity>* identity) : identity_(identity) {}

  // Those of the identity in force, or the last that could be used; null when there never was one.
  std::shared_ptr<const TlsCredentials> Current();

 private:
  const Published<TlsIdentity>* const identity_;
  std::shared_ptr<const TlsIdentity> seen_;
  std::shared_ptr<const TlsCredentials> credentials_;
};

// Whether the signature by which the client claims its certificate is made with a key that can be checked in no time:
// 0, or the library's error. The library would check with any key, whoever made it up: one of 131,072 bits takes
// minutes.
int CheckClientKey(gnutls_session_t session);

// The certificates that the client has shown, in DER, its own first. They live as long as the session.
std::vector<std::string_view> ClientChain(gnutls_session_t session);

}  // namespace icache
