#include "icache/config/tls_loader.h"

#include <openssl/asn1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "icache/access/certificate_names.h"
#include "icache/base/status_macros.h"
#include "icache/config/file.h"

namespace icache {
namespace {

using OwnedBio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using OwnedCertificate = std::unique_ptr<X509, decltype(&X509_free)>;
using OwnedContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using OwnedKey = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

absl::Status Refuse(const TextFile& file, const char* why) {
  return absl::InvalidArgumentError(absl::StrCat(file.path, ": ", why));
}

OwnedBio Open(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), &BIO_free};
}

// There is no one to ask for the passphrase of an encrypted key.
int NoPassphrase(char*, int, int, void*) { return -1; }

// The certificates of a file, at least one, in order.
absl::StatusOr<std::vector<OwnedCertificate>> ReadCertificates(const TextFile& file) {
  const OwnedBio bio = Open(file.text);
  std::vector<OwnedCertificate> certificates;
  while (X509* const certificate = PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr)) {
    certificates.emplace_back(certificate, &X509_free);
  }
  // The text ends with no further block, or it breaks off within one.
  if (certificates.empty() || ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE) {
    return Refuse(file, "holds no PEM certificates, or broken ones");
  }
  return certificates;
}

// Whether a server with this context and a client that leaves all to OpenSSL come to a connection, in memory.
bool ShakesHands(SSL_CTX* server_context) {
  using Session = std::unique_ptr<SSL, decltype(&SSL_free)>;
  const OwnedContext client_context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const Session server(SSL_new(server_context), &SSL_free);
  const Session client(SSL_new(client_context.get()), &SSL_free);
  BIO* server_end = nullptr;
  BIO* client_end = nullptr;
  constexpr size_t kMaxFlightBytes = 256 << 10;  // of a chain, OpenSSL's client reads 100 KiB at most
  if (BIO_new_bio_pair(&server_end, kMaxFlightBytes, &client_end, kMaxFlightBytes) != 1) return false;
  SSL_set_bio(server.get(), server_end, server_end);
  SSL_set_bio(client.get(), client_end, client_end);
  SSL_set_accept_state(server.get());
  SSL_set_connect_state(client.get());
  // Each has its turn until it waits for the other, which neither does more often than there are flights.
  constexpr int kMaxFlights = 8;
  for (int i = 0; i < kMaxFlights; ++i) {
    for (SSL* const side : {client.get(), server.get()}) {
      const int result = SSL_do_handshake(side);
      if (result != 1 && SSL_get_error(side, result) != SSL_ERROR_WANT_READ) return false;
    }
    if (SSL_is_init_finished(client.get()) && SSL_is_init_finished(server.get())) return true;
  }
  return false;
}

// Whether OpenSSL would serve with the pair. Taking a certificate apart is not enough: by its level of security OpenSSL
// refuses keys that are too short and signatures over digests that are too weak, and some keys no client asks for.
bool CanServe(const std::vector<OwnedCertificate>& chain, EVP_PKEY* key) {
  const OwnedContext context(SSL_CTX_new(TLS_server_method()), &SSL_CTX_free);
  if (SSL_CTX_use_certificate(context.get(), chain.front().get()) != 1) return false;
  if (SSL_CTX_use_PrivateKey(context.get(), key) != 1) return false;
  for (size_t i = 1; i < chain.size(); ++i) {
    if (SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) != 1) return false;
  }
  return ShakesHands(context.get());
}

// `otherwise` when it is no time.
absl::Time TimeOf(const ASN1_TIME* asn1_time, absl::Time otherwise) {
  tm time = {};
  if (ASN1_TIME_to_tm(asn1_time, &time) != 1) return otherwise;
  return absl::FromTM(time, absl::UTCTimeZone());
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TlsIdentity>> ParseTlsIdentity(absl::Span<const TextFile> files,
                                                                    const TlsCheck& check) {
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  const TextFile& certificate_file = files[0];
  const TextFile& key_file = files[1];
  ASSIGN_OR_RETURN(const std::vector<OwnedCertificate> chain, ReadCertificates(certificate_file));
  const OwnedKey key(PEM_read_bio_PrivateKey(Open(key_file.text).get(), nullptr, &NoPassphrase, nullptr),
                     &EVP_PKEY_free);
  if (key == nullptr) return Refuse(key_file, "holds no PEM private key, or an encrypted one");
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    return Refuse(key_file, absl::StrCat("is not the key of the certificate in ", certificate_file.path).c_str());
  }
  if (!HasReadableNames(*chain.front())) {
    return Refuse(certificate_file, "its common name or an alternative name of its subject is malformed");
  }
  if (!CanServe(chain, key.get())) {
    const char* const reason = ERR_reason_error_string(ERR_peek_last_error());
    return Refuse(certificate_file, absl::StrCat("OpenSSL refuses it: ", reason == nullptr ? "" : reason).c_str());
  }
  auto identity = std::make_shared<TlsIdentity>();
  identity->certificate_chain = certificate_file.text;
  identity->private_key = key_file.text;
  identity->valid_from = TimeOf(X509_get0_notBefore(chain.front().get()), absl::InfinitePast());
  identity->expires_at = TimeOf(X509_get0_notAfter(chain.front().get()), absl::InfinitePast());
  if (files.size() > 2) {
    ASSIGN_OR_RETURN(const std::vector<OwnedCertificate> client_ca, ReadCertificates(files[2]));
    for (const OwnedCertificate& certificate : client_ca) {
      identity->client_ca_expires_at =
          std::min(identity->client_ca_expires_at, TimeOf(X509_get0_notAfter(certificate.get()), absl::InfinitePast()));
    }
    identity->client_ca = files[2].text;
  }
  if (check != nullptr) {
    if (const absl::Status taken = check(*identity); !taken.ok()) {
      return Refuse(certificate_file, std::string(taken.message()).c_str());
    }
  }
  return identity;
}

absl::StatusOr<std::shared_ptr<const TlsIdentity>> LoadTlsIdentity(const TlsFiles& files, const TlsCheck& check) {
  if (!files.enabled()) return nullptr;
  if (files.key.empty()) return absl::InvalidArgumentError(absl::StrCat(files.certificate, ": there is no key for it"));
  ASSIGN_OR_RETURN(const std::vector<TextFile> read, ReadFileSet({files.certificate, files.key, files.client_ca}));
  return ParseTlsIdentity(read, check);
}

absl::StatusOr<std::string> LoadCertificates(const std::string& path) {
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileSetBytes);
  const TextFile file{path, text.ok() ? *std::move(text) : ""};
  if (!text.ok()) return Refuse(file, std::string(text.status().message()).c_str());
  RETURN_IF_ERROR(ReadCertificates(file).status());
  return file.text;
}

}  // namespace icache
