// index_report: the index beside two anchors on the workloads of workloads.h, in one process run.
//
//   absl     one flat_hash_map<uint64_t, uint32_t> probe per block until the first miss: no replicas, no bookkeeping
//   memcmp   compares the matched bytes with one contiguous copy
//
// Peers were measured beside the same anchors on another machine, so a peer's figure here is (its figure there ÷ the
// anchor there) × the anchor here: kBestOverAbsl. The index under test is the real one, through PrefixIndex. Lookups
// are timed with the scope resolved (many in one Read); what resolving costs is a row of its own. Rounds of all rows
// are interleaved and medians taken. Times are CPU time of the thread. Memory is a difference of resident memory, each
// measured in a process of its own (this program again, with --memory NAME).
//
//   index_report --trace FILE [--rounds N] [--only SUBSTRING] [--json FILE]
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "bench/measure.h"
#include "bench/workloads.h"
#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"
#include "icache/routing/router.h"
#include "tests/testing/fake_clock.h"

namespace icache::bench {
namespace {

constexpr absl::Duration kTtl = absl::Minutes(30);
constexpr int32_t kTokensPerBlock = 16;
constexpr ScopeKey kScope = {"tenant", "model", "vllm"};

// Best peer ÷ absl, from the table of published figures (lookups, stores, removals).
struct Peer {
  const char* row;
  double over_absl;
};
constexpr Peer kBestOverAbsl[] = {
    {"w1_8x32", 10.0},    {"w1_64x32", 9.9},   {"w1_8x1", 0.41},     {"w1_64x1", 0.14},    {"w2_hit", 2.5},
    {"w2_novel", 1.35},   {"w2_miss", 0.39},   {"w3a", 6.8},         {"w3b", 1.97},        {"mu10m", 3.0},
    {"ms8_10m", 2.9},     {"w1_store", 2.2},   {"w2_store", 2.1},    {"w2_remove", 0.47},  {"w3a_store", 2.4},
    {"w3a_remove", 0.40}, {"w3b_store", 2.48}, {"w3b_remove", 0.81}, {"mu10m_store", 2.2},
};

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "index_report: %s\n", why.c_str());
  std::exit(1);
}

template <typename T>
void Keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// The real index, fed with a workload.
class Subject {
 public:
  explicit Subject(const Workload& workload) : workload_(workload), policies_(kTtl) {
    IndexOptions options;
    options.max_entries = 0;
    index_ = *CreateShardedIndex(options, &policies_);
    for (uint32_t r = 0; r < workload.replicas; ++r) names_.push_back("replica-" + std::to_string(r));
  }

  // The update that reports one stretch. Time moves on by a microsecond each.
  void Apply(const Op& op) {
    StateUpdate update;
    update.replica_id = names_[op.replica];
    update.model_id = kScope.model_id;
    update.tenant_id = kScope.tenant_id;
    update.hash_scheme = kScope.hash_scheme;
    PrefixReport report;
    if (op.kind == Op::kStore) {
      report.chain.block_hashes_u64 = Hashes(op.blocks);
      report.chain.tokens_per_block = kTokensPerBlock;
      update.prefixes = absl::MakeConstSpan(&report, 1);
    } else {
      tail_first_.assign(op.blocks.size, 0);
      std::reverse_copy(Hashes(op.blocks).begin(), Hashes(op.blocks).end(), tail_first_.begin());
      update.evicted_hashes_u64 = tail_first_;
    }
    now_ += absl::Microseconds(1);
    index_->ApplyUpdate(update, now_);
  }
  void ApplyAll(const std::vector<Op>& ops) {
    for (const Op& op : ops) Apply(op);
  }

  Chain ChainOf(const Stretch& blocks) const { return Chain(BlockHashSpan(Hashes(blocks)), kTokensPerBlock); }
  absl::Time ExpiredThrough() const { return now_ - kTtl; }
  const PrefixIndex& index() const { return *index_; }
  const PolicyStore& policies() const { return policies_; }
  absl::Time now() const { return now_; }

