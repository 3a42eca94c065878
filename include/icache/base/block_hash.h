// Block hashes and chains of them, as views.
//
// A block hash is 1 to 64 opaque bytes, compared byte for byte. Nearly all are 8 bytes long; such a hash is handled as
// the 64-bit number whose big-endian bytes it is ("packed"), and any other width as a view of its bytes ("wide").
// Both ways in which the wire spells an 8-byte hash therefore give the same BlockHash.
//
// Everything here is a small value that owns nothing: what it was made from must outlive it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>

#include "absl/types/span.h"

namespace icache {

inline constexpr size_t kMaxBlockHashBytes = 64;
inline constexpr size_t kPackedHashBytes = 8;

// The 8 bytes of `value`, most significant first, written to `out`.
void StoreBigEndian64(uint64_t value, char* out);
// The inverse: reads 8 bytes.
uint64_t LoadBigEndian64(const char* bytes);

class BlockHash {
 public:
  // The empty hash, which is no valid key.
  BlockHash() = default;
  explicit BlockHash(uint64_t packed) : number_(packed), bytes_(nullptr), packed_(true) {}
  // Any length; IsValid() tells whether it can be a key.
  explicit BlockHash(std::string_view bytes) {
    if (bytes.size() == kPackedHashBytes) {
      number_ = LoadBigEndian64(bytes.data());
      packed_ = true;
    } else {
      number_ = bytes.size();
      bytes_ = bytes.data();
    }
  }

  bool IsPacked() const { return packed_; }
  // Requires IsPacked().
  uint64_t packed() const { return number_; }
  // Requires !IsPacked().
  std::string_view wide() const { return {bytes_, static_cast<size_t>(number_)}; }

  size_t size() const { return packed_ ? kPackedHashBytes : static_cast<size_t>(number_); }
  // 1 to 64 bytes.
  bool IsValid() const { return packed_ || (number_ >= 1 && number_ <= kMaxBlockHashBytes); }

  friend bool operator==(const BlockHash& a, const BlockHash& b) {
    if (a.packed_ != b.packed_) return false;
    return a.packed_ ? a.number_ == b.number_ : a.wide() == b.wide();
  }

 private:
  uint64_t number_ = 0;          // the packed value, or the number of bytes
  const char* bytes_ = nullptr;  // wide only
  bool packed_ = false;
};

// A read-only list of block hashes in either of the two forms the wire has.
class BlockHashSpan {
 public:
  BlockHashSpan() = default;
  explicit BlockHashSpan(absl::Span<const uint64_t> packed) : packed_(packed.data()), size_(packed.size()) {}
  explicit BlockHashSpan(absl::Span<const std::string_view> bytes) : bytes_(bytes.data()), size_(bytes.size()) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  BlockHash operator[](size_t i) const { return packed_ != nullptr ? BlockHash(packed_[i]) : BlockHash(bytes_[i]); }
  // The numbers themselves when the list was given in packed form, else an empty span.
  absl::Span<const uint64_t> packed() const {
    return packed_ != nullptr ? absl::MakeConstSpan(packed_, size_) : absl::Span<const uint64_t>();
  }

 private:
  const uint64_t* packed_ = nullptr;
  const std::string_view* bytes_ = nullptr;
  size_t size_ = 0;
};

// A well-formed chain: block hashes from the root on, each with the number of tokens in that block alone.
class Chain {
 public:
  Chain() = default;
  // Requires: hashes.size() == block_tokens.size(), hashes valid, tokens >= 0 with a sum within int32.
  Chain(BlockHashSpan hashes, absl::Span<const int32_t> block_tokens)
      : hashes_(hashes), block_tokens_(block_tokens.data()) {}
  // Every block has `tokens_per_block` tokens.
  Chain(BlockHashSpan hashes, int32_t tokens_per_block) : hashes_(hashes), tokens_per_block_(tokens_per_block) {}

  size_t size() const { return hashes_.size(); }
  bool empty() const { return hashes_.empty(); }
  const BlockHashSpan& hashes() const { return hashes_; }
  BlockHash hash(size_t i) const { return hashes_[i]; }
  // Whether all blocks have the same number of tokens by construction.
  bool is_uniform() const { return block_tokens_ == nullptr; }
  int32_t tokens(size_t i) const { return block_tokens_ != nullptr ? block_tokens_[i] : tokens_per_block_; }

 private:
  BlockHashSpan hashes_;
  const int32_t* block_tokens_ = nullptr;
  int32_t tokens_per_block_ = 0;
};

// The four wire fields that can spell a chain, as they came (contract/wire.md).
struct ChainFields {
  absl::Span<const std::string_view> block_hashes;
  absl::Span<const int32_t> block_token_counts;
  absl::Span<const uint64_t> block_hashes_u64;  // extension 103
  int32_t tokens_per_block = 0;                 // extension 104
};

enum class ChainForm {
  kAbsent,      // no field is set (a lone tokens_per_block says nothing)
  kMismatched,  // block_hashes and block_token_counts differ in length: not a chain
  kMalformed,   // a chain by its shape, but with a count, a hash or a sum out of bounds
  kValid,
};

struct ResolvedChain {
  ChainForm form = ChainForm::kAbsent;
  Chain chain;               // kValid only
  int32_t total_tokens = 0;  // kValid only: the sum of the counts
};

// Reads the fields by the one rule that lookups and observations share. `max_blocks` bounds the length (longer is
// kMalformed). O(blocks). Source: contract/wire.md "Extensions", lookup.md step 3, index.md.
ResolvedChain ResolveChain(const ChainFields& fields, size_t max_blocks = std::numeric_limits<size_t>::max());

}  // namespace icache
