// Door: lets calls that take one role in, or says why not.
//
// The caller is recognised at each call, and on a stream at each message, so what is withdrawn is withdrawn at once.
// Each queue has doors of its own, so its thread meets no other at them.
#pragma once

#include <grpcpp/grpcpp.h>

#include <optional>
#include <string_view>

#include "absl/status/statusor.h"
#include "icache/access/access_observer.h"
#include "icache/access/access_rules.h"
#include "icache/base/published.h"
#include "icache/rpc/call_observer.h"
#include "icache/rpc/rpc_server.h"
#include "rpc/recycled_message.h"

namespace icache {

class Door {
 public:
  // Without rules in `backend` it stands open to all. Nothing is owned.
  Door(const RpcBackend& backend, Role role)
      : rules_(backend.access), observer_(backend.access_observer), role_(role), calls_(backend.call_observer) {}

  // Who is to be told of the calls that come this way; null = nobody.
  CallObserver* calls() const { return calls_; }

  // Whether the caller has the role at all, whatever it asks. UNAUTHENTICATED or PERMISSION_DENIED.
  grpc::Status Admit(const grpc::ServerContext& context) {
    std::optional<Caller> caller;
    return Enter(context, &caller);
  }
  // Whether the caller has the role for all tenants. Nobody is told of it.
  bool AdmitsForAll(const grpc::ServerContext& context);
  // Reads a request, which empties `bytes`, and decides whether the caller may have what it asks. As above, or INTERNAL
  // when there is no such request.
  template <typename Request>
  grpc::Status Admit(const grpc::ServerContext& context, grpc::ByteBuffer* bytes, RecycledMessage<Request>* request) {
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
  grpc::Status Enter(const grpc::ServerContext& context, std::optional<Caller>* caller) {
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

  // The caller lasts until the next is identified.
  absl::StatusOr<Caller> Identify(const grpc::ServerContext& context);
  grpc::Status Recognise(const grpc::ServerContext& context, std::optional<Caller>* caller);
  // As gRPC's; a refusal is told to the observer.
  grpc::Status Judge(const absl::Status& status) const;

  const Published<AccessRules>* const rules_;
  AccessObserver* const observer_;
  const Role role_;
  CallObserver* const calls_;
  Published<AccessRules>::Reader reader_;
};

// The doors of one queue, by the role they take.
struct Doors {
  explicit Doors(const RpcBackend& backend)
      : lookup(backend, Role::kLookup), observe(backend, Role::kObserve), admin(backend, Role::kAdmin) {}

  Door lookup;
  Door observe;
  Door admin;
};

}  // namespace icache
