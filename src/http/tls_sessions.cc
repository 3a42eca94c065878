#include "http/tls_sessions.h"

#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <netinet/in.h>

#include <utility>

namespace icache {
namespace {

constexpr unsigned kHandshakeTimeoutMs = 10'000;
constexpr unsigned kMaxNames = 64;  // of one certificate that are looked at

gnutls_datum_t DatumOf(const std::string& text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), static_cast<unsigned>(text.size())};
}

absl::Status Refused(int code) {
  return absl::InvalidArgumentError(std::string("GnuTLS refuses it: ") + gnutls_strerror(code));
}

std::string AddressText(const std::string& bytes) {
  const int family = bytes.size() == sizeof(in6_addr) ? AF_INET6 : AF_INET;
  if (bytes.size() != sizeof(in6_addr) && bytes.size() != sizeof(in_addr)) return "";
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes.data(), text, sizeof(text));
  return text;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsCredentials>> TlsCredentials::Create(const TlsIdentity& identity) {
  std::shared_ptr<TlsCredentials> result(new TlsCredentials());
  if (const int code = gnutls_certificate_allocate_credentials(&result->credentials_); code < 0) return Refused(code);
  const gnutls_datum_t chain = DatumOf(identity.certificate_chain);
  const gnutls_datum_t key = DatumOf(identity.private_key);
  if (const int code = gnutls_certificate_set_x509_key_mem(result->credentials_, &chain, &key, GNUTLS_X509_FMT_PEM);
      code < 0) {
    return Refused(code);
  }
  if (!identity.client_ca.empty()) {
    const gnutls_datum_t client_ca = DatumOf(identity.client_ca);
    const int count = gnutls_certificate_set_x509_trust_mem(result->credentials_, &client_ca, GNUTLS_X509_FMT_PEM);
    if (count <= 0) return Refused(count < 0 ? count : GNUTLS_E_NO_CERTIFICATE_FOUND);
    result->asks_clients_ = true;
  }
  return result;
}

TlsCredentials::~TlsCredentials() {
  if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
}

void TlsCredentials::Give(gnutls_session_t session) const {
  gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_);
  gnutls_certificate_server_set_request(session, asks_clients_ ? GNUTLS_CERT_REQUEST : GNUTLS_CERT_IGNORE);
  gnutls_handshake_set_timeout(session, kHandshakeTimeoutMs);
}

std::shared_ptr<const TlsCredentials> TlsSessions::Current() {
  std::shared_ptr<const TlsIdentity> identity = identity_->Current();
  if (identity != seen_) {
    if (auto made = TlsCredentials::Create(*identity); made.ok()) credentials_ = *std::move(made);
    seen_ = std::move(identity);
  }
  return credentials_;
}

bool ClientIsVerified(gnutls_session_t session) {
  unsigned problems = 0;
  return gnutls_certificate_verify_peers2(session, &problems) == GNUTLS_E_SUCCESS && problems == 0;
}

std::vector<std::string> ClientNames(gnutls_session_t session) {
  std::vector<std::string> names;
  unsigned chain_length = 0;
  const gnutls_datum_t* const chain = gnutls_certificate_get_peers(session, &chain_length);
  gnutls_x509_crt_t certificate = nullptr;
  if (chain == nullptr || gnutls_x509_crt_init(&certificate) != GNUTLS_E_SUCCESS) return names;
  const std::unique_ptr<gnutls_x509_crt_int, decltype(&gnutls_x509_crt_deinit)> owned(certificate,
                                                                                      &gnutls_x509_crt_deinit);
  if (gnutls_x509_crt_import(certificate, &chain[0], GNUTLS_X509_FMT_DER) != GNUTLS_E_SUCCESS) return names;
  for (unsigned i = 0; i < kMaxNames; ++i) {
    char buffer[1024];
    size_t size = sizeof(buffer);
    const int type = gnutls_x509_crt_get_subject_alt_name(certificate, i, buffer, &size, nullptr);
    if (type == GNUTLS_E_REQUESTED_DATA_NOT_AVAILABLE) break;
    if (type < 0) continue;  // longer than any name that is granted something
    std::string name(buffer, size);
    names.push_back(type == GNUTLS_SAN_IPADDRESS ? AddressText(name) : std::move(name));
  }
  return names;
}

}  // namespace icache