  // Runs lookups, with the scope resolved, and returns their CPU time.
  double TimeLookups(const std::vector<Op>& ops) const {
    double seconds = 0;
    const absl::Time expired = ExpiredThrough();
    index_->Read(kScope, [&](const ScopeView& view) {
      std::vector<ReplicaMatch> matches;
      const double start = CpuSeconds();
      for (const Op& op : ops) {
        view.MatchChain("", ChainOf(op.blocks), expired, &matches);
        Keep(matches.data());
      }
      seconds = CpuSeconds() - start;
    });
    return seconds;
  }
  // The same, each lookup in a Read of its own.
  double TimeResolvedLookups(const std::vector<Op>& ops) const {
    const absl::Time expired = ExpiredThrough();
    std::vector<ReplicaMatch> matches;
    const double start = CpuSeconds();
    for (const Op& op : ops) LookUp(op, expired, &matches);
    return CpuSeconds() - start;
  }
  void LookUp(const Op& op, absl::Time expired, std::vector<ReplicaMatch>* matches) const {
    index_->Read(kScope, [&](const ScopeView& view) { view.MatchChain("", ChainOf(op.blocks), expired, matches); });
    Keep(matches->data());
  }

  Sums SumUp(const std::vector<Op>& ops) const {
    Sums sums;
    std::vector<ReplicaMatch> matches;
    index_->Read(kScope, [&](const ScopeView& view) {
      for (const Op& op : ops) {
        view.MatchChain("", ChainOf(op.blocks), ExpiredThrough(), &matches);
        uint32_t deepest = 0;
        for (const ReplicaMatch& match : matches) {
          uint32_t replica = 0;
          const std::string_view digits = match.replica_id.substr(sizeof("replica-") - 1);
          std::from_chars(digits.data(), digits.data() + digits.size(), replica);
          deepest = std::max(deepest, match.matched_blocks);
          sums.checksum += (replica + 1) * match.matched_blocks;
        }
        sums.depth += deepest;
      }
    });
    return sums;
  }

 private:
  absl::Span<const uint64_t> Hashes(const Stretch& blocks) const {
    return absl::MakeConstSpan(workload_.seq).subspan(blocks.first, blocks.size);
  }

  const Workload& workload_;
  PolicyStore policies_;
  std::vector<std::string> names_;
  std::unique_ptr<PrefixIndex> index_;
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  std::vector<uint64_t> tail_first_;
};

// The anchors.
class Anchor {
 public:
  explicit Anchor(const Workload& workload) : workload_(workload) {}

  void Apply(const Op& op) {
    for (uint32_t i = 0; i < op.blocks.size; ++i) {
      const uint64_t hash = workload_.seq[op.blocks.first + i];
      if (op.kind == Op::kStore) {
        map_.try_emplace(hash, op.replica);
      } else {
        map_.erase(hash);
      }
    }
  }
  void ApplyAll(const std::vector<Op>& ops) {
    for (const Op& op : ops) Apply(op);
  }

  uint32_t Depth(const Stretch& chain) const {
    const uint64_t* const hashes = &workload_.seq[chain.first];
    uint32_t depth = 0;
    while (depth < chain.size && map_.find(hashes[depth]) != map_.end()) ++depth;
    return depth;
  }
  double TimeLookups(const std::vector<Op>& ops) const {
    const double start = CpuSeconds();
    for (const Op& op : ops) Keep(Depth(op.blocks));
    return CpuSeconds() - start;
  }
  double TimeMemcmp(const std::vector<Op>& ops) {
    if (copy_.empty()) {
      copy_ = workload_.seq;
      for (const Op& op : ops) depths_.push_back(Depth(op.blocks));
    }
    const double start = CpuSeconds();
    for (size_t i = 0; i < ops.size(); ++i) {
      const uint64_t first = ops[i].blocks.first;
      Keep(std::memcmp(&workload_.seq[first], &copy_[first], depths_[i] * sizeof(uint64_t)));
    }
    return CpuSeconds() - start;
  }

 private:
  const Workload& workload_;
  absl::flat_hash_map<uint64_t, uint32_t> map_;
  std::vector<uint64_t> copy_;
  std::vector<uint32_t> depths_;
};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double Quantile(std::vector<uint32_t>& nanos, double q) {
  const size_t at = static_cast<size_t>(q * static_cast<double>(nanos.size() - 1));
  std::nth_element(nanos.begin(), nanos.begin() + static_cast<ptrdiff_t>(at), nanos.end());
  return nanos[at];
}

