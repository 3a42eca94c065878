#include "bench/workloads.h"

#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unordered_map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace icache::bench {
namespace {

constexpr uint32_t kLookups = 100'000;

// The chained hash of a block: what an engine would report.
uint64_t Chained(uint64_t parent, uint64_t loc) {
  const uint64_t bytes[2] = {parent, loc};
  return XXH3_64bits(bytes, sizeof bytes);
}

// Appends chains of blocks to a workload.
class ChainWriter {
 public:
  explicit ChainWriter(Workload* workload) : workload_(*workload) {}

  void Begin() {
    parent_ = 0;
    workload_.chains.push_back({.first = workload_.seq.size(), .size = 0});
  }
  void Add(uint64_t loc) {
    if (workload_.seq.empty()) workload_.first_loc = loc;
    parent_ = Chained(parent_, loc);
    workload_.seq.push_back(parent_);
    ++workload_.chains.back().size;
  }
  void Random(SplitMix& random, size_t blocks) {
    Begin();
    for (size_t i = 0; i < blocks; ++i) Add(random());
  }

 private:
  Workload& workload_;
  uint64_t parent_ = 0;
};

std::vector<uint64_t> Draw(SplitMix& random, size_t count) {
  std::vector<uint64_t> drawn(count);
  for (uint64_t& each : drawn) each = random();
  return drawn;
}

template <typename T>
void Shuffle(std::vector<T>& list, SplitMix& random) {
  for (size_t i = list.size(); i-- > 1;) std::swap(list[i], list[random() % (i + 1)]);
}

Stretch Part(const Stretch& chain, uint32_t first, uint32_t size) {
  return {.first = chain.first + first, .size = size};
}

}  // namespace

uint64_t SplitMix::operator()() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

Workload MakeW1(const std::string& path, uint32_t replicas, uint32_t expand, Sums* replay) {
  Workload workload{.name = "w1_" + std::to_string(replicas) + "_x" + std::to_string(expand), .replicas = replicas};
  std::ifstream file(path);
  if (!file) {
    std::fprintf(stderr, "cannot read the trace %s\n", path.c_str());
    std::exit(1);
  }
  ChainWriter writer(&workload);
  for (std::string line; std::getline(file, line);) {
    const size_t list = line.find("\"hash_ids\": [");
    if (list == std::string::npos) continue;
    writer.Begin();
    for (const char* at = line.c_str() + list + 13; *at != ']' && *at != '\0';) {
      char* end = nullptr;
      const uint64_t id = std::strtoull(at, &end, 10);
      for (uint32_t j = 0; j < expand; ++j) {
        char bytes[12];
        std::memcpy(bytes, &id, 8);
        std::memcpy(bytes + 8, &j, 4);
        writer.Add(XXH3_64bits(bytes, sizeof bytes));
      }
      at = end + std::strspn(end, ", ");
    }
  }

  // Routing under an infinite cache: who holds a block holds all before it, so a bit set per block tells the depths.
  absl::flat_hash_map<uint64_t, uint64_t> holders;
  std::vector<uint64_t> stored(replicas, 0);
  uint32_t round_robin = 0;
  *replay = {};
  std::vector<uint32_t> depth(replicas);
  for (const Stretch& chain : workload.chains) {
    std::fill(depth.begin(), depth.end(), 0);
    uint64_t running = replicas == 64 ? ~uint64_t{0} : (uint64_t{1} << replicas) - 1;
    uint32_t length = 0;
    const auto drop_out = [&](uint64_t leaving) {
      for (; leaving != 0; leaving &= leaving - 1) depth[static_cast<size_t>(__builtin_ctzll(leaving))] = length;
    };
    for (; length < chain.size && running != 0; ++length) {
      auto found = holders.find(workload.seq[chain.first + length]);
      const uint64_t mask = found == holders.end() ? 0 : found->second;
      drop_out(running & ~mask);
      running &= mask;
    }
    drop_out(running);
    const uint32_t best = *std::max_element(depth.begin(), depth.end());
    replay->depth += best;
    for (uint32_t r = 0; r < replicas; ++r) replay->checksum += (r + 1) * depth[r];
    uint32_t chosen = replicas;
    if (2 * best >= chain.size) {
      for (uint32_t r = 0; r < replicas; ++r) {
        if (depth[r] == best && (chosen == replicas || stored[r] < stored[chosen])) chosen = r;
      }
    } else {
      chosen = round_robin++ % replicas;
    }
    const uint32_t held = depth[chosen];
    if (held == chain.size) continue;
    const Stretch rest = Part(chain, held, chain.size - held);
    workload.setup.push_back({.kind = Op::kStore, .replica = static_cast<uint16_t>(chosen), .blocks = rest});
    stored[chosen] += rest.size;
    for (uint32_t i = 0; i < rest.size; ++i) holders[workload.seq[rest.first + i]] |= uint64_t{1} << chosen;
  }
  for (const Stretch& chain : workload.chains) workload.hits.push_back({.blocks = chain});
  SplitMix random(99);
  Shuffle(workload.hits, random);
  return workload;
}

