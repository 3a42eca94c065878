#include "rpc/door.h"

#include <grpc/grpc_security_constants.h>

#include <string>
#include <utility>
#include <vector>

namespace icache {
namespace {

std::string_view ViewOf(grpc::string_ref text) { return {text.data(), text.size()}; }

}  // namespace

bool Door::AdmitsForAll(const grpc::ServerContext& context) {
  if (rules_ == nullptr) return true;
  const absl::StatusOr<Caller> known = Identify(context);
  return known.ok() && known->MayForAll(role_).ok();
}

absl::StatusOr<Caller> Door::Identify(const grpc::ServerContext& context) {
  Credentials credentials;
  const auto authorization = context.client_metadata().find("authorization");
  if (authorization != context.client_metadata().end()) credentials.authorization = ViewOf(authorization->second);
  std::vector<std::string_view> names;
  const std::shared_ptr<const grpc::AuthContext> peer = context.auth_context();  // owns what the names refer to
  if (credentials.authorization.empty() && peer->IsPeerAuthenticated()) {
    for (const grpc::string_ref& name : peer->FindPropertyValues(GRPC_X509_SAN_PROPERTY_NAME)) {
      names.push_back(ViewOf(name));
    }
  }
  credentials.certificate_names = names;
  return Caller::Identify(*reader_.Current(*rules_), credentials);
}

grpc::Status Door::Recognise(const grpc::ServerContext& context, std::optional<Caller>* caller) {
  absl::StatusOr<Caller> known = Identify(context);
  if (!known.ok()) return Judge(known.status());
  const absl::Status may = known->May(role_);
  *caller = *std::move(known);
  return Judge(may);
}

grpc::Status Door::Judge(const absl::Status& status) const {
  if (status.ok()) return grpc::Status::OK;
  const bool unknown = absl::IsUnauthenticated(status);
  if (observer_ != nullptr) observer_->OnRefused(unknown ? Refusal::kUnauthenticated : Refusal::kPermissionDenied);
  return {unknown ? grpc::StatusCode::UNAUTHENTICATED : grpc::StatusCode::PERMISSION_DENIED,
          std::string(status.message())};
}

}  // namespace icache
