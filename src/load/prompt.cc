#include "load/prompt.h"

#include <algorithm>
#include <cassert>
#include <optional>

#include "absl/status/status.h"
#include "icache/fingerprint/fingerprint.h"
#include "load/random.h"

namespace icache {

uint32_t TraceToken(int64_t hash_id, int32_t position) {
  constexpr int kVocabularyBits = 17;  // 131,072 token ids, about as many as today's models have
  const uint64_t place = static_cast<uint64_t>(hash_id) * kTraceIdTokens + static_cast<uint64_t>(position);
  return static_cast<uint32_t>(SplitMix64(place).Next() >> (64 - kVocabularyBits));
}

void ExpandTokens(const TraceRequest& request, std::vector<uint32_t>* tokens) {
  tokens->clear();
  tokens->reserve(static_cast<size_t>(request.input_tokens));
  int32_t left = request.input_tokens;
  for (const int64_t id : request.hash_ids) {
    const int32_t piece = std::min(left, kTraceIdTokens);
    for (int32_t position = 0; position < piece; ++position) tokens->push_back(TraceToken(id, position));
    left -= piece;
  }
}

absl::Span<const uint64_t> PromptExpander::Chain(const TraceRequest& request) {
  ExpandTokens(request, &tokens_);
  const absl::Status status = FingerprintPrefixes(tokens_, block_size_, std::nullopt, &chain_);
  assert(status.ok());  // it fails for a block size below 1 only
  static_cast<void>(status);
  return chain_;
}

}  // namespace icache
