// ClientAuthority: judges the certificates of clients, by the rule of gRPC, for servers whose own TLS library has
// another: OpenSSL's, for TLS clients, at its level of security 2, where any certificate of the authority's ends a
// chain.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

struct x509_store_st;

namespace icache {

// Immutable; thread-safe.
class ClientAuthority {
 public:
  // `certificates` are PEM. InvalidArgument when they are none.
  static absl::StatusOr<std::shared_ptr<const ClientAuthority>> Create(const std::string& certificates);
  ~ClientAuthority();
  ClientAuthority(const ClientAuthority&) = delete;
  ClientAuthority& operator=(const ClientAuthority&) = delete;

  // The names by which a certificate may be granted something: all alternatives of its subject that are DNS, URI,
  // e-mail or IP, the last as text. `chain` is DER, the client's own first, then what leads to the authority.
  // Unauthenticated, with the reason, when the authority does not stand for it now.
  absl::StatusOr<std::vector<std::string>> NamesOf(absl::Span<const std::string_view> chain) const;

 private:
  explicit ClientAuthority(x509_store_st* store) : store_(store) {}

  x509_store_st* const store_;  // owned
};

}  // namespace icache
