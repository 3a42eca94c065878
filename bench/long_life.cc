// long_life: what a life of many chains under one shared prompt does to the index, and how lookups fare while much goes
// at once.
//
// Part 1 stores `--blocks` blocks (50 million) of unique suffixes after a shared system prompt at a cap of one million
// entries. Entries must never exceed the cap, and resident memory and runs per thousand blocks must stay flat over the
// second half; once every replica is cleared, memory must be within 20 % of the start again, give or take 4 MiB.
// Part 2 holds a million blocks of one replica and measures the p99 of lookups of another while the first is cleared,
// expires, and is cut by a quota: at most 4 times that of idle. It prints for how long at most lookups were locked out
// meanwhile (timed_mutex.h). Ends with 1 when something does not hold.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bench/measure.h"
#include "bench/timed_mutex.h"
#include "icache/index/sharded_index.h"
#include "tests/testing/fake_retention.h"

namespace icache::bench {
namespace {

constexpr size_t kReplicas = 64;
constexpr int64_t kCap = 1'000'000;

bool failed = false;
void Expect(bool holds, const char* what) {
  if (holds) return;
  std::printf("FAILED: %s\n", what);
  failed = true;
}

class Feeder {
 public:
  explicit Feeder(int64_t cap) {
    IndexOptions options;
    options.max_entries = cap;
    index_ = *CreateShardedIndex(options, &retention_);
    for (size_t r = 0; r < kReplicas; ++r) names_.push_back("replica-" + std::to_string(r));
  }

  void Store(size_t replica, absl::Span<const uint64_t> hashes) {
    PrefixReport report;
    report.chain.block_hashes_u64 = hashes;
    report.chain.tokens_per_block = 16;
    StateUpdate update = UpdateOf(replica);
    update.prefixes = absl::MakeConstSpan(&report, 1);
    index_->ApplyUpdate(update, now_ += absl::Microseconds(1));
  }
  void Clear(size_t replica) {
    StateUpdate update = UpdateOf(replica);
    update.clear = true;
    index_->ApplyUpdate(update, now_ += absl::Microseconds(1));
  }
  size_t LookUp(absl::Span<const uint64_t> hashes) const {
    static thread_local std::vector<ReplicaMatch> matches;
    index_->Read({"tenant", "model", "vllm"}, [&](const ScopeView& view) {
      view.MatchChain("", Chain(BlockHashSpan(hashes), 16), absl::InfinitePast(), &matches);
    });
    return matches.size();
  }

  PrefixIndex& index() { return *index_; }
  testing::FakeRetention& retention() { return retention_; }
  absl::Time now() const { return now_; }
  void Advance(absl::Duration by) { now_ += by; }

 private:
  StateUpdate UpdateOf(size_t replica) const {
    StateUpdate update;
    update.replica_id = names_[replica];
    update.model_id = "model";
    update.tenant_id = "tenant";
    update.hash_scheme = "vllm";
    return update;
  }

