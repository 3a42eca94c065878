#include "icache/fingerprint/fingerprint.h"

#include <bit>
#include <cstddef>
#include <string>

#include <xxhash.h>

namespace icache {

// Token ids and hashes are hashed as they lie in memory, which is the little-endian form the fingerprint asks for.
static_assert(std::endian::native == std::endian::little, "the fingerprint hashes integers in little-endian form");

uint64_t ContentHash(absl::Span<const uint32_t> block_token_ids) {
  return XXH3_64bits_withSeed(block_token_ids.data(), block_token_ids.size() * sizeof(uint32_t), kFingerprintSeed);
}

uint64_t ChainHash(uint64_t parent, uint64_t content) {
  const uint64_t pair[2] = {parent, content};
  return XXH3_64bits_withSeed(pair, sizeof(pair), kFingerprintSeed);
}

absl::Status FingerprintPrefixes(absl::Span<const uint32_t> token_ids, int32_t block_size,
                                 std::optional<uint64_t> parent, std::vector<uint64_t>* prefix_hashes) {
  prefix_hashes->clear();
  if (block_size < 1) {
    return absl::InvalidArgumentError("block size must be at least 1, got " + std::to_string(block_size));
  }
  const size_t size = static_cast<size_t>(block_size);
  const size_t blocks = token_ids.size() / size;
  prefix_hashes->reserve(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    const uint64_t content = ContentHash(token_ids.subspan(i * size, size));
    parent = parent.has_value() ? ChainHash(*parent, content) : content;
    prefix_hashes->push_back(*parent);
  }
  return absl::OkStatus();
}

}  // namespace icache
