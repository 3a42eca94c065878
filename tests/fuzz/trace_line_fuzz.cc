// A line of a trace: a request within its bounds, or an error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "load/trace_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto request = icache::ParseTraceLine(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!request.ok()) return 0;
  const bool bounded = !request->hash_ids.empty() && request->hash_ids.size() <= icache::kMaxTraceHashIds &&
                       request->input_tokens >= 1 && request->timestamp_ms >= 0;
  if (!bounded) std::abort();
  return 0;
}
