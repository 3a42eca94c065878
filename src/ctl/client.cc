#include "ctl/client.h"

#include <fmt/format.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/time/clock.h"
#include "ctl/text.h"
#include "grpc/health/v1/health.grpc.pb.h"
#include "icache/base/status_macros.h"
#include "icache/base/utf8.h"
#include "icache/config/file.h"
#include "icache/config/tls_loader.h"
#include "icache/wire/library_logs.h"
#include "icache/wire/peer_names.h"
#include "inferencecache/ops/v1alpha1/ops.grpc.pb.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  absl::StatusOr<std::string> token = ReadFile(path, kMaxFileBytes);
  if (!token.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(token.status().message())));
  }
  absl::StripAsciiWhitespace(&*token);
  const bool visible = std::all_of(token->begin(), token->end(), [](char each) { return absl::ascii_isgraph(each); });
  if (token->empty() || !visible) {
    return absl::InvalidArgumentError(path + ": must hold one token of visible ASCII characters");
  }
  return token;
}

// The files are tried here, since gRPC would say of bad ones that the daemon cannot be reached.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> CredentialsOf(const Settings& settings) {
  if (settings.tls_ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::SslCredentialsOptions options;
  if (settings.tls_ca != "system") {
    ASSIGN_OR_RETURN(options.pem_root_certs, LoadCertificates(settings.tls_ca));
  }
  if (!settings.tls_cert.empty()) {
    ASSIGN_OR_RETURN(const std::shared_ptr<const TlsIdentity> own,
                     LoadTlsIdentity({settings.tls_cert, settings.tls_key, /*client_ca=*/""}));
    options.pem_cert_chain = own->certificate_chain;
    options.pem_private_key = own->private_key;
  }
  return grpc::SslCredentials(options);
}

// InvalidArgument, led by the path to the field, when a text of `message` is no UTF-8: the wire does not carry it.
absl::Status CheckTexts(const google::protobuf::Message& message, const std::string& path = "") {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* const field : fields) {
    const std::string name = path + field->name();
    const int count = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->type() == FieldDescriptor::TYPE_MESSAGE) {
        RETURN_IF_ERROR(CheckTexts(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                        : reflection.GetMessage(message, field),
                                   name + "."));
      } else if (field->type() == FieldDescriptor::TYPE_STRING &&
                 !IsUtf8(field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                              : reflection.GetString(message, field))) {
        return absl::InvalidArgumentError(name + ": must be UTF-8");
      }
    }
  }
  return absl::OkStatus();
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

  // One unary call of `method`, which is `call` of `stub`.
  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Unary(const char* method, Stub& stub,
                                 grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*),
                                 const Request& request) const {
    RETURN_IF_ERROR(CheckTexts(request));
    grpc::ClientContext context;
    Prepare(&context);
    Limit(&context);
    Response response;
    RETURN_IF_ERROR(Explained((stub.*call)(&context, request, &response), method));
    return response;
  }

  void Prepare(grpc::ClientContext* context) const {
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
  }

  void Limit(grpc::ClientContext* context) const {
    context->set_deadline(absl::ToChronoTime(absl::Now() + settings_.Timeout()));
  }

  // The error that `method` ended with `what`.
  absl::Status Failed(const char* method, const std::string& what) const {
    return absl::UnavailableError(fmt::format("{}: {}: {}", settings_.address, method, what));
  }

  // The outcome of a call as what the operator should know and do. Every failure is Unavailable: whatever the daemon
  // makes of a call, it did not answer it.
  absl::Status Explained(const grpc::Status& status, const char* method) const {
    if (status.ok()) return absl::OkStatus();
    const std::string said = fmt::format("{}: {}: {}", settings_.address, method, Visible(status.error_message()));
    const auto with_mend = [&](const char* mend) { return absl::UnavailableError(fmt::format("{}\n{}", said, mend)); };
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
        return absl::UnavailableError(said);
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
  SilenceRpcLibraries();
  RefuseUnreadablePeers();
  std::string token;
  if (!settings.token_file.empty()) {
    ASSIGN_OR_RETURN(token, ReadToken(settings.token_file));
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
  return impl_->Unary("LookupRoute", *impl_->service_, &wire::InferenceCache::Stub::LookupRoute, request);
}

absl::StatusOr<ops::ExplainRouteResponse> Client::Explain(const wire::LookupRouteRequest& request) const {
  return impl_->Unary("ExplainRoute", *impl_->ops_, &ops::Ops::Stub::ExplainRoute, request);
}

absl::StatusOr<wire::GetCacheStateResponse> Client::CacheState(const std::string& tenant,
                                                               const std::string& model) const {
  wire::GetCacheStateRequest request;
  request.set_tenant_id(tenant);
  request.set_model_id(model);
  return impl_->Unary("GetCacheState", *impl_->service_, &wire::InferenceCache::Stub::GetCacheState, request);
}

absl::StatusOr<wire::Ack> Client::Publish(const wire::CacheEvent& event) const {
  return impl_->Unary("PublishEvent", *impl_->service_, &wire::InferenceCache::Stub::PublishEvent, event);
}

absl::StatusOr<wire::Ack> Client::Report(absl::Span<const wire::CacheStateUpdate> updates) const {
  for (const wire::CacheStateUpdate& update : updates) RETURN_IF_ERROR(CheckTexts(update));
  grpc::ClientContext context;
  impl_->Prepare(&context);
  impl_->Limit(&context);
  // One operation after the other, but asynchronous: what waits by itself aborts when the answer is no Ack.
  grpc::CompletionQueue queue;
  const auto completes = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  wire::Ack ack;
  grpc::Status status;
  const auto stream = impl_->service_->AsyncReportCacheState(&context, &ack, &queue, nullptr);
  // Where one fails, the reason comes with Finish().
  bool taken = completes();
  for (size_t i = 0; taken && i < updates.size(); ++i) {
    stream->Write(updates[i], nullptr);
    taken = completes();
  }
  if (taken) {
    stream->WritesDone(nullptr);
    taken = completes();
  }
  stream->Finish(&status, nullptr);
  const bool readable = completes();
  RETURN_IF_ERROR(impl_->Explained(status, "ReportCacheState"));
  if (!readable) return impl_->Failed("ReportCacheState", "the answer is no Ack");
  if (!taken && ack.accepted()) return impl_->Failed("ReportCacheState", "the call ended before all updates were sent");
  return ack;
}

absl::StatusOr<bool> Client::IsServing() const {
  using Health = grpc::health::v1::Health;
  ASSIGN_OR_RETURN(
      const grpc::health::v1::HealthCheckResponse response,
      impl_->Unary("Check", *impl_->health_, &Health::Stub::Check, grpc::health::v1::HealthCheckRequest()));
  return response.status() == grpc::health::v1::HealthCheckResponse::SERVING;
}

absl::Status Client::Watch(const wire::StreamEventsRequest& request, const std::function<void()>& on_open,
                           const std::function<void(const wire::CacheEvent&)>& on_event,
                           const std::function<bool()>& stopping) const {
  RETURN_IF_ERROR(CheckTexts(request));
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
  if (stopped) return absl::OkStatus();
  if (status.ok()) return impl_->Failed("StreamCacheEvents", "the stream ended, or brought what is no event");
  return impl_->Explained(status, "StreamCacheEvents");
}

}  // namespace icache