Workload MakeW2() {
  constexpr uint32_t kHead = 128;
  constexpr uint32_t kSessions = 1000, kExtras = 2048, kNovels = 1024, kMisses = 1024, kReplicas = 8;
  Workload workload{.name = "w2", .replicas = kReplicas};
  SplitMix random(2);
  const std::vector<uint64_t> head = Draw(random, kHead);
  ChainWriter writer(&workload);
  for (uint32_t i = 0; i < kSessions + kExtras + kNovels; ++i) {
    writer.Begin();
    for (uint64_t loc : head) writer.Add(loc);
    for (uint32_t j = 0; j < kHead; ++j) writer.Add(random());
  }
  for (uint32_t i = 0; i < kMisses; ++i) writer.Random(random, 2 * kHead);

  const auto tail = [&](Op::Kind kind, size_t chain, size_t replica) {
    return Op{
        .kind = kind, .replica = static_cast<uint16_t>(replica), .blocks = Part(workload.chains[chain], kHead, kHead)};
  };
  const auto extra = [&](Op::Kind kind, size_t k) { return tail(kind, kSessions + k, k % kReplicas); };
  for (uint16_t r = 0; r < kReplicas; ++r) {
    workload.setup.push_back({.kind = Op::kStore, .replica = r, .blocks = Part(workload.chains[0], 0, kHead)});
  }
  for (size_t i = 0; i < kSessions; ++i) workload.setup.push_back(tail(Op::kStore, i, i % kReplicas));
  for (size_t k = 1792; k < kExtras; ++k) workload.setup.push_back(extra(Op::kStore, k));
  const auto lookups = [&](std::vector<Op>* ops, size_t first, size_t count) {
    for (uint32_t i = 0; i < kLookups; ++i) ops->push_back({.blocks = workload.chains[first + random() % count]});
  };
  lookups(&workload.hits, 0, kSessions);
  lookups(&workload.novels, kSessions + kExtras, kNovels);
  lookups(&workload.misses, kSessions + kExtras + kNovels, kMisses);
  for (size_t k = 0; k < kExtras; ++k) {
    workload.churn.push_back(extra(Op::kStore, k));
    workload.churn.push_back(extra(Op::kRemove, (k + 1792) % kExtras));
  }
  return workload;
}

Workload MakeW3a() {
  constexpr uint32_t kChains = 65'536, kReaders = 1024, kHeld = 16'384, kReplicas = 64;
  Workload workload{.name = "w3a", .replicas = kReplicas};
  SplitMix random(3);
  ChainWriter writer(&workload);
  for (uint32_t i = 0; i < kChains + kReaders; ++i) writer.Random(random, 64);
  const auto op = [&](Op::Kind kind, size_t chain, size_t number) {
    return Op{.kind = kind, .replica = static_cast<uint16_t>(number % kReplicas), .blocks = workload.chains[chain]};
  };
  for (size_t i = 0; i < kReaders; ++i) workload.setup.push_back(op(Op::kStore, kChains + i, i));
  for (size_t i = 0; i < kHeld; ++i) workload.setup.push_back(op(Op::kStore, i, i));
  for (uint32_t i = 0; i < kLookups; ++i) {
    workload.hits.push_back({.blocks = workload.chains[kChains + random() % kReaders]});
  }
  for (size_t k = 0; k < kChains; ++k) {
    workload.churn.push_back(op(Op::kRemove, k, k));
    const size_t next = (k + kHeld) % kChains;
    workload.churn.push_back(op(Op::kStore, next, next));
  }
  return workload;
}

Workload MakeW3b() {
  constexpr uint32_t kChains = 4096, kReplicas = 64, kRounds = 65'536;
  Workload workload{.name = "w3b", .replicas = kReplicas};
  SplitMix random(4);
  ChainWriter writer(&workload);
  for (uint32_t i = 0; i < kChains; ++i) writer.Random(random, 64);
  using Pair = std::pair<uint16_t, uint32_t>;
  std::vector<Pair> present, absent;
  for (uint16_t r = 0; r < kReplicas; ++r) {
    for (uint32_t i = 0; i < kChains; ++i) (random() % 4 == 0 ? present : absent).push_back({r, i});
  }
  Shuffle(present, random);
  const auto op = [&](Op::Kind kind, const Pair& pair) {
    return Op{.kind = kind, .replica = pair.first, .blocks = workload.chains[pair.second]};
  };
  for (const Pair& pair : present) workload.setup.push_back(op(Op::kStore, pair));
  for (uint32_t i = 0; i < kLookups; ++i) workload.hits.push_back({.blocks = workload.chains[random() % kChains]});
  for (uint32_t i = 0; i < kRounds; ++i) {
    Pair& a = absent[random() % absent.size()];
    Pair& b = present[random() % present.size()];
    workload.churn.push_back(op(Op::kStore, a));
    workload.churn.push_back(op(Op::kRemove, b));
    std::swap(a, b);
  }
  return workload;
}

