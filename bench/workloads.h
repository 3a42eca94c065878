// The workloads on which indexes are compared: W1 (a trace of Mooncake's), W2, W3a, W3b, M-u and M-s8, and three after
// published descriptions: pinned, fragmented and agentic.
//
// A workload is plain data that any index can be driven with: chains of block hashes and, by phase, operations on
// stretches of them. Everything is drawn from SplitMix64 with a fixed seed, so the same workload comes out on every
// machine; Sums tells whether it did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace icache::bench {

// SplitMix64, Sebastiano Vigna, public domain.
class SplitMix {
 public:
  explicit SplitMix(uint64_t seed) : state_(seed) {}
  uint64_t operator()();

 private:
  uint64_t state_;
};

// Consecutive blocks of Workload::seq.
struct Stretch {
  uint64_t first = 0;
  uint32_t size = 0;
};

struct Op {
  enum Kind : uint8_t { kStore, kRemove, kLookup };
  Kind kind = kLookup;
  uint16_t replica = 0;  // of stores and removals
  Stretch blocks = {};
};

struct Workload {
  std::string name = {};
  uint32_t replicas = 0;
  uint64_t first_loc = 0;  // content hash of the first block: a check value
  std::vector<uint64_t> seq = {};
  std::vector<Stretch> chains = {};
  std::vector<Op> setup = {};   // phase 0
  std::vector<Op> hits = {};    // phase 1
  std::vector<Op> novels = {};  // W2 phase 2: a known head with a tail that nobody holds
  std::vector<Op> misses = {};  // W2 phase 3
  std::vector<Op> churn = {};   // phase 4
};

// What a phase of lookups must sum up to, whatever the index.
struct Sums {
  uint64_t depth = 0;     // of the deepest replica of each lookup
  uint32_t checksum = 0;  // sum over lookups and replicas of (replica + 1) * depth, modulo 2^32

  friend bool operator==(const Sums&, const Sums&) = default;
};

// W1: requests in file order, and what a router under an infinite cache would have stored. `expand` is the number of
// blocks per id of the trace. Fills `replay` with the sums of its own lookups. Ends the program if `path` is
// unreadable.
Workload MakeW1(const std::string& path, uint32_t replicas, uint32_t expand, Sums* replay);
Workload MakeW2();
Workload MakeW3a();
Workload MakeW3b();
// M-u, one holder; M-s8, eight.
Workload MakeMemory(const char* name, uint64_t seed, size_t chains, uint32_t holders);

// Prefix families with 1, 8 or 64 of 256 replicas as holders; see `MakeFamilies` for the shapes.
struct FamilyShape {
  const char* name;
  uint64_t seed;
  uint64_t shared_holdings;         // (block, replica) pairs of shared parts
  double portions[3];               // of them, by families with 1, 8 and 64 holders
  uint32_t min_length, max_length;  // of the shared part, log-uniform
  uint32_t min_tail, max_tail;      // that each holder adds, uniform
  double lose_one;                  // of (family, holder) lose one interior block
  double lose_each;                 // of each interior block, the chance that a holder loses it
};
FamilyShape PinnedShape();
FamilyShape FragmentedShape();
FamilyShape AgenticShape();
// Reported in batches of 8 blocks in order per holder, holders interleaved at random, 5 % of batches sent twice; then
// the losses. 100,000 lookups: 80 % hits at depths spread over the families, 20 % misses.
Workload MakeFamilies(const FamilyShape& shape);

// Sums over the pairs that a workload's phase 0 leaves behind.
uint64_t LivePairs(const Workload& workload);

}  // namespace icache::bench
