#include "ctl/client.h"

#include <fmt/format.h>
#include <grpc/support/log.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "icache/base/status_macros.h"
#include "icache/config/file.h"
#include "inferencecache/ops/v1alpha1/ops.grpc.pb.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::StatusOr<std::string> ReadNamed(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path, kMaxFileBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(text.status().message())));
  }
  // gRPC takes nothing for leave to trust or to show something else.
  if (text->empty()) return absl::InvalidArgumentError(path + ": is empty");
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Settings& settings) {
  if (settings.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (settings.tls_ca != "system") {
    ASSIGN_OR_RETURN(options.pem_root_certs, ReadNamed(settings.tls_ca));
  }
  if (!settings.tls_cert.empty()) {
    ASSIGN_OR_RETURN(options.pem_cert_chain, ReadNamed(settings.tls_cert));
    ASSIGN_OR_RETURN(options.pem_private_key, ReadNamed(settings.tls_key));
  }
  return grpc::SslCredentials(options);
}

}  // namespace

class Client::Impl {
 public:
  Impl(Settings settings, std::string token, std::shared_ptr<grpc::Channel> channel)
      : settings_(std::move(settings)),
        token_(std::move(token)),
        service_(wire::InferenceCache::NewStub(channel)),
        ops_(ops::Ops::NewStub(channel)),
        health_(grpc::health::v1::Health::NewStub(channel)) {}

  // One unary call: `call(context, response)`.
  template <typename Response, typename Call>
  absl::StatusOr<Response> Unary(const char* method, Call call) const {
    grpc::ClientContext context;
    Prepare(&context);
    Limit(&context);
    Response response;
    RETURN_IF_ERROR(Explained(call(&context, &response), method));
    return response;
  }

  void Prepare(grpc::ClientContext* context) const {
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
  }

  void Limit(grpc::ClientContext* context) const {
    context->set_deadline(absl::ToChronoTime(absl::Now() + settings_.Timeout()));
  }

  // The outcome of a call as what the operator should know and do.
  absl::Status Explained(const grpc::Status& status, const char* method) const {
    if (status.ok()) return absl::OkStatus();
    const std::string said = fmt::format("{}: {}: {}", settings_.address, method, status.error_message());
    const auto with_mend = [&](const char* mend) {
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), fmt::format("{}\n{}", said, mend));
    };
    switch (status.error_code()) {
      case grpc::StatusCode::UNAVAILABLE:
        return with_mend(
            settings_.tls_ca.empty()
                ? "Check that icached runs and listens there (--address), and whether it wants TLS (--tls-ca)."
                : "Check that icached runs, listens there (--address), serves TLS with a certificate that --tls-ca "
                  "signs\n"
                  "for this name (--tls-server-name), and whether it wants one of the client (--tls-cert, --tls-key).");
      case grpc::StatusCode::DEADLINE_EXCEEDED:
        return with_mend("No answer in time. Check the address and the daemon's load; --timeout waits longer.");
      case grpc::StatusCode::UNAUTHENTICATED:
        return with_mend("The daemon wants a token: give --token-file, and check that it knows the token in it.");
      case grpc::StatusCode::PERMISSION_DENIED:
        return with_mend("This client may not do that: use a token (--token-file) or certificate that may.");
      case grpc::StatusCode::UNIMPLEMENTED:
        return with_mend("The daemon does not offer this call: it is older than this icachectl, or no icached.");
      case grpc::StatusCode::RESOURCE_EXHAUSTED:
        return with_mend("The daemon is at a limit: try again, or ask for less.");
      default:
        return absl::Status(static_cast<absl::StatusCode>(status.error_code()), said);
    }
  }

  const Settings settings_;
  const std::string token_;
  const std::unique_ptr<wire::InferenceCache::Stub> service_;
  const std::unique_ptr<ops::Ops::Stub> ops_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

