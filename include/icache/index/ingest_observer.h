// IngestObserver: told about every update and event that was offered to the index, for metrics.
#pragma once

#include <string_view>

#include "absl/time/time.h"
#include "icache/index/observation.h"

namespace icache {

// Implemented by telemetry; thread-safe. Views are valid only during the call.
class IngestObserver {
 public:
  virtual ~IngestObserver() = default;
  virtual void OnUpdate(std::string_view model_id, const ApplyResult& result) = 0;
  virtual void OnEvent(CacheEventType type, const ApplyResult& result) = 0;
};

}  // namespace icache
