// The affinity pick: a replica for a prompt that nobody is known to hold, the same one every time while the scope's
// replicas stay the same, so that such prompts come to be warm somewhere. Source: contract/lookup.md step 9.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "icache/index/prefix_index.h"
#include "routing/gates/candidates.h"
#include "routing/request_input.h"

namespace icache {

// Hashes seeds with SHA-256. Thread-compatible; reuse one object to keep its memory.
class SeedHasher {
 public:
  SeedHasher();
  ~SeedHasher();
  SeedHasher(const SeedHasher&) = delete;
  SeedHasher& operator=(const SeedHasher&) = delete;

  // The first 8 bytes, big-endian, of SHA-256 over the seed of `key`: for a chain the length of each hash as 4 bytes
  // big-endian and then the hash, else the bytes of the hash. nullopt for a key without bytes. O(blocks).
  std::optional<uint64_t> Hash(const LookupKey& key);

 private:
  struct Context;
  const std::unique_ptr<Context> context_;
};

// The replica that `seed_hash` picks among those present in the view's scope and admitted by `candidates`; "" when
// there is none. As valid as the view and the candidates. `present` is scratch.
std::string_view PickReplica(const ScopeView& view, const CandidateFilter& candidates, uint64_t seed_hash,
                             std::vector<std::string_view>* present);

}  // namespace icache
