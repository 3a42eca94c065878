// Core operations, one by one: fingerprint, match, rank, the whole lookup without RPC, store, refresh, evict, clear.
//
// Workload: chains of 64 random 8-byte hashes, 16 tokens a block, each held by `holders` of 64 replicas of one scope;
// `entries` is the number of (block, replica) pairs in the index. Seeds are fixed. Times are CPU time; items are
// blocks, or calls where there are no blocks.
#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "icache/fingerprint/fingerprint.h"
#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"
#include "icache/ranking/ranking.h"
#include "icache/routing/router.h"
#include "tests/testing/fake_clock.h"

namespace icache {
namespace {

constexpr size_t kChainBlocks = 64;
constexpr int32_t kTokensPerBlock = 16;
constexpr size_t kReplicas = 64;
constexpr absl::Duration kTtl = absl::Minutes(30);

using Hashes = std::vector<uint64_t>;

class Fleet {
 public:
  Fleet(size_t entries, size_t holders) : policies_(kTtl), holders_(holders) {
    IndexOptions options;
    options.max_entries = 0;
    index_ = *CreateShardedIndex(options, &policies_);
    const size_t chains = entries / holders / kChainBlocks;
    std::mt19937_64 random(11);
    for (size_t i = 0; i < chains; ++i) {
      Hashes& chain = chains_.emplace_back(kChainBlocks);
      for (uint64_t& hash : chain) hash = random();
    }
    for (size_t h = 0; h < holders; ++h) {
      for (size_t i = 0; i < chains; ++i) Store(i, h);
    }
  }

  // Reports chain `i` as its `h`-th holder would.
  void Store(size_t i, size_t h) { Report(ReplicaOf(i, h), chains_[i], /*evict=*/false); }
  void Evict(size_t i, size_t h) { Report(ReplicaOf(i, h), chains_[i], /*evict=*/true); }

  void Report(size_t replica, const Hashes& hashes, bool evict) {
    PrefixReport report;
    StateUpdate update = UpdateOf(replica);
    if (evict) {
      update.evicted_hashes_u64 = hashes;
    } else {
      report.chain.block_hashes_u64 = hashes;
      report.chain.tokens_per_block = kTokensPerBlock;
      update.prefixes = absl::MakeConstSpan(&report, 1);
    }
    clock_.Advance(absl::Microseconds(1));
    index_->ApplyUpdate(update, clock_.Now());
  }

  StateUpdate UpdateOf(size_t replica) const {
    StateUpdate update;
    update.replica_id = names_[replica];
    update.model_id = "model";
    update.tenant_id = "tenant";
    update.hash_scheme = "vllm";
    return update;
  }

  LookupRequest RequestFor(const Hashes& hashes) const {
    LookupRequest request;
    request.model_id = "model";
    request.tenant_id = "tenant";
    request.hash_scheme = "vllm";
    request.chain.block_hashes_u64 = hashes;
    request.chain.tokens_per_block = kTokensPerBlock;
    return request;
  }

  size_t ReplicaOf(size_t i, size_t h) const { return (i + kReplicas / holders_ * h) % kReplicas; }

  PrefixIndex& index() { return *index_; }
  const Hashes& chain(size_t i) const { return chains_[i]; }
  size_t chain_count() const { return chains_.size(); }
  testing::FakeClock& clock() { return clock_; }
  PolicyStore& policies() { return policies_; }

 private:
  static std::vector<std::string> MakeNames() {
    std::vector<std::string> names;
    for (size_t i = 0; i < kReplicas; ++i) names.push_back("replica-" + std::to_string(i));
    return names;
  }

