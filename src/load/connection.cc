#include "load/connection.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <utility>

#include "icache/base/status_macros.h"

namespace icache {

absl::Status StatusFromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      fmt::format("{}: {}", what, status.error_message()));
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const std::string& address, absl::Duration timeout) {
  grpc::ChannelArguments arguments;
  // Without this, all channels of a process to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  auto channel = grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments);
  if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) {
    return absl::UnavailableError(
        fmt::format("{}: no daemon answers there within {}", address, absl::FormatDuration(timeout)));
  }
  return std::unique_ptr<Connection>(new Connection(wire::InferenceCache::NewStub(channel), timeout));
}

absl::Status Connection::Lookup(const wire::LookupRouteRequest& request, wire::LookupRouteResponse* response) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  return StatusFromGrpc(stub_->LookupRoute(&context, request, response), "LookupRoute");
}

absl::Status Connection::Report(absl::Span<const wire::CacheStateUpdate> updates) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  wire::Ack ack;
  const auto stream = stub_->ReportCacheState(&context, &ack);
  for (const wire::CacheStateUpdate& update : updates) {
    if (!stream->Write(update)) break;  // the reason comes with Finish()
  }
  stream->WritesDone();
  RETURN_IF_ERROR(StatusFromGrpc(stream->Finish(), "ReportCacheState"));
  if (ack.accepted()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("ReportCacheState: not accepted: {}", ack.reason_code()));
}

absl::StatusOr<wire::GetCacheStateResponse> Connection::CacheState(const std::string& tenant,
                                                                   const std::string& model) const {
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  wire::GetCacheStateRequest request;
  request.set_tenant_id(tenant);
  request.set_model_id(model);
  wire::GetCacheStateResponse response;
  RETURN_IF_ERROR(StatusFromGrpc(stub_->GetCacheState(&context, request, &response), "GetCacheState"));
  return response;
}

}  // namespace icache