// Figures by row, one per round.
class Report {
 public:
  void Add(const std::string& row, double figure) { samples_[row].push_back(figure); }
  double operator[](const std::string& row) const {
    auto found = samples_.find(row);
    return found == samples_.end() ? 0 : Median(found->second);
  }
  // Median over the rounds of the ratio of two rows, which drifts of the machine cancel out of.
  double Ratio(const std::string& above, const std::string& below) const {
    auto a = samples_.find(above), b = samples_.find(below);
    if (a == samples_.end() || b == samples_.end()) return 0;
    std::vector<double> ratios;
    for (size_t i = 0; i < std::min(a->second.size(), b->second.size()); ++i) {
      ratios.push_back(a->second[i] / b->second[i]);
    }
    return Median(ratios);
  }
  double Spread(const std::string& row) const {
    auto found = samples_.find(row);
    if (found == samples_.end()) return 0;
    const auto [low, high] = std::minmax_element(found->second.begin(), found->second.end());
    return (*high - *low) / Median(found->second);
  }
  // Ours ÷ the best peer's, through the absl anchor of the row (or of `through`).
  double OverBestPeer(const std::string& row, const std::string& through) const {
    for (const Peer& peer : kBestOverAbsl) {
      if (row == peer.row) return Ratio(row, through + "/absl") / peer.over_absl;
    }
    return 0;
  }

 private:
  std::map<std::string, std::vector<double>> samples_;
};

struct Options {
  std::string trace;
  std::string json;
  std::string only;
  std::string memory;
  int rounds = 5;
};

struct LookupRow {
  std::string name;
  std::vector<Op> Workload::*ops;
  std::optional<Sums> expected;  // of the lookups
};

struct Bench {
  std::function<Workload()> make;
  std::string name;
  std::vector<LookupRow> lookups;
  bool times_setup = false;   // "<name>_store"
  uint64_t array_blocks = 0;  // check values
  uint64_t first_loc = 0;
  uint64_t first_seq = 0;
  uint64_t last_seq = 0;
  uint64_t setup_stores = 0;
  uint64_t setup_blocks = 0;
};

void Check(bool holds, const std::string& workload, const char* what) {
  if (!holds) Die(workload + ": the check value of " + what + " does not come out");
}

void CheckWorkload(const Bench& bench, const Workload& workload) {
  if (bench.array_blocks == 0) return;
  Check(workload.seq.size() == bench.array_blocks, bench.name, "blocks");
  Check(workload.first_loc == bench.first_loc, bench.name, "loc[0]");
  Check(workload.seq.front() == bench.first_seq, bench.name, "seq[0]");
  Check(workload.seq.back() == bench.last_seq, bench.name, "seq[last]");
  Check(workload.setup.size() == bench.setup_stores, bench.name, "stores");
  uint64_t blocks = 0;
  for (const Op& op : workload.setup) blocks += op.blocks.size;
  Check(blocks == bench.setup_blocks, bench.name, "stored blocks");
}

