// The bridge's own work, without sockets: a payload decoded, put in order, fingerprinted, kept track of, and written as
// an update of the wire. And, with all sockets, how long an event takes until a lookup shows it.
//
// Workload: sequences of 64 blocks of 16 tokens from the root on, `blocks_per_event` of them stored by one event, one
// event a batch; the oldest sequence is removed for each new one beyond 1,000. Blocks are counted when they are stored.
// Payloads are packed beforehand. Seeds are fixed. Times are CPU time.
#include <benchmark/benchmark.h>
#include <grpcpp/grpcpp.h>
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <msgpack.hpp>
#include <optional>
#include <random>
#include <string>
#include <variant>
#include <vector>
#include <zmq.hpp>

#include "absl/time/clock.h"
#include "bench/measure.h"
#include "bridge/bridge.h"
#include "bridge/update_writer.h"
#include "icache/base/block_hash.h"
#include "icache/daemon/server.h"
#include "icache/engine/engine_stream.h"
#include "icache/fingerprint/fingerprint.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {
namespace {

constexpr int kSequenceBlocks = 64;
constexpr int kBlockTokens = 16;
constexpr size_t kSequences = 1000;
constexpr size_t kBlocksPerUpdate = 4096;

const Moment kNow = {.steady = absl::UnixEpoch(), .wall = absl::FromUnixSeconds(1'700'000'000)};

using Packer = msgpack::packer<msgpack::sbuffer>;

// Packs batches as vLLM does, in the map form.
class PayloadMaker {
 public:
  explicit PayloadMaker(uint64_t seed) : random_(seed) {}

  // The batches of one new sequence.
  std::vector<std::string> Sequence(int blocks_per_event) {
    std::vector<std::string> payloads;
    std::vector<uint64_t> hashes;
    for (int done = 0; done < kSequenceBlocks; done += blocks_per_event) {
      payloads.push_back(Batch([&](Packer& packer) {
        packer.pack_map(7);
        packer.pack("type").pack("BlockStored").pack("block_hashes").pack_array(blocks_per_event);
        const std::optional<uint64_t> parent = hashes.empty() ? std::nullopt : std::optional(hashes.back());
        for (int i = 0; i < blocks_per_event; ++i) packer.pack(hashes.emplace_back(random_()));
        packer.pack("parent_block_hash");
        if (parent) {
          packer.pack(*parent);
        } else {
          packer.pack_nil();
        }
        packer.pack("token_ids").pack_array(blocks_per_event * kBlockTokens);
        for (int i = 0; i < blocks_per_event * kBlockTokens; ++i)
          packer.pack(static_cast<uint32_t>(random_() % 150'000));
        packer.pack("block_size").pack(kBlockTokens).pack("lora_id").pack_nil().pack("medium").pack("GPU");
      }));
    }
    sequences_.push_back(std::move(hashes));
    return payloads;
  }

  // The batch that removes the oldest sequence.
  std::string Removal() {
    std::string payload = Batch([&](Packer& packer) {
      packer.pack_map(3).pack("type").pack("BlockRemoved").pack("block_hashes").pack(sequences_.front());
      packer.pack("medium").pack("GPU");
    });
    sequences_.pop_front();
    return payload;
  }

 private:
  template <typename Event>
  static std::string Batch(Event pack_event) {
    msgpack::sbuffer buffer;
    Packer packer(&buffer);
    packer.pack_map(2).pack("ts").pack(1.7e9).pack("events").pack_array(1);
    pack_event(packer);
    return {buffer.data(), buffer.size()};
  }

  std::mt19937_64 random_;
  std::deque<std::vector<uint64_t>> sequences_;
};

void BM_EventsToUpdates(benchmark::State& state) {
  const int blocks_per_event = static_cast<int>(state.range(0));
  PayloadMaker maker(31);
  std::vector<std::string> payloads;
  int64_t blocks = 0;
  for (size_t i = 0; i < 3 * kSequences; ++i) {
    for (std::string& payload : maker.Sequence(blocks_per_event)) payloads.push_back(std::move(payload));
    blocks += kSequenceBlocks;
    if (i >= kSequences) payloads.push_back(maker.Removal());
  }
  const ReplicaNames names = {"replica", "model", "tenant", "vllm"};
  for (auto _ : state) {
    EngineStream stream(StreamOptions(), [](uint64_t) {});
    EngineReplica& replica = *stream.replicas().begin()->second;
    size_t updates = 0;
    const auto report = [&] {
      UpdateWriter writer(&names, kNow.wall, kNow.steady, kBlocksPerUpdate, /*clear=*/false);
      replica.ledger.Drain(&writer);
      for (const Report& one : writer.Finish()) {
        benchmark::DoNotOptimize(one.update->SerializeAsString());
        ++updates;
      }
    };
    for (size_t i = 0; i < payloads.size(); ++i) {
      stream.OnLive(i, payloads[i], kNow);
      if (replica.ledger.changed_blocks() >= kBlocksPerUpdate) report();
    }
    report();
    benchmark::DoNotOptimize(updates);
  }
  state.SetItemsProcessed(state.iterations() * blocks);
}
BENCHMARK(BM_EventsToUpdates)->ArgName("blocks_per_event")->Arg(1)->Arg(8)->Arg(64)->Unit(benchmark::kMillisecond);

// Resident memory per block held, in a ledger of `blocks`.
void BM_LedgerMemory(benchmark::State& state) {
  const int64_t blocks = state.range(0);
  for (auto _ : state) {
    PayloadMaker maker(32);
    malloc_trim(0);  // what an earlier bench has freed must not hide what this one takes
    const int64_t before = bench::ResidentBytes();
    EngineStream stream(StreamOptions(), [](uint64_t) {});
    EngineReplica& replica = *stream.replicas().begin()->second;
    uint64_t sequence = 0;
    const ReplicaNames names = {"replica", "model", "tenant", "vllm"};
    for (int64_t stored = 0; stored < blocks; stored += kSequenceBlocks) {
      for (const std::string& payload : maker.Sequence(kSequenceBlocks)) {
        stream.OnLive(sequence++, payload, kNow);
      }
      UpdateWriter writer(&names, absl::UnixEpoch(), absl::UnixEpoch(), kBlocksPerUpdate, /*clear=*/false);
      replica.ledger.Drain(&writer);
    }
    const auto held = static_cast<double>(replica.ledger.held_blocks());
    // What the maker remembers of each block is a hash of 8 bytes.
    state.counters["resident_bytes_per_block"] = static_cast<double>(bench::ResidentBytes() - before) / held - 8;
    state.counters["accounted_bytes_per_block"] = static_cast<double>(replica.ledger.memory_bytes()) / held;
  }
}
BENCHMARK(BM_LedgerMemory)->ArgName("blocks")->Arg(1'000'000)->Iterations(1)->Unit(benchmark::kMillisecond);

// From the send of an event with one block to a lookup that shows it: publisher, bridge, daemon and client in one
// process, over loopback sockets. One event is under way at a time, so each waits for the whole batch interval.
void BM_EventToVisible(benchmark::State& state) {
  zmq::context_t context;
  zmq::socket_t publisher(context, zmq::socket_type::pub);
  publisher.bind("tcp://127.0.0.1:*");

  NullLogger logger;
  DaemonOptions daemon_options;
  daemon_options.grpc_addresses = {"127.0.0.1:0"};
  daemon_options.http_address = "127.0.0.1:0";
  const auto daemon = Server::Start(daemon_options, &logger);
  BridgeOptions options;
  options.http_address = "127.0.0.1:0";
  options.report.daemons = (*daemon)->grpc_addresses();
  EngineOptions& engine = options.engines.emplace_back();
  engine.model = engine.tenant = engine.replica = "m";
  engine.hash_scheme = "vllm";
  engine.events = publisher.get(zmq::sockopt::last_endpoint);
  const auto bridge = Bridge::Start(options, &logger);
  const auto stub = inferencecache::v1alpha1::InferenceCache::NewStub(
      grpc::CreateChannel((*daemon)->grpc_addresses().front(), grpc::InsecureChannelCredentials()));

  uint64_t sequence = 0;
  PayloadMaker maker(33);
  // Publishes a block and asks for it until it is there.
  const auto publish_and_wait = [&](absl::Duration patience) {
    const std::string payload = maker.Sequence(1).front();
    char number[8];
    StoreBigEndian64(sequence++, number);
    publisher.send(zmq::message_t(), zmq::send_flags::sndmore);
    publisher.send(zmq::buffer(number), zmq::send_flags::sndmore);
    publisher.send(zmq::buffer(payload), zmq::send_flags::none);
    PayloadDecoder decoder;
    const KvBatch batch = *decoder.Decode(payload);
    inferencecache::v1alpha1::LookupRouteRequest request;
    request.set_tenant_id("m");
    request.set_model_id("m");
    request.set_hash_scheme("vllm");
    request.add_block_hashes_u64(ContentHash(std::get<BlockStored>(batch.events[0]).token_ids));
    request.set_tokens_per_block(1000);  // above every floor
    const absl::Time give_up_at = absl::Now() + patience;
    while (absl::Now() < give_up_at) {
      grpc::ClientContext call;
      inferencecache::v1alpha1::LookupRouteResponse answer;
      if (stub->LookupRoute(&call, request, &answer).ok() && answer.reason_code() == "PREFIX_MATCH") return true;
    }
    return false;
  };
  while (!publish_and_wait(absl::Milliseconds(200))) {  // until all are connected
  }
  std::vector<double> seconds;
  for (auto _ : state) {
    const absl::Time begin = absl::Now();
    if (!publish_and_wait(absl::Seconds(10))) state.SkipWithError("never visible");
    seconds.push_back(absl::ToDoubleSeconds(absl::Now() - begin));
    state.SetIterationTime(seconds.back());
  }
  std::sort(seconds.begin(), seconds.end());
  state.counters["p50_ms"] = seconds[seconds.size() / 2] * 1e3;
  state.counters["p99_ms"] = seconds[seconds.size() * 99 / 100] * 1e3;
  state.counters["max_ms"] = seconds.back() * 1e3;
}
BENCHMARK(BM_EventToVisible)->UseManualTime()->Iterations(500)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace icache

BENCHMARK_MAIN();
