#include "icache/access/certificate_names.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>

#include "absl/cleanup/cleanup.h"

namespace icache {
namespace {

bool IsText(const ASN1_STRING* string) {
  unsigned char* text = nullptr;
  const bool is_text = ASN1_STRING_to_UTF8(&text, string) >= 0;
  OPENSSL_free(text);
  return is_text;
}

bool IsReadable(const GENERAL_NAME* name) {
  int type = 0;
  const void* const value = GENERAL_NAME_get0_value(name, &type);
  switch (type) {
    case GEN_DNS:
    case GEN_EMAIL:
    case GEN_URI:
      return IsText(static_cast<const ASN1_STRING*>(value));
    case GEN_IPADD: {
      const auto length = static_cast<size_t>(ASN1_STRING_length(static_cast<const ASN1_STRING*>(value)));
      return length == sizeof(in_addr) || length == sizeof(in6_addr);
    }
    default:
      return true;  // nobody reads the other kinds
  }
}

}  // namespace

bool HasReadableNames(const X509& certificate) {
  const absl::Cleanup forget_errors = [] { ERR_clear_error(); };
  const X509_NAME* const subject = X509_get_subject_name(&certificate);
  const int common_name = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (common_name >= 0 && !IsText(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, common_name)))) return false;
  const std::unique_ptr<GENERAL_NAMES, decltype(&GENERAL_NAMES_free)> names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(&certificate, NID_subject_alt_name, nullptr, nullptr)),
      &GENERAL_NAMES_free);
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    if (!IsReadable(sk_GENERAL_NAME_value(names.get(), i))) return false;
  }
  return true;
}

int VerifyReadableNames(int is_valid, X509_STORE_CTX* context) {
  // OpenSSL calls once for each certificate of the chain, and last for the peer's own, at depth 0.
  if (is_valid == 0 || X509_STORE_CTX_get_error_depth(context) > 0) return is_valid;
  if (HasReadableNames(*X509_STORE_CTX_get0_cert(context))) return 1;
  X509_STORE_CTX_set_error(context, X509_V_ERR_UNSUPPORTED_NAME_SYNTAX);
  return 0;
}

}  // namespace icache
