// TlsIdentity: what a server shows of itself over TLS, and whose client certificates it believes.
#pragma once

#include <string>

#include "absl/time/time.h"
#include "icache/base/wipe.h"

namespace icache {

// All texts are PEM. The key is a secret: it belongs in no log line, metric or dump.
struct TlsIdentity {
  std::string certificate_chain;  // the server's own certificate first
  std::string private_key;        // belongs to that certificate; not encrypted
  std::string client_ca;          // certificates that sign those of clients; "" = clients are not asked for one
  absl::Time valid_from = absl::InfinitePast();  // the server certificate's validity
  absl::Time expires_at = absl::InfiniteFuture();
  absl::Time client_ca_expires_at = absl::InfiniteFuture();  // the first of them that does

  ~TlsIdentity() { Wipe(&private_key); }
};

}  // namespace icache
