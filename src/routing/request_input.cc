#include "routing/request_input.h"

#include "icache/fingerprint/fingerprint.h"

namespace icache {
namespace {

std::optional<LookupKey> ExactKey(std::string_view prefix_hash, int32_t tokens) {
  const BlockHash hash(prefix_hash);
  if (!hash.IsValid()) return std::nullopt;
  return LookupKey{.kind = KeyKind::kExact, .hash = hash, .chain = {}, .tokens = tokens};
}

// Matched as a chain, or exactly by the last block when the tenant's policy turns chains off.
std::optional<LookupKey> FingerprintedKey(const LookupRequest& request, bool as_chain, const RouterOptions& options,
                                          std::vector<uint64_t>* prefix_hashes) {
  if (request.token_ids.size() > options.max_token_ids) return std::nullopt;
  const int32_t block_size = options.BlockSizeOf(request.model_id);
  if (!FingerprintPrefixes(request.token_ids, block_size, /*parent=*/std::nullopt, prefix_hashes).ok() ||
      prefix_hashes->empty()) {
    return std::nullopt;
  }
  const int32_t tokens = static_cast<int32_t>(prefix_hashes->size()) * block_size;
  if (!as_chain) {
    return LookupKey{.kind = KeyKind::kExact, .hash = BlockHash(prefix_hashes->back()), .chain = {}, .tokens = tokens};
  }
  return LookupKey{.kind = KeyKind::kChain,
                   .hash = {},
                   .chain = Chain(BlockHashSpan(absl::MakeConstSpan(*prefix_hashes)), block_size),
                   .tokens = tokens};
}

}  // namespace

bool HasChain(const ResolvedChain& resolved) {
  return resolved.form == ChainForm::kMalformed || resolved.form == ChainForm::kValid;
}

std::optional<LookupKey> ResolveKey(const LookupRequest& request, const ResolvedChain& resolved,
                                    const CachePolicy& policy, const RouterOptions& options,
                                    std::vector<uint64_t>* prefix_hashes) {
  const bool has_chain_fields = resolved.form != ChainForm::kAbsent;
  if (policy.enable_chain_matching && has_chain_fields) {
    if (resolved.form != ChainForm::kValid) return std::nullopt;
    return LookupKey{.kind = KeyKind::kChain, .hash = {}, .chain = resolved.chain, .tokens = resolved.total_tokens};
  }
  if (!request.prefix_hash.empty()) return ExactKey(request.prefix_hash, request.prefix_token_count);
  if (!request.token_ids.empty()) {
    return FingerprintedKey(request, policy.enable_chain_matching, options, prefix_hashes);
  }
  // No tokenizer is built in, so a prompt cannot be fingerprinted.
  if (!request.prompt_text.empty()) return std::nullopt;
  if (has_chain_fields) return std::nullopt;
  return LookupKey{.kind = KeyKind::kNothing, .hash = {}, .chain = {}, .tokens = request.prefix_token_count};
}

}  // namespace icache