Workload MakeMemory(const char* name, uint64_t seed, size_t chains, uint32_t holders) {
  constexpr size_t kReplicas = 64;
  Workload workload{.name = name, .replicas = kReplicas};
  SplitMix random(seed);
  ChainWriter writer(&workload);
  for (size_t i = 0; i < chains; ++i) writer.Random(random, 64);
  for (size_t j = 0; j < holders; ++j) {
    for (size_t i = 0; i < chains; ++i) {
      workload.setup.push_back({.kind = Op::kStore,
                                .replica = static_cast<uint16_t>((i + 8 * j) % kReplicas),
                                .blocks = workload.chains[i]});
    }
  }
  for (uint32_t i = 0; i < kLookups; ++i) workload.hits.push_back({.blocks = workload.chains[random() % chains]});
  return workload;
}

FamilyShape PinnedShape() { return {"pinned", 21, 10'000'000, {0.50, 0.35, 0.15}, 8, 512, 4, 64, 0.2, 0}; }
FamilyShape FragmentedShape() { return {"fragmented", 22, 10'000'000, {0.50, 0.35, 0.15}, 8, 512, 4, 64, 0, 0.02}; }
FamilyShape AgenticShape() { return {"agentic", 23, 10'000'000, {0.20, 0.40, 0.40}, 64, 2048, 16, 256, 0.2, 0}; }

Workload MakeFamilies(const FamilyShape& shape) {
  constexpr uint32_t kReplicas = 256, kBatch = 8;
  Workload workload{.name = shape.name, .replicas = kReplicas};
  SplitMix random(shape.seed);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  const auto between = [&](uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random() % (high - low + 1));
  };
  ChainWriter writer(&workload);
  // One chain per (family, holder): the shared part, then the holder's own tail.
  struct Held {
    Stretch chain;
    uint16_t replica;
    uint32_t reported;
  };
  std::vector<Held> held;
  constexpr uint32_t kHolders[] = {1, 8, 64};
  for (size_t kind = 0; kind < 3; ++kind) {
    uint64_t left = static_cast<uint64_t>(static_cast<double>(shape.shared_holdings) * shape.portions[kind]);
    while (left > 0) {
      const double ratio = static_cast<double>(shape.max_length) / shape.min_length;
      const auto length = static_cast<uint32_t>(std::lround(shape.min_length * std::pow(ratio, unit())));
      const std::vector<uint64_t> shared = Draw(random, length);
      const size_t first = random() % kReplicas;
      for (uint32_t h = 0; h < kHolders[kind]; ++h) {
        writer.Begin();
        for (uint64_t loc : shared) writer.Add(loc);
        for (uint32_t i = between(shape.min_tail, shape.max_tail); i > 0; --i) writer.Add(random());
        held.push_back({workload.chains.back(), static_cast<uint16_t>((first + h * 3) % kReplicas), 0});
      }
      left -= std::min<uint64_t>(left, uint64_t{length} * kHolders[kind]);
    }
  }
  std::vector<uint32_t> open(held.size());
  for (uint32_t i = 0; i < open.size(); ++i) open[i] = i;
  while (!open.empty()) {
    const size_t pick = random() % open.size();
    Held& each = held[open[pick]];
    const uint32_t size = std::min(kBatch, each.chain.size - each.reported);
    const Op op = {.kind = Op::kStore, .replica = each.replica, .blocks = Part(each.chain, each.reported, size)};
    workload.setup.push_back(op);
    if (random() % 20 == 0) workload.setup.push_back(op);
    each.reported += size;
    if (each.reported < each.chain.size) continue;
    open[pick] = open.back();
    open.pop_back();
  }
  for (const Held& each : held) {
    const auto lose = [&](uint32_t block) {
      workload.setup.push_back({.kind = Op::kRemove, .replica = each.replica, .blocks = Part(each.chain, block, 1)});
    };
    if (shape.lose_one > 0 && unit() < shape.lose_one) lose(between(1, each.chain.size - 2));
    if (shape.lose_each == 0) continue;
    for (uint32_t block = 1; block + 1 < each.chain.size; ++block) {
      if (unit() < shape.lose_each) lose(block);
    }
  }
  const size_t real_chains = workload.chains.size();
  for (uint32_t i = 0; i < 4096; ++i) writer.Random(random, 128);
  for (uint32_t i = 0; i < kLookups; ++i) {
    if (random() % 5 == 0) {
      workload.hits.push_back({.blocks = workload.chains[real_chains + random() % 4096]});
    } else {
      const Stretch& chain = workload.chains[random() % real_chains];
      workload.hits.push_back({.blocks = Part(chain, 0, 1 + static_cast<uint32_t>(random() % chain.size))});
    }
  }
  return workload;
}

uint64_t LivePairs(const Workload& workload) {
  absl::flat_hash_set<std::pair<uint64_t, uint16_t>> live;
  for (const Op& op : workload.setup) {
    for (uint32_t i = 0; i < op.blocks.size; ++i) {
      const std::pair pair(workload.seq[op.blocks.first + i], op.replica);
      if (op.kind == Op::kStore) live.insert(pair);
      if (op.kind == Op::kRemove) live.erase(pair);
    }
  }
  return live.size();
}

}  // namespace icache::bench
