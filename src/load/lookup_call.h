// LookupCall: a place for one lookup in flight, used again and again, on a completion queue of its owner's.
//
// Unary: every lookup is a call of its own, with a deadline of kCallTimeout. Stream: the place keeps one
// LookupRouteStream open and sends its lookups there one at a time; a stream that breaks fails the lookup at hand, and
// the next one opens another. A stream has no deadline.
//
// Not thread-safe: from Start() to the completion that ends the lookup the call is its queue's.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>

#include "load/connection.h"

namespace icache {

enum class LookupMode { kUnary, kStream };

class LookupCall {
 public:
  // The tags that come out of `queue` will be LookupCall*.
  static std::unique_ptr<LookupCall> Make(LookupMode mode, const Connection* connection, grpc::CompletionQueue* queue);

  // `connection` and `queue` are not owned.
  LookupCall(const Connection* connection, grpc::CompletionQueue* queue) : connection_(connection), queue_(queue) {}
  virtual ~LookupCall() = default;
  LookupCall(const LookupCall&) = delete;
  LookupCall& operator=(const LookupCall&) = delete;

  // The owner's notes on the lookup.
  int64_t counted_from_ns = 0;
  bool measured = false;

  // Sends `request`, which must live until the lookup is over.
  virtual void Start(const wire::LookupRouteRequest& request) = 0;
  // To be called for every completion. True when the lookup is over.
  virtual bool OnCompletion(bool ok) = 0;

  // Of the last lookup. The response counts only with an OK status.
  const grpc::Status& status() const { return status_; }
  const wire::LookupRouteResponse& response() const { return response_; }

 protected:
  const Connection* const connection_;
  grpc::CompletionQueue* const queue_;
  grpc::Status status_;
  wire::LookupRouteResponse response_;
};

}  // namespace icache
