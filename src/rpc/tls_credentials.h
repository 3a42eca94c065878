// gRPC server credentials whose certificate can be replaced while the server runs.
#pragma once

#include <grpcpp/security/server_credentials.h>

#include <memory>

#include "icache/access/tls_identity.h"
#include "icache/base/published.h"

namespace icache {

// Serves each new connection with the identity in force when it comes; those that are open keep theirs. With a client
// CA, clients without a certificate of it are refused, for as long as the server runs. `identity` is not owned, must
// hold a value and must outlive the server. For one server only.
std::shared_ptr<grpc::ServerCredentials> RotatingTlsCredentials(const Published<TlsIdentity>* identity);

}  // namespace icache
