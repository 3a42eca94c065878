// RawCall: a call by its name with bytes of any kind, for what no generated stub would send.
#pragma once

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace icache::testing {

// Sends one message and closes its side; awaits one message and the status: a unary call, or a client stream of that
// one message. `response` may be null; it is replaced when the call succeeds.
inline grpc::Status RawCall(const std::shared_ptr<grpc::Channel>& channel, grpc::ClientContext* context,
                            const std::string& full_method, const std::string& request, std::string* response) {
  grpc::GenericStub stub(channel);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(request);
  const auto call = stub.PrepareUnaryCall(context, full_method, grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer received;
  grpc::Status status;
  call->Finish(&received, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  grpc::Slice whole;
  if (response != nullptr && status.ok() && received.DumpToSingleSlice(&whole).ok()) {
    response->assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
  }
  return status;
}

}  // namespace icache::testing
