#include "icache/access/client_authority.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include "absl/cleanup/cleanup.h"
#include "icache/access/certificate_names.h"

namespace icache {
namespace {

constexpr int kSecurityLevel = 2;  // what Debian's OpenSSL, and so gRPC, holds chains to

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
void FreeChain(STACK_OF(X509) * chain) { sk_X509_pop_free(chain, X509_free); }

using OwnedBio = std::unique_ptr<BIO, Freer<BIO_free>>;
using OwnedCertificate = std::unique_ptr<X509, Freer<X509_free>>;
using OwnedChain = std::unique_ptr<STACK_OF(X509), Freer<FreeChain>>;
using OwnedContext = std::unique_ptr<X509_STORE_CTX, Freer<X509_STORE_CTX_free>>;
using OwnedNames = std::unique_ptr<GENERAL_NAMES, Freer<GENERAL_NAMES_free>>;
using OwnedStore = std::unique_ptr<X509_STORE, Freer<X509_STORE_free>>;

OwnedCertificate FromDer(std::string_view der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  return OwnedCertificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
}

std::string TextOf(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)), static_cast<size_t>(ASN1_STRING_length(text))};
}

// Of one that is readable.
std::string AddressText(const std::string& bytes) {
  const int family = bytes.size() == sizeof(in6_addr) ? AF_INET6 : AF_INET;
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, bytes.data(), text, sizeof(text));
  return text;
}

std::vector<std::string> AlternativeNames(const X509& certificate) {
  std::vector<std::string> names;
  const OwnedNames found(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)));
  const int count = found == nullptr ? 0 : sk_GENERAL_NAME_num(found.get());
  for (int i = 0; i < count; ++i) {
    int type = 0;
    const void* const value = GENERAL_NAME_get0_value(sk_GENERAL_NAME_value(found.get(), i), &type);
    if (type == GEN_DNS || type == GEN_URI || type == GEN_EMAIL) {
      names.push_back(TextOf(static_cast<const ASN1_STRING*>(value)));
    } else if (type == GEN_IPADD) {
      names.push_back(AddressText(TextOf(static_cast<const ASN1_STRING*>(value))));
    }
  }
  return names;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const ClientAuthority>> ClientAuthority::Create(const std::string& certificates) {
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  const OwnedBio bio(BIO_new_mem_buf(certificates.data(), static_cast<int>(certificates.size())));
  OwnedStore store(X509_STORE_new());
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN | X509_V_FLAG_TRUSTED_FIRST);
  bool is_empty = true;
  while (const auto certificate = OwnedCertificate(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr))) {
    X509_STORE_add_cert(store.get(), certificate.get());
    is_empty = false;
  }
  if (is_empty) return absl::InvalidArgumentError("there are no certificates of an authority");
  return std::shared_ptr<const ClientAuthority>(new ClientAuthority(store.release()));
}

ClientAuthority::~ClientAuthority() { X509_STORE_free(store_); }

absl::StatusOr<std::vector<std::string>> ClientAuthority::NamesOf(absl::Span<const std::string_view> chain) const {
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  if (chain.empty()) return absl::UnauthenticatedError("a client certificate is needed");
  const OwnedCertificate own = FromDer(chain[0]);
  const OwnedChain others(sk_X509_new_null());
  for (const std::string_view der : chain.subspan(1)) {
    if (OwnedCertificate other = FromDer(der)) sk_X509_push(others.get(), other.release());
  }
  const OwnedContext context(X509_STORE_CTX_new());
  if (own == nullptr || X509_STORE_CTX_init(context.get(), store_, own.get(), others.get()) != 1) {
    return absl::UnauthenticatedError("the client certificate cannot be read");
  }
  X509_STORE_CTX_set_default(context.get(), "ssl_client");
  X509_VERIFY_PARAM_set_auth_level(X509_STORE_CTX_get0_param(context.get()), kSecurityLevel);
  X509_STORE_CTX_set_verify_cb(context.get(), &VerifyReadableNames);
  if (X509_verify_cert(context.get()) != 1) {
    const int error = X509_STORE_CTX_get_error(context.get());
    return absl::UnauthenticatedError(std::string("client certificate: ") + X509_verify_cert_error_string(error));
  }
  return AlternativeNames(*own);
}

}  // namespace icache