absl::StatusOr<std::unique_ptr<Client>> Client::Create(const Settings& settings) {
  // What it logs by itself goes between the lines of a table.
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function([](gpr_log_func_args*) {});
  std::string token;
  if (!settings.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadNamed(settings.token_file));
    absl::StripAsciiWhitespace(&token);
    const bool visible = std::all_of(token.begin(), token.end(), [](char each) { return absl::ascii_isgraph(each); });
    if (token.empty() || !visible) {
      return absl::InvalidArgumentError(settings.token_file + ": must hold one token of visible ASCII characters");
    }
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::ChannelCredentials> credentials, CredentialsOf(settings));
  grpc::ChannelArguments arguments;
  if (!settings.tls_server_name.empty()) arguments.SetSslTargetNameOverride(settings.tls_server_name);
  arguments.SetMaxReceiveMessageSize(-1);  // the daemon bounds what it says
  auto channel = grpc::CreateCustomChannel(settings.address, credentials, arguments);
  return std::unique_ptr<Client>(new Client(std::make_unique<Impl>(settings, std::move(token), std::move(channel))));
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<wire::LookupRouteResponse> Client::Lookup(const wire::LookupRouteRequest& request) const {
  return impl_->Unary<wire::LookupRouteResponse>("LookupRoute", [&](auto* context, auto* response) {
    return impl_->service_->LookupRoute(context, request, response);
  });
}

absl::StatusOr<ops::ExplainRouteResponse> Client::Explain(const wire::LookupRouteRequest& request) const {
  return impl_->Unary<ops::ExplainRouteResponse>("ExplainRoute", [&](auto* context, auto* response) {
    return impl_->ops_->ExplainRoute(context, request, response);
  });
}

absl::StatusOr<wire::GetCacheStateResponse> Client::CacheState(const std::string& tenant,
                                                               const std::string& model) const {
  wire::GetCacheStateRequest request;
  request.set_tenant_id(tenant);
  request.set_model_id(model);
  return impl_->Unary<wire::GetCacheStateResponse>("GetCacheState", [&](auto* context, auto* response) {
    return impl_->service_->GetCacheState(context, request, response);
  });
}

absl::StatusOr<wire::Ack> Client::Publish(const wire::CacheEvent& event) const {
  return impl_->Unary<wire::Ack>("PublishEvent", [&](auto* context, auto* response) {
    return impl_->service_->PublishEvent(context, event, response);
  });
}

absl::StatusOr<wire::Ack> Client::Report(absl::FunctionRef<bool(wire::CacheStateUpdate* update)> next) const {
  grpc::ClientContext context;
  impl_->Prepare(&context);
  impl_->Limit(&context);
  wire::Ack ack;
  const auto stream = impl_->service_->ReportCacheState(&context, &ack);
  wire::CacheStateUpdate update;
  while (next(&update)) {
    if (!stream->Write(update)) break;  // the reason comes with Finish()
    update.Clear();
  }
  stream->WritesDone();
  RETURN_IF_ERROR(impl_->Explained(stream->Finish(), "ReportCacheState"));
  return ack;
}

absl::StatusOr<bool> Client::IsServing() const {
  const auto response = impl_->Unary<grpc::health::v1::HealthCheckResponse>("Check", [&](auto* context, auto* answer) {
    return impl_->health_->Check(context, grpc::health::v1::HealthCheckRequest(), answer);
  });
  if (!response.ok()) return response.status();
  return response->status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

absl::Status Client::Watch(const wire::StreamEventsRequest& request, const std::function<void()>& on_open,
                           const std::function<void(const wire::CacheEvent&)>& on_event,
                           const std::function<bool()>& stopping) const {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  grpc::ClientContext context;
  impl_->Prepare(&context);
  grpc::CompletionQueue queue;
  enum Tag : intptr_t { kOpen, kHeaders, kRead, kFinish };
  const auto tag = [](Tag which) { return reinterpret_cast<void*>(which); };
  wire::CacheEvent event;
  grpc::Status status;
  const auto stream = impl_->service_->AsyncStreamCacheEvents(&context, request, &queue, tag(kOpen));
  bool stopped = false;
  while (true) {
    if (!stopped && stopping()) {
      stopped = true;
      context.TryCancel();
    }
    void* done = nullptr;
    bool ok = false;
    if (queue.AsyncNext(&done, &ok, absl::ToChronoTime(absl::Now() + kLook)) == grpc::CompletionQueue::TIMEOUT)
      continue;
    if (done == tag(kFinish)) break;
    if (done == tag(kHeaders) && ok) on_open();
    if (done == tag(kRead) && ok) on_event(event);
    if (done == tag(kOpen) && ok) {
      stream->ReadInitialMetadata(tag(kHeaders));
    } else if (ok) {
      stream->Read(&event, tag(kRead));
    } else {
      stream->Finish(&status, tag(kFinish));
    }
  }
  queue.Shutdown();
  void* rest = nullptr;
  bool ok = false;
  while (queue.Next(&rest, &ok)) {
  }
  return stopped ? absl::OkStatus() : impl_->Explained(status, "StreamCacheEvents");
}

}  // namespace icache
