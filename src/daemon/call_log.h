// CallLog: a debug line for each gRPC call. Thread-safe.
#pragma once

#include <string_view>

#include "absl/time/time.h"
#include "icache/index/observation.h"
#include "icache/rpc/call_observer.h"
#include "icache/telemetry/logging.h"

namespace icache {

class CallLog final : public CallObserver {
 public:
  // `logger` is not owned.
  explicit CallLog(Logger* logger) : logger_(logger) {}

  void OnCall(const CallRecord& call) override {
    // No name that the index would take is longer.
    const auto name = [](std::string_view text) { return text.substr(0, kMaxNameBytes); };
    logger_->Debug("call", {{"method", call.method},
                            {"request_id", call.request_id},
                            {"traceparent", call.traceparent},
                            {"tenant", name(call.tenant_id)},
                            {"model", name(call.model_id)},
                            {"reason", call.reason_code},
                            {"refusal", call.refusal},
                            {"us", absl::ToInt64Microseconds(call.latency)}});
  }

 private:
  Logger* const logger_;
};

}  // namespace icache