  testing::FakeRetention retention_;
  std::vector<std::string> names_;
  std::unique_ptr<PrefixIndex> index_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
};

void LongLife(int64_t blocks) {
  constexpr size_t kPrompt = 64;
  std::mt19937_64 random(1);
  std::vector<uint64_t> chain(kPrompt + 256);
  for (uint64_t& hash : chain) hash = random();
  Feeder feeder(kCap);
  // The start is an index that has been at work, so that the program's own code and buffers are in memory.
  feeder.Store(0, chain);
  feeder.LookUp(chain);
  feeder.Clear(0);
  const int64_t start_bytes = ResidentBytes();
  int64_t stored = 0;
  int64_t least = INT64_MAX, most = 0;  // resident bytes over the second half
  double fewest = 1e9, worst = 0;       // runs per thousand blocks
  int64_t next_report = blocks / 20;
  while (stored < blocks) {
    const size_t suffix = 16 + random() % 240;
    for (size_t i = 0; i < suffix; ++i) chain[kPrompt + i] = random();
    feeder.Store(random() % kReplicas, absl::MakeConstSpan(chain).first(kPrompt + suffix));
    stored += static_cast<int64_t>(suffix);
    if (stored < next_report) continue;
    next_report += blocks / 20;
    const IndexStats stats = feeder.index().Stats();
    Expect(stats.entries <= kCap, "entries exceed the cap");
    const int64_t bytes = ResidentBytes() - start_bytes;
    const double runs = 1000.0 * static_cast<double>(stats.runs) / static_cast<double>(stats.prefixes);
    std::printf("%5.1f M blocks: %lld entries, %.1f MB resident, %.1f MB accounted, %.2f runs per 1000 blocks\n",
                static_cast<double>(stored) / 1e6, static_cast<long long>(stats.entries),
                static_cast<double>(bytes) / 1e6, static_cast<double>(stats.memory_bytes) / 1e6, runs);
    if (stored < blocks / 2) continue;
    least = std::min(least, bytes);
    most = std::max(most, bytes);
    fewest = std::min(fewest, runs);
    worst = std::max(worst, runs);
  }
  Expect(static_cast<double>(most) < 1.1 * static_cast<double>(least), "resident memory is not flat");
  Expect(worst < 1.1 * fewest, "runs per thousand blocks are not flat");
  for (size_t r = 0; r < kReplicas; ++r) feeder.Clear(r);
  Expect(feeder.index().Stats().memory_bytes == 0, "a cleared index accounts for memory");
  const int64_t left = ResidentBytes();
  std::printf("cleared: %.1f MB resident, %.1f MB at the start\n", static_cast<double>(left) / 1e6,
              static_cast<double>(start_bytes) / 1e6);
  Expect(left < start_bytes + start_bytes / 5, "memory does not return");
}

// p99 of lookups, in nanoseconds, while `work` runs (none: for half a second).
double P99(const Feeder& feeder, absl::Span<const uint64_t> chain, const std::function<void()>& work) {
  std::atomic<bool> done{false};
  std::thread worker([&] {
    if (work != nullptr) {
      work();
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(500));
    }
    done = true;
  });
  std::vector<int64_t> nanos;
  while (!done) {
    const int64_t before = WallNanos();
    feeder.LookUp(chain);
    nanos.push_back(WallNanos() - before);
  }
  worker.join();
  const auto at = nanos.begin() + static_cast<ptrdiff_t>(0.99 * static_cast<double>(nanos.size() - 1));
  std::nth_element(nanos.begin(), at, nanos.end());
  return static_cast<double>(*at);
}

void BigChanges() {
  const auto measure = [](const char* what, const std::function<void(Feeder&)>& work) {
    Feeder feeder(0);
    std::mt19937_64 random(2);
    std::vector<uint64_t> read(64), chain(64);
    for (uint64_t& hash : read) hash = random();
    for (int i = 0; i < 1'000'000 / 64; ++i) {
      for (uint64_t& hash : chain) hash = random();
      feeder.Store(0, chain);
    }
    feeder.Advance(absl::Hours(1));
    for (size_t r = 1; r < 9; ++r) feeder.Store(r, read);
    const double idle = P99(feeder, read, nullptr);
    const int64_t before = WallNanos();
    TakeLongestHold();
    const double busy = P99(feeder, read, [&] { work(feeder); });
    std::printf("%-12s p99 %.0f ns, %.1f times idle; lookups locked out for %.1f us at most; took %.0f ms\n", what,
                busy, busy / idle, static_cast<double>(TakeLongestHold()) / 1e3,
                static_cast<double>(WallNanos() - before) / 1e6);
    Expect(busy < 4 * idle, what);
    Expect(feeder.LookUp(read) > 0 || std::strcmp(what, "quota cut") == 0, "the other replicas' blocks are gone");
  };
  measure("clear", [](Feeder& feeder) { feeder.Clear(0); });
  measure("sweep", [](Feeder& feeder) { feeder.index().Sweep(feeder.now()); });
  measure("quota cut", [](Feeder& feeder) {
    RetentionRules rules;
    rules.max_prefixes = 1000;
    feeder.retention().Set("tenant", rules);
    feeder.Store(1, {1});
  });
}

}  // namespace
}  // namespace icache::bench

int main(int argc, char** argv) {
  const int64_t blocks = argc == 3 && std::strcmp(argv[1], "--blocks") == 0 ? std::atoll(argv[2]) : 50'000'000;
  icache::bench::LongLife(blocks);
  icache::bench::BigChanges();
  return icache::bench::failed ? 1 : 0;
}
