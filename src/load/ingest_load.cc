#include "load/ingest_load.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "icache/base/status_macros.h"
#include "load/random.h"
#include "load/steady_time.h"

namespace icache {
namespace {

constexpr const char* kReplicaId = "bench-ingest";

// The hashes of chain `number`, a stream of its own for each number.
std::vector<uint64_t> ChainNumber(uint64_t number, const WorkloadOptions& options) {
  SplitMix64 random(~options.seed - number * (uint64_t{1} << 32));
  std::vector<uint64_t> chain;
  for (size_t i = 0; i < options.blocks; ++i) chain.push_back(random.Next());
  return chain;
}

}  // namespace

IngestLoad::IngestLoad(const Workload* workload, const Connection* connection, double blocks_per_s)
    : workload_(workload),
      connection_(connection),
      nanos_per_update_(static_cast<int64_t>(1e9 * static_cast<double>(workload->options().blocks) / blocks_per_s)),
      thread_([this](std::stop_token stop) { Write(std::move(stop)); }) {}

IngestLoad::~IngestLoad() { static_cast<void>(Stop()); }

absl::Status IngestLoad::Stop() {
  if (!thread_.joinable()) return status_;
  thread_.request_stop();
  thread_.join();
  wire::CacheStateUpdate clear = workload_->NewUpdate(kReplicaId);
  clear.set_clear(true);
  status_.Update(connection_->Report({std::move(clear)}));
  return status_;
}

void IngestLoad::Write(std::stop_token stop) {
  const WorkloadOptions& options = workload_->options();
  grpc::ClientContext context;
  connection_->Prepare(&context);
  wire::Ack ack;
  const auto stream = connection_->stub()->ReportCacheState(&context, &ack);

  // Only to sleep on, and be woken by the stop token.
  std::mutex mutex;
  std::condition_variable_any wake_up;
  std::unique_lock lock(mutex);

  const int64_t begin_ns = SteadyNanos();
  uint64_t updates = 0;
  bool writable = true;
  while (writable && !stop.stop_requested()) {
    wire::CacheStateUpdate update = workload_->NewUpdate(kReplicaId);
    const std::vector<uint64_t> stored = ChainNumber(updates, options);
    wire::PrefixEntry* prefix = update.add_prefixes();
    prefix->mutable_block_hashes_u64()->Assign(stored.begin(), stored.end());
    prefix->set_tokens_per_block(options.block_size);
    if (updates >= kLiveChains) {
      const std::vector<uint64_t> evicted = ChainNumber(updates - kLiveChains, options);
      update.mutable_evicted_hashes_u64()->Assign(evicted.rbegin(), evicted.rend());
    }
    writable = stream->Write(update);
    if (writable) ++updates;
    const std::chrono::steady_clock::time_point next(
        std::chrono::nanoseconds(begin_ns + static_cast<int64_t>(updates) * nanos_per_update_));
    wake_up.wait_until(lock, stop, next, [] { return false; });
  }
  const double seconds = static_cast<double>(SteadyNanos() - begin_ns) / 1e9;
  blocks_per_s_ = static_cast<double>(updates * options.blocks) / seconds;
  stream->WritesDone();
  status_ = StatusFromGrpc(stream->Finish(), "ReportCacheState");
}

}  // namespace icache