std::vector<Bench> Benches(const Options& options) {
  const auto w1 = [&](uint32_t replicas, uint32_t expand, Sums replay) {
    return [&options, replicas, expand, replay] {
      Sums sums;
      Workload workload = MakeW1(options.trace, replicas, expand, &sums);
      Check(sums == replay, workload.name, "the replay");
      return workload;
    };
  };
  std::vector<Bench> benches;
  benches.push_back({w1(8, 32, {3382720, 0x01a9b260}),
                     "w1_8x32",
                     {{"w1_8x32", &Workload::hits, {}}},
                     false,
                     9232000,
                     0xc4998f9169c2a4f0,
                     0xb5066593eee1ca5f,
                     0x89379827ca14c7d9,
                     11913,
                     6004224});
  benches.push_back({w1(64, 32, {3382720, 0x35bc1180}),
                     "w1_64x32",
                     {{"w1_64x32", &Workload::hits, {}}},
                     true,
                     9232000,
                     0xc4998f9169c2a4f0,
                     0xb5066593eee1ca5f,
                     0x89379827ca14c7d9,
                     11913,
                     6030272});
  benches.push_back({w1(8, 1, {105710, 0x000d4d93}),
                     "w1_8x1",
                     {{"w1_8x1", &Workload::hits, {}}},
                     false,
                     288500,
                     0xc4998f9169c2a4f0,
                     0xb5066593eee1ca5f,
                     0xa8daf7dcdf64ee5f,
                     11913,
                     187632});
  benches.push_back({w1(64, 1, {105710, 0x01ade08c}),
                     "w1_64x1",
                     {{"w1_64x1", &Workload::hits, {}}},
                     false,
                     288500,
                     0xc4998f9169c2a4f0,
                     0xb5066593eee1ca5f,
                     0xa8daf7dcdf64ee5f,
                     11913,
                     188446});
  benches.push_back({MakeW2,
                     "w2",
                     {{"w2_hit", &Workload::hits, Sums{25600000, 0x1ee6ab80}},
                      {"w2_novel", &Workload::novels, Sums{12800000, 0x1b774000}},
                      {"w2_miss", &Workload::misses, Sums{0, 0}}},
                     false,
                     1304576,
                     0x975835de1c9756ce,
                     0x252de92b34bc77f4,
                     0x1e729b1231b3658e,
                     1264,
                     161792});
  benches.push_back({MakeW3a,
                     "w3a",
                     {{"w3a", &Workload::hits, Sums{6400000, 0x0c6a6c00}}},
                     false,
                     4259840,
                     0x1d0b14e4db018fed,
                     0x6c518841ce3b5591,
                     0x500293ab756d45a2,
                     17408,
                     1114112});
  benches.push_back({MakeW3b,
                     "w3b",
                     {{"w3b", &Workload::hits, Sums{6400000, 0xc65c73c0}}},
                     false,
                     262144,
                     0x6e73e372e2338aca,
                     0x0f499719ad7d4f8a,
                     0x16d2723dbf2998bf,
                     65636,
                     4200704});
  benches.push_back({[] { return MakeMemory("mu1m", 11, 16'384, 1); },
                     "mu1m",
                     {{"mu1m", &Workload::hits, Sums{6400000, 0x0c68f040}}},
                     false,
                     1048576,
                     0x50f5647d2380309d,
                     0x713bd9d51d044534,
                     0xd9af1fbd32e3e554,
                     16384,
                     1048576});
  benches.push_back({[] { return MakeMemory("mu10m", 12, 163'840, 1); },
                     "mu10m",
                     {{"mu10m", &Workload::hits, Sums{6400000, 0x0c67c800}}},
                     true,
                     10485760,
                     0x943ff9fc99de8f03,
                     0x78584bbdcfefd2af,
                     0x6bf204a11355a60f,
                     163840,
                     10485760});
  benches.push_back({[] { return MakeMemory("ms8_10m", 14, 20'480, 8); },
                     "ms8_10m",
                     {{"ms8_10m", &Workload::hits, Sums{6400000, 0x632c1c00}}},
                     false,
                     1310720,
                     0x6aa9d61435dbe63e,
                     0x9d3b10913d26d84f,
                     0x81125404f6cb5282,
                     163840,
                     10485760});
  return benches;
}

uint64_t BlocksOf(const std::vector<Op>& ops, Op::Kind kind) {
  uint64_t blocks = 0;
  for (const Op& op : ops) blocks += op.kind == kind ? op.blocks.size : 0;
  return blocks;
}

// Applies churn, from its start and back to it `times` over, with stores and removals timed apart; adds blocks per
// second to "<name>_store" and "<name>_remove", with `suffix`. Operations are timed one by one, as they alternate: by
// the wall clock, for reading the thread's costs as much as an operation, with what is longer than a millisecond left
// out: that is other programs' time.
template <typename Target>
void TimeChurn(Target& target, const Workload& workload, int times, const std::string& suffix, Report* report) {
  constexpr int64_t kInterrupted = 1'000'000;
  int64_t nanos[2] = {0, 0};
  uint64_t blocks[2] = {0, 0};
  int64_t last = WallNanos();
  for (int time = 0; time < times; ++time) {
    for (const Op& op : workload.churn) {
      target.Apply(op);
      const int64_t now = WallNanos();
      const size_t kind = op.kind == Op::kRemove ? 1 : 0;
      if (now - last < kInterrupted) {
        nanos[kind] += now - last;
        blocks[kind] += op.blocks.size;
      }
      last = now;
    }
  }
  report->Add(workload.name + "_store" + suffix, 1e9 * static_cast<double>(blocks[0]) / static_cast<double>(nanos[0]));
  report->Add(workload.name + "_remove" + suffix, 1e9 * static_cast<double>(blocks[1]) / static_cast<double>(nanos[1]));
}

// p50 and p99 of single lookups while `writer` runs until told to stop (none: alone).
void TimeSingles(const Subject& subject, const std::vector<Op>& ops,
                 const std::function<void(std::atomic<bool>&)>& writer, const std::string& row, Report* report) {
  std::atomic<bool> stop{false};
  std::thread thread;
  if (writer != nullptr) thread = std::thread([&] { writer(stop); });
  std::vector<uint32_t> nanos;
  std::vector<ReplicaMatch> matches;
  const absl::Time expired = subject.ExpiredThrough();
  const int64_t start = WallNanos();
  for (size_t i = 0; WallNanos() - start < 1'000'000'000; ++i) {
    const int64_t before = WallNanos();
    subject.LookUp(ops[i % ops.size()], expired, &matches);
    nanos.push_back(static_cast<uint32_t>(WallNanos() - before));
  }
  stop = true;
  if (thread.joinable()) thread.join();
  report->Add(row + "/p50", Quantile(nanos, 0.50));
  report->Add(row + "/p99", Quantile(nanos, 0.99));
  report->Add(row + "/rate", static_cast<double>(nanos.size()));
}

// A host takes back what its virtual machine has freed, the more readily the larger the free pieces are, and whoever is
// next given that memory waits for the host to find it anew, many times as long as for a page of the machine's own. All
// that a build takes is touched before it, so that no row is charged for where its memory comes from.
void FetchMemoryFromHost() {
  constexpr size_t kBytes = size_t{768} << 20;
  void* const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) Die("no memory");
  madvise(memory, kBytes, MADV_HUGEPAGE);
  std::memset(memory, 1, kBytes);
  munmap(memory, kBytes);
}

void RunRound(const Bench& bench, const Workload& workload, Report* report) {
  if (bench.times_setup) FetchMemoryFromHost();
  const auto rate = [](size_t count, double seconds) { return static_cast<double>(count) / seconds; };
  Anchor anchor(workload);
  double start = CpuSeconds();
  anchor.ApplyAll(workload.setup);
  const double anchor_seconds = CpuSeconds() - start;
  Subject subject(workload);
  start = CpuSeconds();
  subject.ApplyAll(workload.setup);
  const double seconds = CpuSeconds() - start;
  const std::string store = bench.name == "w1_64x32" ? "w1_store" : bench.name + "_store";
  if (bench.times_setup) {
    report->Add(store + "/absl", rate(bench.setup_blocks, anchor_seconds));
    report->Add(store, rate(bench.setup_blocks, seconds));
  }
  for (const LookupRow& row : bench.lookups) {
    const std::vector<Op>& ops = workload.*row.ops;
    const Sums sums = subject.SumUp(ops);
    if (row.expected.has_value()) Check(sums == *row.expected, row.name, "the depths");
    anchor.TimeLookups(ops);
    report->Add(row.name + "/absl", rate(ops.size(), anchor.TimeLookups(ops)));
    report->Add(row.name, rate(ops.size(), subject.TimeLookups(ops)));
    anchor.TimeMemcmp(ops);
    report->Add(row.name + "/memcmp", rate(ops.size(), anchor.TimeMemcmp(ops)));
    report->Add(row.name + "/resolving", rate(ops.size(), subject.TimeResolvedLookups(ops)));
  }
  if (!workload.churn.empty()) {
    TimeSingles(subject, workload.hits, nullptr, bench.name + "/idle", report);
    // That of W2 is over in some hundredths of a second.
    const int times = bench.name == "w2" ? 8 : 1;
    TimeChurn(anchor, workload, times, "/absl", report);
    TimeChurn(subject, workload, times, "", report);
    const auto writer = [&](std::atomic<bool>& stop) {
      for (size_t i = 0; !stop; i = (i + 1) % workload.churn.size()) subject.Apply(workload.churn[i]);
    };
    TimeSingles(subject, workload.hits, writer, bench.name + "/ingest", report);
  }
}

// The full ranked answer beside the bare match, both with the scope to resolve. The holders are a part of the replicas
// only, so that all of them score and are told.
void RunRanked(uint32_t holders, Report* report) {
  constexpr uint32_t kReplicas = 128;
  Workload workload = MakeMemory("ranked", 14, 2048, 0);
  workload.replicas = kReplicas;
  for (uint32_t h = 0; h < holders; ++h) {
    for (size_t i = 0; i < workload.chains.size(); ++i) {
      workload.setup.push_back({.kind = Op::kStore,
                                .replica = static_cast<uint16_t>((i + kReplicas / holders * h) % kReplicas),
                                .blocks = workload.chains[i]});
    }
  }
  Subject subject(workload);
  subject.ApplyAll(workload.setup);
  testing::FakeClock clock;
  clock.Advance(subject.now() - clock.Now());
  const Router router(RouterOptions{}, &subject.index(), &subject.policies(), &clock, nullptr);
  LookupScratch scratch;
  LookupAnswer answer;
  LookupRequest request;
  request.model_id = kScope.model_id;
  request.tenant_id = kScope.tenant_id;
  request.hash_scheme = kScope.hash_scheme;
  const std::string row = "ranked_" + std::to_string(holders);
  for (int pass = 0; pass < 2; ++pass) {
    const double start = CpuSeconds();
    for (const Op& op : workload.hits) {
      request.chain.block_hashes_u64 = absl::MakeConstSpan(workload.seq).subspan(op.blocks.first, op.blocks.size);
      request.chain.tokens_per_block = kTokensPerBlock;
      router.Lookup(request, clock.Now(), &scratch, &answer);
      if (answer.rows.size() != holders) Die("ranked: not all holders are told");
    }
    if (pass == 1) report->Add(row, (CpuSeconds() - start) / static_cast<double>(workload.hits.size()));
  }
  report->Add(row + "/match", subject.TimeResolvedLookups(workload.hits) / static_cast<double>(workload.hits.size()));
}

// How a lookup's time grows with the index: the shape of M-u at ever more blocks.
constexpr std::pair<const char*, size_t> kGrowth[] = {  // name, chains of 64 blocks
    {"1e4", 156}, {"3e4", 469}, {"1e5", 1'563}, {"3e5", 4'688}, {"1e6", 15'625}, {"3e6", 46'875}, {"1e7", 156'250}};

void RunGrowth(Report* report) {
  for (const auto& [blocks, chains] : kGrowth) {
    const Workload workload = MakeMemory("growth", 11, chains, 1);
    Subject subject(workload);
    subject.ApplyAll(workload.setup);
    subject.TimeLookups(workload.hits);
    report->Add(std::string("growth_") + blocks,
                subject.TimeLookups(workload.hits) / static_cast<double>(workload.hits.size()));
  }
}

std::optional<Workload> MemoryWorkload(const Options& options, std::string_view name) {
  if (name == "mu10m") return MakeMemory("mu10m", 12, 163'840, 1);
  if (name == "ms8_10m") return MakeMemory("ms8_10m", 14, 20'480, 8);
  if (name == "w3b") return MakeW3b();
  if (name == "w1_64x32") {
    Sums replay;
    return MakeW1(options.trace, 64, 32, &replay);
  }
  if (name == "pinned") return MakeFamilies(PinnedShape());
  if (name == "fragmented") return MakeFamilies(FragmentedShape());
  if (name == "agentic") return MakeFamilies(AgenticShape());
  return std::nullopt;
}

// Prints the figures of one workload's memory, for the process that asked.
void MeasureMemory(const Options& options) {
  const std::optional<Workload> workload = MemoryWorkload(options, options.memory);
  if (!workload.has_value()) Die("no workload " + options.memory);
  std::optional<Subject> subject;
  subject.emplace(*workload);
  malloc_trim(0);
  const int64_t before = ResidentBytes();
  const double start = CpuSeconds();
  subject->ApplyAll(workload->setup);
  const double seconds = CpuSeconds() - start;
  malloc_trim(0);
  const int64_t bytes = ResidentBytes() - before;
  const IndexStats stats = subject->index().Stats();
  const Sums sums = subject->SumUp(workload->hits);
  const double lookup = subject->TimeLookups(workload->hits) / static_cast<double>(workload->hits.size());
  std::printf("%lld %lld %lld %lld %.0f %.1f %llu %08x\n", static_cast<long long>(bytes),
              static_cast<long long>(stats.prefixes), static_cast<long long>(stats.entries),
              static_cast<long long>(stats.memory_bytes),
              static_cast<double>(BlocksOf(workload->setup, Op::kStore)) / seconds, lookup * 1e9,
              static_cast<unsigned long long>(sums.depth), sums.checksum);
  if (static_cast<uint64_t>(stats.entries) != LivePairs(*workload)) Die(options.memory + ": pairs are lost");
}

struct Memory {
  double bytes = 0, prefixes = 0, entries = 0, accounted = 0, stored_per_s = 0, lookup_ns = 0;
  unsigned long long depth = 0;
  unsigned checksum = 0;
};

Memory MemoryOf(const Options& options, const std::string& name) {
  char self[4096];
  const ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);
  if (size < 0) Die("cannot find this program");
  self[size] = '\0';
  const std::string command = "'" + std::string(self) + "' --memory " + name +
                              (options.trace.empty() ? "" : " --trace '" + options.trace + "'");
  FILE* const pipe = popen(command.c_str(), "r");
  Memory memory;
  if (pipe == nullptr ||
      std::fscanf(pipe, "%lf %lf %lf %lf %lf %lf %llu %x", &memory.bytes, &memory.prefixes, &memory.entries,
                  &memory.accounted, &memory.stored_per_s, &memory.lookup_ns, &memory.depth, &memory.checksum) != 8 ||
      pclose(pipe) != 0) {
    Die("measuring the memory of " + name + " failed");
  }
  return memory;
}

Options ParseArguments(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--trace") {
      options.trace = argv[i + 1];
    } else if (flag == "--json") {
      options.json = argv[i + 1];
    } else if (flag == "--only") {
      options.only = argv[i + 1];
    } else if (flag == "--memory") {
      options.memory = argv[i + 1];
    } else if (flag == "--rounds") {
      options.rounds = std::atoi(argv[i + 1]);
    } else {
      Die("unknown flag " + std::string(flag));
    }
  }
  if (argc % 2 == 0) Die("flags come in pairs");
  return options;
}

// Figures that a program may read, in the order in which they were added.
class Json {
 public:
  void Add(const std::string& key, double value) { rows_.emplace_back(key, value); }
  void Write(const std::string& path) const {
    std::ofstream file(path);
    file << "{\n";
    for (size_t i = 0; i < rows_.size(); ++i) {
      char number[64];
      std::snprintf(number, sizeof number, "%.6g", rows_[i].second);
      file << "  \"" << rows_[i].first << "\": " << number << (i + 1 < rows_.size() ? ",\n" : "\n");
    }
    file << "}\n";
    if (!file.flush()) Die("cannot write " + path);
  }

 private:
  std::vector<std::pair<std::string, double>> rows_;
};

int Main(int argc, char** argv) {
  const Options options = ParseArguments(argc, argv);
  if (!options.memory.empty()) {
    MeasureMemory(options);
    return 0;
  }
  const auto wanted = [&](const std::string& name) { return name.find(options.only) != std::string::npos; };
  Report report;
  for (int round = 0; round < options.rounds; ++round) {
    for (const Bench& bench : Benches(options)) {
      if (!wanted(bench.name) || (options.trace.empty() && bench.name.starts_with("w1"))) continue;
      const Workload workload = bench.make();
      CheckWorkload(bench, workload);
      RunRound(bench, workload, &report);
    }
    if (wanted("growth")) RunGrowth(&report);
    for (uint32_t holders : {8, 64}) {
      if (wanted("ranked_" + std::to_string(holders))) RunRanked(holders, &report);
    }
  }

  Json json;
  double lookup_min = 1e9, store_min = 1e9, remove_min = 1e9;
  std::printf("%-14s %12s %8s %12s %12s %12s %9s\n", "row", "ours", "spread", "resolving", "absl", "memcmp", "vs best");
  const auto print = [&](const std::string& row, const std::string& through, double* worst) {
    if (report[row] == 0) return;
    const double ratio = report.OverBestPeer(row, through);
    std::printf("%-14s %12.0f %7.0f%% %12.0f %12.0f %12.0f %8.2fx\n", row.c_str(), report[row],
                100 * report.Spread(row), report[row + "/resolving"], report[through + "/absl"],
                report[row + "/memcmp"], ratio);
    json.Add(row + "_per_s", report[row]);
    json.Add(row + "_absl_per_s", report[through + "/absl"]);
    if (report[row + "/memcmp"] > 0) json.Add(row + "_memcmp_per_s", report[row + "/memcmp"]);
    json.Add(row + "_vs_best_peer", ratio);
    if (worst != nullptr) *worst = std::min(*worst, ratio);
  };
  for (const char* row : {"w1_8x32", "w1_64x32", "w1_8x1", "w1_64x1", "w2_hit", "w2_novel", "w3a"}) {
    print(row, row, &lookup_min);
  }
  print("w2_miss", "w2_miss", nullptr);
  print("w3b", "w3a", &lookup_min);
  for (const char* row : {"mu10m", "ms8_10m"}) print(row, row, &lookup_min);
  for (const char* row : {"w1_store", "w2_store", "w3a_store", "mu10m_store"}) print(row, row, &store_min);
  print("w3b_store", "w3a_store", &store_min);
  for (const char* row : {"w2_remove", "w3a_remove"}) print(row, row, &remove_min);
  print("w3b_remove", "w3a_remove", &remove_min);
  json.Add("lookup_min_vs_best_peer", lookup_min);
  json.Add("store_min_vs_best_peer", store_min);
  json.Add("remove_min_vs_best_peer", remove_min);

  const auto figure = [&](const char* key, double value, const char* unit) {
    std::printf("%-36s %10.3g %s\n", key, value, unit);
    json.Add(key, value);
  };
  std::printf("\n");
  if (report["w2_miss"] > 0) figure("w2_miss_ns", 1e9 / report["w2_miss"], "ns");
  double p99 = 0;
  for (const std::string name : {"w2", "w3a", "w3b"}) {
    if (report[name + "/idle/p99"] == 0) continue;
    figure((name + "_lookup_p99_idle_ns").c_str(), report[name + "/idle/p99"], "ns");
    figure((name + "_lookup_p99_ingest_ns").c_str(), report[name + "/ingest/p99"], "ns");
    figure((name + "_reader_rate_with_ingest").c_str(), report.Ratio(name + "/ingest/rate", name + "/idle/rate"), "x");
    if (name != "w3a") p99 = std::max(p99, report.Ratio(name + "/ingest/p99", name + "/idle/p99"));
  }
  if (p99 > 0) figure("lookup_p99_ingest_vs_idle", p99, "x");
  for (const char* holders : {"8", "64"}) {
    const std::string row = std::string("ranked_") + holders;
    if (report[row] == 0) continue;
    figure((row + "_ns").c_str(), 1e9 * report[row], "ns");
    figure((row + "_match_ns").c_str(), 1e9 * report[row + "/match"], "ns");
    figure((std::string("ranked_vs_match_") + holders).c_str(), report.Ratio(row, row + "/match"), "x");
  }
  if (report["mu1m"] > 0 && report["mu10m"] > 0) {
    figure("lookup_10x_vs_1x", report.Ratio("mu1m", "mu10m"), "x per lookup");
  }
  for (const auto& [blocks, chains] : kGrowth) {
    const std::string row = std::string("growth_") + blocks;
    if (report[row] > 0) figure((row + "_blocks_ns").c_str(), 1e9 * report[row], "ns per lookup");
  }
  std::printf("\n%-12s %12s %12s %10s %10s %10s %12s %10s\n", "memory", "prefixes", "pairs", "B/prefix", "B/pair",
              "accounted", "blocks/s", "lookup ns");
  for (const std::string name : {"mu10m", "ms8_10m", "w3b", "w1_64x32", "pinned", "fragmented", "agentic"}) {
    if (!wanted(name) || (options.trace.empty() && name == "w1_64x32")) continue;
    const Memory memory = MemoryOf(options, name);
    std::printf("%-12s %12.0f %12.0f %10.1f %10.2f %9.0f%% %12.0f %10.0f  depths %llu checksum %08x\n", name.c_str(),
                memory.prefixes, memory.entries, memory.bytes / memory.prefixes, memory.bytes / memory.entries,
                100 * memory.accounted / memory.bytes, memory.stored_per_s, memory.lookup_ns, memory.depth,
                memory.checksum);
    json.Add(name + "_bytes_per_prefix", memory.bytes / memory.prefixes);
    json.Add(name + "_bytes_per_pair", memory.bytes / memory.entries);
    if (name == "mu10m") json.Add("bytes_per_block_single_holder", memory.bytes / memory.prefixes);
    if (name == "ms8_10m") json.Add("bytes_per_pair_8_holders", memory.bytes / memory.entries);
    if (name == "pinned") json.Add("bytes_per_holding_pinned", memory.bytes / memory.entries);
  }
  if (!options.json.empty()) json.Write(options.json);
  return 0;
}

}  // namespace
}  // namespace icache::bench

int main(int argc, char** argv) { return icache::bench::Main(argc, argv); }
