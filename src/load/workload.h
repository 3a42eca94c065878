// Workload: the chains that a bench fills a daemon with, and the lookups it then asks.
//
// Chain i is held by `holders` consecutive replicas from number i on (modulo the replicas); a hit asks for a whole
// chain, a miss for one that nobody holds, not even its first block. Hashes are random and fixed by the seed. Immutable
// after construction, thus thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "load/connection.h"
#include "load/random.h"

namespace icache {

enum class ChainEncoding {
  kPacked,  // fields 103 and 104
  kBytes,   // fields 7 and 8
};

struct WorkloadOptions {
  size_t blocks = 64;       // of every chain, 1 to 65,536
  int32_t block_size = 16;  // tokens of a block, >= 1
  size_t chains = 1024;     // that are held, >= 1
  size_t replicas = 16;     // >= 1
  size_t holders = 4;       // of every chain, 1 to replicas. Held by all, a chain tells no replica from another
  double hit_ratio = 0.9;   // of the lookups, 0 to 1
  ChainEncoding encoding = ChainEncoding::kPacked;
  uint64_t seed = 1;
};

class Workload {
 public:
  Workload(const WorkloadOptions& options, const Target& target);

  // Reports every chain for each of its holders, after clearing what those replicas held.
  absl::Status Populate(const Connection& connection) const;
  // Clears all replicas.
  absl::Status Clear(const Connection& connection) const;

  // A hit or a miss, drawn from `random`. The request lives as long as the workload.
  const wire::LookupRouteRequest& Draw(SplitMix64* random) const;

  // An update of `replica` that holds nothing yet but the names.
  wire::CacheStateUpdate NewUpdate(const std::string& replica) const;

  const WorkloadOptions& options() const { return options_; }

 private:
  using ChainHashes = std::vector<uint64_t>;

  wire::LookupRouteRequest LookupOf(const ChainHashes& chain) const;
  void AddPrefix(const ChainHashes& chain, wire::CacheStateUpdate* update) const;

  const WorkloadOptions options_;
  const Target target_;
  std::vector<ChainHashes> chains_;
  std::vector<wire::LookupRouteRequest> hits_;  // by chain
  std::vector<wire::LookupRouteRequest> misses_;
};

}  // namespace icache
