// ReportCall: one call, as a CallObserver is told of it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <string_view>
#include <variant>

#include "absl/time/time.h"
#include "icache/rpc/call_observer.h"

namespace icache {

// The first value of a call's metadata under `key`, cut to kMaxCallIdBytes; "" without one. Valid as long as `context`.
inline std::string_view CallIdIn(const grpc::ServerContext& context, const char* key) {
  const auto found = context.client_metadata().find(key);
  if (found == context.client_metadata().end()) return "";
  return std::string_view(found->second.data(), found->second.size()).substr(0, kMaxCallIdBytes);
}

// `observer` may be null. Neither message is looked at when `status` says that the call was refused.
template <typename Request, typename Response>
void ReportCall(CallObserver* observer, std::string_view method, const grpc::ServerContext& context,
                const Request& request, const Response& response, const grpc::Status& status, absl::Duration latency) {
  if (observer == nullptr) return;
  CallRecord call = {.method = method,
                     .request_id = CallIdIn(context, "x-request-id"),
                     .traceparent = CallIdIn(context, "traceparent"),
                     .tenant_id = {},
                     .model_id = {},
                     .reason_code = {},
                     .refusal = {},
                     .latency = latency};
  const std::string refusal = status.error_message();
  if (status.ok()) {
    if constexpr (requires { request.tenant_id(); }) call.tenant_id = request.tenant_id();
    if constexpr (requires { request.model_id(); }) call.model_id = request.model_id();
    if constexpr (requires { response.reason_code(); }) call.reason_code = response.reason_code();
  } else {
    call.refusal = refusal;
  }
  observer->OnCall(call);
}

// A call of a stream that was refused with `status` before it was open.
inline void ReportRefusal(CallObserver* observer, std::string_view method, const grpc::ServerContext& context,
                          const grpc::Status& status) {
  ReportCall(observer, method, context, std::monostate(), std::monostate(), status, absl::ZeroDuration());
}

}  // namespace icache
