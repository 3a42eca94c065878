// Peers whose certificates gRPC would end the process over (access/certificate_names.h).
#pragma once

namespace icache {

// From now on TLS handshakes with them fail, in gRPC and in whatever else uses OpenSSL, where peers are verified by
// certificates that the program names itself. For the whole process; not thread-safe, call it before gRPC is used.
void RefuseUnreadablePeers();

}  // namespace icache
