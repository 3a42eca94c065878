// Which of a request's inputs is the key of its lookup. Source: contract/lookup.md steps 2 and 3.
//
// A request may carry a chain, a single hash, token ids and a prompt at once; exactly one of them counts. Reading them
// needs neither the index nor a lock. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "icache/base/block_hash.h"
#include "icache/policy/cache_policy.h"
#include "icache/routing/lookup.h"
#include "icache/routing/router.h"

namespace icache {

enum class KeyKind {
  kNothing,  // no input at all: an exact lookup of nothing, which matches nothing
  kExact,    // one hash, matched by itself
  kChain,    // a chain, matched block by block; the only kind for which a chain was asked
};

// What a lookup matches. The hashes point into the request or into the fingerprint buffer.
struct LookupKey {
  KeyKind kind = KeyKind::kNothing;
  BlockHash hash;      // kExact only; a valid hash
  Chain chain;         // kChain only; not empty
  int32_t tokens = 0;  // what the request announces, for minimumPrefixTokens; may be negative unless kChain
};

// Whether the request has a chain at all as requireChain counts it: a malformed one has, arrays of unequal length have
// not.
bool HasChain(const ResolvedChain& resolved);

// The key of `request`, of which `resolved` is the chain. nullopt when the input cannot be used: the call is then
// NO_HINT at once, without the index. `prefix_hashes` holds the hashes of a key made from token ids and must outlive
// it. O(blocks + token ids).
std::optional<LookupKey> ResolveKey(const LookupRequest& request, const ResolvedChain& resolved,
                                    const CachePolicy& policy, const RouterOptions& options,
                                    std::vector<uint64_t>* prefix_hashes);

}  // namespace icache
