// TLS files: a certificate chain, its key and the CA of clients -> one TlsIdentity that is known to work: OpenSSL,
// which gRPC serves with, has taken it, and so has whoever else is to serve with it.
//
// Free functions without state; nothing throws. Messages never hold what a file holds.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "icache/access/tls_identity.h"
#include "icache/config/file_set.h"

namespace icache {

// Paths of PEM files. Either both of the pair are named or none.
struct TlsFiles {
  std::string certificate;  // the server's own, then those that lead to its root
  std::string key;          // not encrypted
  std::string client_ca;    // "" = clients are not asked for a certificate

  bool enabled() const { return !certificate.empty(); }
};

// Whether a TLS library takes an identity: OK, or why not. Null = there is no further one to ask.
using TlsCheck = std::function<absl::Status(const TlsIdentity&)>;

// What the contents of `files`, in their order, make together; never null. Requires two files, or three with a client
// CA. InvalidArgument, with the file's name, when one holds no PEM of its kind, the key does not belong to the
// certificate, or a library refuses them, as for a weak key or digest.
absl::StatusOr<std::shared_ptr<const TlsIdentity>> ParseTlsIdentity(absl::Span<const TextFile> files,
                                                                    const TlsCheck& check = nullptr);

// Reads the files, then parses them. Null when TLS is not enabled.
absl::StatusOr<std::shared_ptr<const TlsIdentity>> LoadTlsIdentity(const TlsFiles& files,
                                                                   const TlsCheck& check = nullptr);

// The text of the file at `path`, which holds PEM certificates: an authority's, for instance. InvalidArgument, with the
// file's name, when it cannot be read or holds none.
absl::StatusOr<std::string> LoadCertificates(const std::string& path);

}  // namespace icache
