// HashChainProof: whether an engine's hashes are proven to depend on all tokens up to the end of their block.
//
// Older versions of SGLang hash the tokens of one page alone, so one hash can stand for several blocks. Newer ones
// chain them: the digest of a page is the SHA-256 of the digest of the page before it, if there is one, and of its
// tokens, 32 bits each, least significant byte first; its hash is the first 64 bits of that, most significant byte
// first. Nothing in the stream says which it is, but a second page whose hash comes out so proves that they are
// chained.
//
// Pure. Thread-compatible. Source: contract/engine-events.md.
#pragma once

#include <optional>
#include <string>

#include "icache/engine/kv_events.h"

namespace icache {

class HashChainProof {
 public:
  // Looks for the proof in `event`, where it is not found yet. O(tokens of its first two blocks).
  void Look(const BlockStored& event);
  bool found() const { return found_; }
  // The engine is another, perhaps of another version.
  void Forget();

 private:
  bool found_ = false;
  std::optional<EngineHash> root_;  // the last first page whose hash came out so
  std::string root_digest_;
};

}  // namespace icache
