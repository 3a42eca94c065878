// CallObserver: is told of every call that has been answered or refused, for a log that follows single requests.
#pragma once

#include <cstddef>
#include <string_view>

#include "absl/time/time.h"

namespace icache {

// Views are valid only during OnCall(). What the client chooses has any bytes and, but for the two ids, any length.
struct CallRecord {
  std::string_view method;       // "LookupRoute", …; of a stream, each of its requests is a record, and its refusal
  std::string_view request_id;   // metadata x-request-id, at most kMaxCallIdBytes of it; "" = none
  std::string_view traceparent;  // metadata traceparent, likewise
  std::string_view tenant_id;    // "" in a refused call, and where the request names none
  std::string_view model_id;     // likewise
  std::string_view reason_code;  // of the answer, "" where it has none
  std::string_view refusal;      // why it was refused; "" = it was answered
  absl::Duration latency;        // from its arrival to its answer
};

inline constexpr size_t kMaxCallIdBytes = 128;

// Thread-safe.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  virtual void OnCall(const CallRecord& call) = 0;
};

}  // namespace icache
