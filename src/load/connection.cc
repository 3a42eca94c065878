#include "load/connection.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

// The content of a file; "" for the path "".
absl::StatusOr<std::string> ReadNamed(const std::string& path) {
  if (path.empty()) return "";
  std::ifstream file(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return absl::NotFoundError(fmt::format("{}: cannot be read", path));
  return text;
}

// Without the white space around it: files end in a newline.
std::string Stripped(const std::string& text) {
  const absl::string_view stripped = absl::StripAsciiWhitespace(text);
  return std::string(stripped);
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Security& security) {
  if (!security.tls) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  ASSIGN_OR_RETURN(options.pem_root_certs, ReadNamed(security.tls_ca_file));
  ASSIGN_OR_RETURN(options.pem_cert_chain, ReadNamed(security.tls_cert_file));
  ASSIGN_OR_RETURN(options.pem_private_key, ReadNamed(security.tls_key_file));
  return grpc::SslCredentials(options);
}

}  // namespace

absl::Status StatusFromGrpc(const grpc::Status& status, std::string_view what) {
  if (status.ok()) return absl::OkStatus();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      fmt::format("{}: {}", what, status.error_message()));
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const Target& target, absl::Duration timeout) {
  grpc::ChannelArguments arguments;
  // Without this, all channels of a process to one address share one connection.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const Security& security = target.security;
  if (!security.tls_server_name.empty()) arguments.SetSslTargetNameOverride(security.tls_server_name);
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, CredentialsOf(security));
  ASSIGN_OR_RETURN(const std::string token, ReadNamed(security.token_file));
  auto channel = grpc::CreateCustomChannel(target.address, credentials, arguments);
  if (!channel->WaitForConnected(absl::ToChronoTime(absl::Now() + timeout))) {
    return absl::UnavailableError(fmt::format("{}: no daemon answers there within {}{}", target.address,
                                              absl::FormatDuration(timeout),
                                              security.tls ? ", or the certificates do not fit" : ""));
  }
  std::string authorization;
  if (!security.token_file.empty()) authorization = fmt::format("Bearer {}", Stripped(token));
  return std::unique_ptr<Connection>(
      new Connection(wire::InferenceCache::NewStub(channel), std::move(authorization), timeout));
}

void Connection::Prepare(grpc::ClientContext* context) const {
  if (!authorization_.empty()) context->AddMetadata("authorization", authorization_);
}

absl::Status Connection::Lookup(const wire::LookupRouteRequest& request, wire::LookupRouteResponse* response) const {
  grpc::ClientContext context;
  Prepare(&context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  return StatusFromGrpc(stub_->LookupRoute(&context, request, response), "LookupRoute");
}

absl::Status Connection::Report(absl::Span<const wire::CacheStateUpdate> updates) const {
  grpc::ClientContext context;
  Prepare(&context);
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
  Prepare(&context);
  context.set_deadline(absl::ToChronoTime(absl::Now() + timeout_));
  wire::GetCacheStateRequest request;
  request.set_tenant_id(tenant);
  request.set_model_id(model);
  wire::GetCacheStateResponse response;
  RETURN_IF_ERROR(StatusFromGrpc(stub_->GetCacheState(&context, request, &response), "GetCacheState"));
  return response;
}

}  // namespace icache