  PolicyStore policies_;
  testing::FakeClock clock_;
  const std::vector<std::string> names_ = MakeNames();
  const size_t holders_;
  std::unique_ptr<PrefixIndex> index_;
  std::vector<Hashes> chains_;
};

// Fleets are dear to fill, so benches that only read one share it.
Fleet& SharedFleet(size_t entries, size_t holders) {
  static auto* const fleets = new std::map<std::pair<size_t, size_t>, std::unique_ptr<Fleet>>;
  std::unique_ptr<Fleet>& fleet = (*fleets)[{entries, holders}];
  if (fleet == nullptr) fleet = std::make_unique<Fleet>(entries, holders);
  return *fleet;
}

void BM_Fingerprint(benchmark::State& state) {
  const std::vector<uint32_t> tokens(static_cast<size_t>(state.range(0)), 7);
  std::vector<uint64_t> hashes;
  for (auto _ : state) {
    benchmark::DoNotOptimize(FingerprintPrefixes(tokens, kTokensPerBlock, std::nullopt, &hashes));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(hashes.size()));
}
BENCHMARK(BM_Fingerprint)->ArgName("tokens")->Arg(1024)->Arg(32768);

void ReadArguments(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"entries", "holders"});
  for (int64_t entries : {10'000, 1'000'000}) {
    for (int64_t holders : {1, 8, 64}) bench->Args({entries, holders});
  }
}

void BM_IndexMatch(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  std::mt19937_64 random(5);
  std::vector<ReplicaMatch> matches;
  const absl::Time expired = fleet.clock().Now() - kTtl;
  for (auto _ : state) {
    const Chain chain(BlockHashSpan(absl::MakeConstSpan(fleet.chain(random() % fleet.chain_count()))), kTokensPerBlock);
    fleet.index().Read({"tenant", "model", "vllm"},
                       [&](const ScopeView& view) { view.MatchChain("", chain, expired, &matches); });
    benchmark::DoNotOptimize(matches.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kChainBlocks));
}
BENCHMARK(BM_IndexMatch)->Apply(ReadArguments);

void BM_IndexMiss(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  std::mt19937_64 random(5);
  std::vector<ReplicaMatch> matches;
  const absl::Time expired = fleet.clock().Now() - kTtl;
  for (auto _ : state) {
    const uint64_t hash = random();
    const Chain chain(BlockHashSpan(absl::MakeConstSpan(&hash, 1)), kTokensPerBlock);
    fleet.index().Read({"tenant", "model", "vllm"},
                       [&](const ScopeView& view) { view.MatchChain("", chain, expired, &matches); });
    benchmark::DoNotOptimize(matches.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_IndexMiss)->ArgNames({"entries", "holders"})->Args({10'000, 1})->Args({1'000'000, 1});

// Match, ranking, floors and the copied answer: LookupRoute without the RPC.
void BM_RouterLookup(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  const Router router(RouterOptions{}, &fleet.index(), &fleet.policies(), &fleet.clock(), nullptr);
  std::mt19937_64 random(5);
  LookupScratch scratch;
  LookupAnswer answer;
  for (auto _ : state) {
    router.Lookup(fleet.RequestFor(fleet.chain(random() % fleet.chain_count())), fleet.clock().Now(), &scratch,
                  &answer);
    benchmark::DoNotOptimize(answer.rows.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kChainBlocks));
}
BENCHMARK(BM_RouterLookup)->Apply(ReadArguments);

void BM_RankMatches(benchmark::State& state) {
  const size_t count = static_cast<size_t>(state.range(0));
  std::vector<std::string> names;
  std::vector<ReplicaMatch> matches;
  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  for (size_t i = 0; i < count; ++i) names.push_back("replica-" + std::to_string(i));
  std::mt19937 random(3);
  for (size_t i = 0; i < count; ++i) {
    ReplicaMatch& match = matches.emplace_back();
    match.replica_id = names[i];
    match.matched_tokens = static_cast<int32_t>(16 * (1 + random() % 64));
    match.name_order = static_cast<uint32_t>(random());
    match.last_seen_us = absl::ToUnixMicros(now - absl::Seconds(random() % 600));
  }
  std::vector<ScoredReplica> ranked;
  const RankContext context{.now = now, .ttl = kTtl, .replicas_in_scope = 2 * count};
  for (auto _ : state) {
    RankMatches(matches, MatchKind::kChain, context, RankerOptions{}, &ranked);
    benchmark::DoNotOptimize(ranked.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_RankMatches)->ArgName("holders")->Arg(8)->Arg(64)->Arg(1024);

// A full index in a steady state: one chain leaves its oldest holder, and the holder takes it in anew.
void BM_IndexChurn(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  size_t next = 0;
  for (auto _ : state) {
    fleet.Evict(next, 0);
    fleet.Store(next, 0);
    next = (next + 1) % fleet.chain_count();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(2 * kChainBlocks));
}
BENCHMARK(BM_IndexChurn)->Apply(ReadArguments);

// The same report again, with a new time.
void BM_IndexRefresh(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  size_t next = 0;
  for (auto _ : state) {
    fleet.Store(next, 0);
    next = (next + 1) % fleet.chain_count();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(kChainBlocks));
}
BENCHMARK(BM_IndexRefresh)->Apply(ReadArguments);

// From nothing to `entries`; also prints what the index accounts for per entry.
void BM_IndexBuild(benchmark::State& state) {
  double bytes = 0;
  for (auto _ : state) {
    Fleet fleet(state.range(0), state.range(1));
    const IndexStats stats = fleet.index().Stats();
    bytes = static_cast<double>(stats.memory_bytes) / static_cast<double>(stats.entries);
  }
  state.counters["bytes_per_entry"] = bytes;
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_IndexBuild)->Apply(ReadArguments)->Unit(benchmark::kMillisecond);

void BM_LeaseRenewal(benchmark::State& state) {
  Fleet& fleet = SharedFleet(state.range(0), state.range(1));
  StateUpdate update = fleet.UpdateOf(0);
  update.retains_all = true;
  for (auto _ : state) {
    fleet.clock().Advance(absl::Microseconds(1));
    benchmark::DoNotOptimize(fleet.index().ApplyUpdate(update, fleet.clock().Now()));
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_LeaseRenewal)->ArgNames({"entries", "holders"})->Args({10'000, 1})->Args({1'000'000, 1});

}  // namespace
}  // namespace icache

BENCHMARK_MAIN();
