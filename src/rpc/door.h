// Door: lets calls that take one role in, or says why not.
//
// The caller is recognised at each call, and on a stream at each message, so what is withdrawn is withdrawn at once.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "icache/access/access_observer.h"
#include "icache/access/access_rules.h"
#include "icache/base/published.h"
#include "icache/rpc/call_observer.h"
#include "rpc/recycled_message.h"

namespace icache {

// Thread-safe.
class Door {
 public:
  // `rules` may be null: then it stands open to all. The observers may be null. Nothing is owned.
  Door(const Published<AccessRules>* rules, AccessObserver* observer, Role role, CallObserver* calls)
      : rules_(rules), observer_(observer), role_(role), calls_(calls) {}

  // Who is to be told of the calls that come this way; null = nobody.
  CallObserver* calls() const { return calls_; }

  // Whether the caller has the role at all, whatever it asks. UNAUTHENTICATED or PERMISSION_DENIED.
  grpc::Status Admit(const grpc::ServerContext& context) const {
    std::optional<Caller> caller;
    return Enter(context, &caller);
  }
  // Whether the caller has the role for all tenants. Nobody is told of it.
  bool AdmitsForAll(const grpc::ServerContext& context) const;
  // Reads a request, which empties `bytes`, and decides whether the caller may have what it asks. As above, or INTERNAL
  // when there is no such request.
  template <typename Request>
  grpc::Status Admit(const grpc::ServerContext& context, grpc::ByteBuffer* bytes,
                     RecycledMessage<Request>* request) const {
    std::optional<Caller> caller;
    if (grpc::Status status = Enter(context, &caller); !status.ok()) {
      bytes->Clear();
      return status;
    }
    if (grpc::Status status = request->Parse(bytes); !status.ok()) return status;
    return Pass(caller, request->message());
  }

 private:
  // Fills `caller` unless the door stands open.
  grpc::Status Enter(const grpc::ServerContext& context, std::optional<Caller>* caller) const {
    return rules_ == nullptr ? grpc::Status::OK : Recognise(context, caller);
  }

  // Whether the caller that Enter() has filled in may have what `request` asks: the role for its tenant, or, where a
  // request is about no single tenant, for all. PERMISSION_DENIED.
  template <typename Request>
  grpc::Status Pass(const std::optional<Caller>& caller, const Request& request) const {
    if (!caller.has_value()) return grpc::Status::OK;
    if constexpr (requires { request.tenant_id(); }) {
      return Judge(caller->May(role_, request.tenant_id()));
    } else {
      return Judge(caller->MayForAll(role_));
    }
  }

  absl::StatusOr<Caller> Identify(const grpc::ServerContext& context) const;
  grpc::Status Recognise(const grpc::ServerContext& context, std::optional<Caller>* caller) const;
  // As gRPC's; a refusal is told to the observer.
  grpc::Status Judge(const absl::Status& status) const;

  const Published<AccessRules>* const rules_;
  AccessObserver* const observer_;
  const Role role_;
  CallObserver* const calls_;
};

}  // namespace icache
