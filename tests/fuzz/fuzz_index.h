// A small index with something in it, for the fuzzers to be let loose on.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"

namespace icache::testing {

inline constexpr uint64_t kFuzzChain[] = {1, 2, 3, 4};

// Ends the process, for the fuzzer to see, when `holds` is false.
inline void Require(bool holds, const std::string& what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}

struct FuzzIndex {
  // Tenant "t", model "m", scheme "s": replica "a" holds blocks 1..4 and has stats, replica "b" holds blocks 1..2. At
  // most eight entries fit, and at most six prefixes of tenant "q".
  FuzzIndex() : policies(absl::Minutes(30)) {
    auto set = std::make_shared<PolicySet>();
    CachePolicy lfu;
    lfu.eviction = EvictionAlgorithm::kLfu;
    lfu.minimum_matched_tokens = 0;
    set->AddPolicy("t", lfu);
    CachePolicy unchained;
    unchained.enable_chain_matching = false;
    set->AddPolicy("u", unchained);
    set->AddTenant("q", 6);
    policies.Publish(std::move(set));

    IndexOptions options;
    options.max_entries = 8;
    options.shard_count = 1;
    options.hot_threshold = 1;
    options.max_idle_replicas = 2;
    index = *CreateShardedIndex(options, &policies);
    Report("a", 4, /*with_stats=*/true);
    Report("b", 2, /*with_stats=*/false);
  }

  void Report(std::string_view replica_id, size_t blocks, bool with_stats) {
    PrefixReport report;
    report.chain.block_hashes_u64 = absl::MakeConstSpan(kFuzzChain, blocks);
    report.chain.tokens_per_block = 16;
    StateUpdate update;
    update.replica_id = replica_id;
    update.model_id = "m";
    update.tenant_id = "t";
    update.hash_scheme = "s";
    update.prefixes = absl::MakeConstSpan(&report, 1);
    if (with_stats) update.stats = StatsReport{.hit_rate = 0.5f, .pressure = 0.25f};
    index->ApplyUpdate(update, now);
  }

  void RequireSound() const {
    const absl::Status status = index->CheckInvariants();
    Require(status.ok(), std::string(status.message()));
  }

  const absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  PolicyStore policies;
  std::unique_ptr<PrefixIndex> index;
};

}  // namespace icache::testing
