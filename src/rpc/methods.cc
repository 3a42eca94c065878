#include "rpc/methods.h"

#include <chrono>
#include <string>

namespace icache {
namespace {

namespace wire = ::inferencecache::v1alpha1;

absl::Time DeadlineOf(const grpc::ServerContext& context) {
  const std::chrono::system_clock::time_point deadline = context.deadline();
  if (deadline == std::chrono::system_clock::time_point::max()) return absl::InfiniteFuture();
  return absl::FromChrono(deadline);
}

}  // namespace

void LookupRouteMethod::Handle(const grpc::ServerContext& context, absl::Time received_at,
                               const wire::LookupRouteRequest& request, wire::LookupRouteResponse* response) {
  const LookupRequest& lookup = view_.Read(request, DeadlineOf(context));
  const absl::Duration latency = router_->Lookup(lookup, received_at, &scratch_, &answer_);
  LookupAnswerToWire(answer_, latency, response);
  view_.Trim(max_recycled_bytes());
  if (answer_.rows.bytes() > max_recycled_bytes()) answer_ = LookupAnswer();
}

grpc::Status LookupRouteMethod::Shed(const grpc::ServerContext& context, grpc::ByteBuffer* request,
                                     grpc::ByteBuffer* response) {
  request->Clear();
  if (const grpc::Status status = door().Admit(context); !status.ok()) return status;
  wire::LookupRouteResponse answer;
  answer.set_reason_code(std::string(ReasonCodeName(router_->Shed())));
  *response = ToByteBuffer(answer);
  return grpc::Status::OK;
}

void GetCacheStateMethod::Handle(const grpc::ServerContext& /*context*/, absl::Time /*received_at*/,
                                 const wire::GetCacheStateRequest& request, wire::GetCacheStateResponse* response) {
  CacheStateToWire(index_->GetState(request.tenant_id(), request.model_id()), response);
}

void PublishEventMethod::Handle(const grpc::ServerContext& /*context*/, absl::Time received_at,
                                const wire::CacheEvent& request, wire::Ack* response) {
  const CacheEvent event = CacheEventFromWire(request);
  const ApplyResult result = index_->ApplyEvent(event, received_at);
  if (observer_ != nullptr) observer_->OnEvent(event.type, result);
  response->set_accepted(true);
}

void RenderTemplateMethod::Handle(const grpc::ServerContext& /*context*/, absl::Time /*received_at*/,
                                  const wire::RenderTemplateRequest& /*request*/,
                                  wire::RenderTemplateResponse* response) {
  response->set_reason_code("TEMPLATE_NOT_FOUND");
}

void LookupPDRouteMethod::Handle(const grpc::ServerContext& /*context*/, absl::Time /*received_at*/,
                                 const wire::LookupPDRouteRequest& /*request*/, wire::LookupPDRouteResponse* response) {
  response->set_reason_code("NO_HINT");
}

void ExplainRouteMethod::Handle(const grpc::ServerContext& context, absl::Time received_at,
                                const wire::LookupRouteRequest& request,
                                inferencecache::ops::v1alpha1::ExplainRouteResponse* response) {
  Explanation explanation;
  router_->Explain(view_.Read(request, DeadlineOf(context)), received_at, &scratch_, &explanation);
  // The names of tenants are for those who may ask about each of them.
  const bool names_tenants = explanation.scope.known == KnownKeys::kUnknownTenant;
  if (names_tenants && !door().AdmitsForAll(context)) explanation.scope.names = NameList(kMaxListedNames);
  ExplanationToWire(explanation, response);
  response->mutable_daemon()->set_version(version_);
  view_.Trim(max_recycled_bytes());
}

}  // namespace icache
