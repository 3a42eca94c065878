// AccessObserver: is told of calls that are not let in.
#pragma once

namespace icache {

enum class Refusal {
  kUnauthenticated,   // the caller is not known
  kPermissionDenied,  // the caller is known, and this is not granted
};

// Implemented by telemetry; thread-safe.
class AccessObserver {
 public:
  virtual ~AccessObserver() = default;
  virtual void OnRefused(Refusal refusal) = 0;
};

}  // namespace icache
