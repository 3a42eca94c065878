// Content fingerprint: token ids -> chained block hashes, the routing key that every observer and asker computes alike.
//
// An engine's own block hashes may be seeded per process, so they cannot be compared across replicas; these can.
// Source: contract/fingerprint.md. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace icache {

inline constexpr uint64_t kFingerprintSeed = 1337;

// XXH3-64 of one block's token ids, each as 4 bytes little-endian. Any length, the empty block included.
uint64_t ContentHash(absl::Span<const uint32_t> block_token_ids);

// XXH3-64 of `parent` and `content`, each as 8 bytes little-endian: the prefix hash of the block after `parent`.
uint64_t ChainHash(uint64_t parent, uint64_t content);

// Replaces `prefix_hashes` by one hash per whole block of `block_size` tokens, root first; a shorter tail is dropped.
// With a `parent` the first block continues that prefix, else it starts a chain (its hash is its content hash).
// On the wire a hash is its 8 bytes big-endian (or the number itself in the packed fields). O(tokens).
// Errors: InvalidArgument for block_size < 1; `prefix_hashes` is then left empty.
absl::Status FingerprintPrefixes(absl::Span<const uint32_t> token_ids, int32_t block_size,
                                 std::optional<uint64_t> parent, std::vector<uint64_t>* prefix_hashes);

}  // namespace icache
