#include "rpc/health.h"

#include "rpc/rpc_service.h"

namespace icache {

using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;

namespace {

grpc::ByteBuffer Answer(ServingState::Status status) {
  HealthCheckResponse response;
  response.set_status(status);
  return ToByteBuffer(response);
}

}  // namespace

ServingState::Status ServingState::Of(std::string_view service) const {
  if (!service.empty() && service != WireService::service_full_name()) return HealthCheckResponse::SERVICE_UNKNOWN;
  return serving_.load(std::memory_order_relaxed) ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING;
}

grpc::Status HealthCheckMethod::Serve(const grpc::ServerContext& /*context*/, grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) {
  if (grpc::Status status = request_.Parse(request); !status.ok()) return status;
  const ServingState::Status status = serving_->Of(request_.message().service());
  request_.Trim();
  if (status == HealthCheckResponse::SERVICE_UNKNOWN) return {grpc::StatusCode::NOT_FOUND, "unknown service"};
  *response = Answer(status);
  return grpc::Status::OK;
}

void HealthWatchStream::OnOpen() {
  RecycledMessage<HealthCheckRequest> request(0);
  if (const grpc::Status status = request.Parse(&request_); !status.ok()) {
    End(status);
    return;
  }
  known_ = serving_->Of(request.message().service()) != HealthCheckResponse::SERVICE_UNKNOWN;
  OnWake();
}

void HealthWatchStream::OnWake() {
  const ServingState::Status status = known_ ? serving_->Of("") : HealthCheckResponse::SERVICE_UNKNOWN;
  if (writing() || status == sent_) return;
  sent_ = status;
  Write(Answer(status));
}

void HealthWatchStream::OnWritten(bool ok) {
  if (ok) OnWake();  // else the client is gone
}

}  // namespace icache
