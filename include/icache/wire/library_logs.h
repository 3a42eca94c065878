// What gRPC and protobuf write to standard error by themselves.
#pragma once

#include "icache/net/connection_observer.h"

namespace icache {

// From now on they write nothing: clients can provoke their lines at will (a message that is not UTF-8, a compressed
// one). gRPC's last words before it ends the process are let through; with GRPC_VERBOSITY in the environment all are.
// For the whole process; not thread-safe, call it first.
void SilenceRpcLibraries();

// From now on `observer` is told of the TLS handshakes and compressed requests that gRPC refuses, of which nothing but
// its lines tells: so of none with GRPC_VERBOSITY. Null = nobody is. Not owned. For the whole process; thread-safe.
void TellOfRefusals(ConnectionObserver* observer);

}  // namespace icache
