#include "icache/wire/peer_names.h"

#include <openssl/ssl.h>

#include "icache/access/certificate_names.h"

namespace icache {
namespace {

// Called by OpenSSL for each new context, once that has its store of certificates.
void OnNewContext(void* context, void* /*value*/, CRYPTO_EX_DATA* /*values*/, int /*index*/, long /*argument*/,
                  void* /*pointer*/) {
  X509_STORE_set_verify_cb(SSL_CTX_get_cert_store(static_cast<SSL_CTX*>(context)), &VerifyReadableNames);
}

}  // namespace

// gRPC hands its contexts to nobody. But whoever keeps a value of its own with each is told of new ones.
void RefuseUnreadablePeers() { SSL_CTX_get_ex_new_index(0, nullptr, &OnNewContext, nullptr, nullptr); }

}  // namespace icache
