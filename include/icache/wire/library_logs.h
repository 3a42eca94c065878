// What gRPC and protobuf write to standard error by themselves.
#pragma once

namespace icache {

// From now on they write nothing: clients can provoke their lines at will (a message that is not UTF-8, a compressed
// one). With GRPC_VERBOSITY in the environment gRPC goes on. For the whole process; not thread-safe, call it first.
void SilenceRpcLibraries();

}  // namespace icache
