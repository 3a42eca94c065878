#include "icache/engine/hash_chain_proof.h"

#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "icache/base/block_hash.h"

namespace icache {
namespace {

// The digest of a page behind the one of digest `before`, "" = none. Empty when libcrypto fails, as it does without
// memory alone.
std::string DigestOf(const std::string& before, absl::Span<const uint32_t> tokens) {
  std::string bytes = before;
  for (const uint32_t token : tokens) {
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(token >> shift);
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest;
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1) size = 0;
  return std::string(digest.begin(), digest.begin() + size);
}

}  // namespace

void HashChainProof::Look(const BlockStored& event) {
  if (found_ || (event.parent.has_value() && event.parent != root_)) return;
  std::string before = event.parent.has_value() ? root_digest_ : "";
  const size_t size = static_cast<size_t>(event.block_size);
  for (size_t i = 0; i < event.block_hashes.size() && !found_; ++i) {
    std::string digest = DigestOf(before, absl::MakeConstSpan(event.token_ids).subspan(i * size, size));
    if (digest.empty() || EngineHash(LoadBigEndian64(digest.data())) != event.block_hashes[i]) return;
    found_ = !before.empty();
    root_ = event.block_hashes[i];
    root_digest_ = before = std::move(digest);
  }
}

void HashChainProof::Forget() { *this = HashChainProof(); }

}  // namespace icache
