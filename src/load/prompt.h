// From a trace's ids to what a gateway would ask with: token ids, and their chain of block hashes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "load/trace_line.h"

namespace icache {

// The token at `position` (0 to 511) of the piece that `hash_id` names: a fixed function of both, so that equal ids
// give equal tokens and different ones do not.
uint32_t TraceToken(int64_t hash_id, int32_t position);

// Replaces `tokens` by the request's prompt: `input_tokens` of them, 512 for each id but the last.
void ExpandTokens(const TraceRequest& request, std::vector<uint32_t>* tokens);

// Turns requests into chains, one after another, with buffers that are used again.
class PromptExpander {
 public:
  // Requires: block_size >= 1.
  explicit PromptExpander(int32_t block_size) : block_size_(block_size) {}

  // One hash per whole block of the prompt, root first (contract/fingerprint.md). Valid until the next call.
  absl::Span<const uint64_t> Chain(const TraceRequest& request);

 private:
  const int32_t block_size_;
  std::vector<uint32_t> tokens_;
  std::vector<uint64_t> chain_;
};

}  // namespace icache
