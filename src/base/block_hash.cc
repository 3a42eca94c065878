#include "icache/base/block_hash.h"

namespace icache {

void StoreBigEndian64(uint64_t value, char* out) {
  for (int i = 7; i >= 0; --i) {
    out[i] = static_cast<char>(value & 0xff);
    value >>= 8;
  }
}

uint64_t LoadBigEndian64(const char* bytes) {
  uint64_t value = 0;
  for (int i = 0; i < 8; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

namespace {

constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();

ResolvedChain Malformed() { return {.form = ChainForm::kMalformed, .chain = {}, .total_tokens = 0}; }

ResolvedChain ResolvePacked(const ChainFields& fields, size_t max_blocks) {
  const size_t blocks = fields.block_hashes_u64.size();
  if (!fields.block_token_counts.empty() || fields.tokens_per_block <= 0 || blocks > max_blocks ||
      blocks > static_cast<size_t>(kMaxTokens / fields.tokens_per_block)) {
    return Malformed();
  }
  return {.form = ChainForm::kValid,
          .chain = Chain(BlockHashSpan(fields.block_hashes_u64), fields.tokens_per_block),
          .total_tokens = static_cast<int32_t>(blocks) * fields.tokens_per_block};
}

}  // namespace

ResolvedChain ResolveChain(const ChainFields& fields, size_t max_blocks) {
  const size_t blocks = fields.block_hashes.size();
  if (blocks == 0) {
    if (!fields.block_hashes_u64.empty()) return ResolvePacked(fields, max_blocks);
    return {.form = fields.block_token_counts.empty() ? ChainForm::kAbsent : ChainForm::kMismatched,
            .chain = {},
            .total_tokens = 0};
  }
  if (blocks != fields.block_token_counts.size()) {
    return {.form = ChainForm::kMismatched, .chain = {}, .total_tokens = 0};
  }
  if (blocks > max_blocks) return Malformed();
  int64_t total = 0;
  for (size_t i = 0; i < blocks; ++i) {
    const size_t bytes = fields.block_hashes[i].size();
    const int32_t tokens = fields.block_token_counts[i];
    if (bytes == 0 || bytes > kMaxBlockHashBytes || tokens < 0) return Malformed();
    total += tokens;
    if (total > kMaxTokens) return Malformed();
  }
  return {.form = ChainForm::kValid,
          .chain = Chain(BlockHashSpan(fields.block_hashes), fields.block_token_counts),
          .total_tokens = static_cast<int32_t>(total)};
}

}  // namespace icache
