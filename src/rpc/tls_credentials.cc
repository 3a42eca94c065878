#include "rpc/tls_credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

#include <chrono>
#include <string>
#include <utility>

namespace icache {
namespace {

grpc_ssl_server_certificate_config* ToConfig(const TlsIdentity& identity) {
  const grpc_ssl_pem_key_cert_pair pair = {identity.private_key.c_str(), identity.certificate_chain.c_str()};
  // gRPC 1.51 aborts without certificates to judge clients by, although none is judged where none is asked for.
  const std::string& client_ca = identity.client_ca.empty() ? identity.certificate_chain : identity.client_ca;
  return grpc_ssl_server_certificate_config_create(client_ca.c_str(), &pair, 1);
}

// How long one TLS context serves new connections. A context resumes the sessions that it has begun itself without
// looking at the client's certificate again, for as long as clients go on resuming; so this is how long one that has
// expired meanwhile still gets in. gRPC has no switch for that, and its own clients resume nothing unless told to.
constexpr std::chrono::seconds kMaxContextAge{1};

// gRPC's C++ layer offers certificates that never change, or an experimental provider that reads files by itself and
// serves a pair of which one half is new. The C layer beneath asks for the certificate at each connection.
class RotatingCredentials final : public grpc::ServerCredentials {
 public:
  explicit RotatingCredentials(const Published<TlsIdentity>* identity)
      : identity_(identity),
        credentials_(grpc_ssl_server_credentials_create_with_options(
            grpc_ssl_server_credentials_create_options_using_config_fetcher(
                identity->Current()->client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                                       : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
                &RotatingCredentials::Fetch, this))) {}
  ~RotatingCredentials() override { grpc_server_credentials_release(credentials_); }

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  // Called for the first connection and each later one, one at a time. What cannot be used, gRPC does not take over.
  static grpc_ssl_certificate_config_reload_status Fetch(void* self, grpc_ssl_server_certificate_config** config) {
    auto* const credentials = static_cast<RotatingCredentials*>(self);
    std::shared_ptr<const TlsIdentity> current = credentials->identity_->Current();
    const auto now = std::chrono::steady_clock::now();
    const bool is_young = now - credentials->handed_out_at_ < kMaxContextAge;
    if (current == credentials->handed_out_ && is_young) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    *config = ToConfig(*current);
    credentials->handed_out_ = std::move(current);
    credentials->handed_out_at_ = now;
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), credentials_);
  }

  const Published<TlsIdentity>* const identity_;
  std::shared_ptr<const TlsIdentity> handed_out_;        // touched by Fetch() alone
  std::chrono::steady_clock::time_point handed_out_at_;  // likewise
  grpc_server_credentials* const credentials_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> RotatingTlsCredentials(const Published<TlsIdentity>* identity) {
  return std::make_shared<RotatingCredentials>(identity);
}

}  // namespace icache
