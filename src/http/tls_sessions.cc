#include "http/tls_sessions.h"

#include <gnutls/abstract.h>
#include <gnutls/x509.h>

#include <memory>
#include <string>
#include <utility>

#include "icache/base/status_macros.h"

namespace icache {
namespace {

// As OpenSSL has them.
constexpr unsigned kMaxKeyBits = 16'384;
constexpr unsigned kMaxExponentBytes = 8;
constexpr size_t kMaxMessageBytes = 64 << 10;  // of a handshake; the chain of certificates is one

gnutls_datum_t DatumOf(const std::string& text) {
  return {reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())), static_cast<unsigned>(text.size())};
}

absl::Status Refused(int code) {
  return absl::InvalidArgumentError(std::string("GnuTLS refuses it: ") + gnutls_strerror(code));
}

// Null when the certificate or its key cannot be read.
using OwnedPublicKey = std::unique_ptr<gnutls_pubkey_st, decltype(&gnutls_pubkey_deinit)>;
OwnedPublicKey PublicKeyOf(std::string_view der) {
  gnutls_pubkey_t key = nullptr;
  if (gnutls_pubkey_init(&key) < 0) return {nullptr, &gnutls_pubkey_deinit};
  OwnedPublicKey owned(key, &gnutls_pubkey_deinit);
  const gnutls_datum_t certificate = {reinterpret_cast<unsigned char*>(const_cast<char*>(der.data())),
                                      static_cast<unsigned>(der.size())};
  if (gnutls_pubkey_import_x509_raw(key, &certificate, GNUTLS_X509_FMT_DER, 0) < 0) owned.reset();
  return owned;
}

// 0 for keys other than RSA's.
unsigned ExponentBytes(gnutls_pubkey_t key) {
  gnutls_datum_t exponent = {nullptr, 0};
  if (gnutls_pubkey_export_rsa_raw2(key, nullptr, &exponent, GNUTLS_EXPORT_FLAG_NO_LZ) < 0) return 0;
  gnutls_free(exponent.data);
  return exponent.size;
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
    ASSIGN_OR_RETURN(result->client_authority_, ClientAuthority::Create(identity.client_ca));
  }
  return result;
}

TlsCredentials::~TlsCredentials() {
  if (credentials_ != nullptr) gnutls_certificate_free_credentials(credentials_);
}

void TlsCredentials::Give(gnutls_session_t session) const {
  gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, credentials_);
  gnutls_handshake_set_max_packet_length(session, kMaxMessageBytes);
  gnutls_certificate_server_set_request(session,
                                        client_authority_ != nullptr ? GNUTLS_CERT_REQUEST : GNUTLS_CERT_IGNORE);
}

std::shared_ptr<const TlsCredentials> TlsSessions::Current() {
  std::shared_ptr<const TlsIdentity> identity = identity_->Current();
  if (identity != seen_) {
    if (auto made = TlsCredentials::Create(*identity); made.ok()) credentials_ = *std::move(made);
    seen_ = std::move(identity);
  }
  return credentials_;
}

int CheckClientKey(gnutls_session_t session) {
  const std::vector<std::string_view> chain = ClientChain(session);
  const OwnedPublicKey key = PublicKeyOf(chain.empty() ? "" : chain[0]);
  if (key == nullptr) return GNUTLS_E_CERTIFICATE_ERROR;
  unsigned bits = 0;
  gnutls_pubkey_get_pk_algorithm(key.get(), &bits);
  return bits > kMaxKeyBits || ExponentBytes(key.get()) > kMaxExponentBytes ? GNUTLS_E_CERTIFICATE_ERROR : 0;
}

std::vector<std::string_view> ClientChain(gnutls_session_t session) {
  unsigned length = 0;
  const gnutls_datum_t* const certificates = gnutls_certificate_get_peers(session, &length);
  std::vector<std::string_view> chain;
  for (unsigned i = 0; certificates != nullptr && i < length; ++i) {
    chain.emplace_back(reinterpret_cast<const char*>(certificates[i].data), certificates[i].size);
  }
  return chain;
}

}  // namespace icache
