// One line of a request trace: when a prompt came, how long it was, and which prompts it shares a prefix with.
//
// The format is that of the public Mooncake traces, one JSON object a line:
//   {"timestamp": 0, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1, 2]}
// `hash_ids` names the prompt in pieces of 512 tokens, the last of which may be shorter. Equal ids at equal positions
// mean equal prefixes. There is no text.
//
// The reader is strict: it takes the four keys, each once, in any order, with whole non-negative numbers, and nothing
// else. Its memory and time are bounded by the line, and the line by kMaxTraceLineBytes, so that any bytes may be fed
// to it. Pure functions, thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace icache {

inline constexpr int32_t kTraceIdTokens = 512;          // tokens that one hash id stands for
inline constexpr size_t kMaxTraceHashIds = 2048;        // of one request: 1,048,576 tokens
inline constexpr size_t kMaxTraceLineBytes = 64 << 10;  // without the line feed
inline constexpr int64_t kMaxTraceNumber = int64_t{1} << 53;

struct TraceRequest {
  int64_t timestamp_ms = 0;  // since the start of the trace
  int32_t input_tokens = 0;  // >= 1, in (512 * (hash_ids.size() - 1), 512 * hash_ids.size()]
  int32_t output_tokens = 0;
  std::vector<int64_t> hash_ids = {};  // 1 to kMaxTraceHashIds of them, each in [0, kMaxTraceNumber]
};

// Errors: InvalidArgument that begins with the column (from 1) and names what was expected there.
absl::StatusOr<TraceRequest> ParseTraceLine(std::string_view line);

}  // namespace icache
