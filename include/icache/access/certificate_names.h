// The names in certificates: whether all of them can be read.
//
// gRPC 1.51 ends the process over a certificate whose names it cannot turn into text, its own and a peer's alike, once
// the handshake is done. So such a certificate is refused before gRPC comes to look at it. Free functions, thread-safe.
#pragma once

struct x509_st;
struct x509_store_ctx_st;

namespace icache {

// Whether the common name and all alternative names of the subject are what their type says: text that is well-formed,
// and addresses of 4 or 16 bytes.
bool HasReadableNames(const x509_st& certificate);

// A verification callback of OpenSSL's: what OpenSSL has found, and that the peer's own certificate has readable names.
int VerifyReadableNames(int is_valid, x509_store_ctx_st* context);

}  // namespace icache
