// TlsSessions: gives each new TLS connection of the HTTP server the identity that is in force when it comes.
#pragma once

#include <gnutls/gnutls.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
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

  // Makes `session`, which is before its handshake, use this identity, and limits what the handshake may take.
  void Give(gnutls_session_t session) const;

 private:
  TlsCredentials() = default;

  gnutls_certificate_credentials_t credentials_ = nullptr;
  bool asks_clients_ = false;  // for a certificate
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

// Whether the client has shown a certificate that the client CA has signed and that is valid now.
bool ClientIsVerified(gnutls_session_t session);

// The names (DNS, URI, e-mail and IP) that such a certificate carries as its subject's alternatives.
std::vector<std::string> ClientNames(gnutls_session_t session);

}  // namespace icache
