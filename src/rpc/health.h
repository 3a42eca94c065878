// The health protocol, grpc.health.v1.Health: Check asks once, Watch is told of every change.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <string_view>
#include <utility>

#include "grpc/health/v1/health.pb.h"
#include "rpc/recycled_message.h"
#include "rpc/streams.h"
#include "rpc/unary_call.h"

namespace icache {

// Whether the server wants calls. Thread-safe.
class ServingState {
 public:
  using Status = grpc::health::v1::HealthCheckResponse::ServingStatus;

  void Set(bool serving) { serving_.store(serving, std::memory_order_relaxed); }
  // Of "", which is the server, or of a service by its full name. SERVICE_UNKNOWN for all but ours.
  Status Of(std::string_view service) const;

 private:
  std::atomic<bool> serving_ = false;
};

class HealthCheckMethod final : public UnaryMethod {
 public:
  // `serving` is not owned.
  HealthCheckMethod(const ServingState* serving, size_t max_recycled_bytes)
      : serving_(serving), request_(max_recycled_bytes) {}

  // NOT_FOUND for an unknown service.
  grpc::Status Serve(const grpc::ServerContext& context, grpc::ByteBuffer* request,
                     grpc::ByteBuffer* response) override;

 private:
  const ServingState* const serving_;
  RecycledMessage<grpc::health::v1::HealthCheckRequest> request_;
};

// Sends the status at once and whenever it has changed; what changes back unsent is not sent.
class HealthWatchStream final : public ObserverStream {
 public:
  // Nothing is owned.
  HealthWatchStream(StreamPool* pool, RequestCall<Writer> request_call, grpc::ServerCompletionQueue* queue,
                    const ServingState* serving)
      : ObserverStream(pool, std::move(request_call), queue), serving_(serving) {}

  void OnWake() override;

 private:
  void OnOpen() override;
  void OnWritten(bool ok) override;
  void OnBeforeEnd() override { OnWake(); }

  const ServingState* const serving_;
  bool known_ = false;  // the service asked for
  ServingState::Status sent_ = grpc::health::v1::HealthCheckResponse::UNKNOWN;
};

}  // namespace icache
