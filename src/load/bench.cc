#include "load/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "icache/base/status_macros.h"
#include "load/format.h"
#include "load/ingest_load.h"
#include "load/lookup_driver.h"
#include "load/output.h"
#include "load/send_schedule.h"
#include "load/steady_time.h"

namespace icache {
namespace {

std::string_view EncodingName(ChainEncoding encoding) {
  switch (encoding) {
    case ChainEncoding::kPacked:
      return "packed";
    case ChainEncoding::kBytes:
      return "bytes";
  }
  return "";
}

std::string_view ModeName(LookupMode mode) { return mode == LookupMode::kStream ? "stream" : "unary"; }

// Runs every driver on a thread of its own, and returns when all have ended.
template <typename Run>
void RunAll(const std::vector<std::unique_ptr<LookupDriver>>& drivers, Run run) {
  std::vector<std::jthread> threads;
  for (size_t i = 0; i < drivers.size(); ++i) threads.emplace_back([&, i] { run(i, drivers[i].get()); });
}

// Returns when the measured part began.
int64_t RunLookups(const BenchOptions& options, const std::vector<std::unique_ptr<LookupDriver>>& drivers) {
  const int64_t start_ns = SteadyNanos();
  if (options.rate > 0) {
    const auto calls_in = [&options](absl::Duration time) {
      return static_cast<uint64_t>(absl::ToDoubleSeconds(time) * options.rate);
    };
    const uint64_t measured = options.requests > 0 ? static_cast<uint64_t>(options.requests)
                                                   : std::max<uint64_t>(calls_in(options.duration), 1);
    const SendSchedule schedule(options.rate, start_ns, calls_in(options.warm_up), measured);
    RunAll(drivers, [&](size_t i, LookupDriver* driver) { driver->RunOpenLoop(schedule, i, drivers.size()); });
    return schedule.TimeOf(schedule.size() - measured);
  }
  const int64_t measure_from_ns = start_ns + absl::ToInt64Nanoseconds(options.warm_up);
  const bool by_count = options.requests > 0;
  const int64_t end_ns =
      by_count ? std::numeric_limits<int64_t>::max() : measure_from_ns + absl::ToInt64Nanoseconds(options.duration);
  std::atomic<int64_t> budget = by_count ? options.requests : std::numeric_limits<int64_t>::max();
  RunAll(drivers, [&](size_t, LookupDriver* driver) { driver->RunClosedLoop(measure_from_ns, end_ns, &budget); });
  return measure_from_ns;
}

}  // namespace

absl::StatusOr<BenchResult> Bench(const BenchOptions& options) {
  std::vector<std::unique_ptr<Connection>> connections(options.connections);
  for (auto& connection : connections) {
    ASSIGN_OR_RETURN(connection, Connection::Open(options.target, kCallTimeout));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> control, Connection::Open(options.target, kCallTimeout));
  const Workload workload(options.workload, options.target);
  if (options.fill) RETURN_IF_ERROR(workload.Populate(*control));

  std::vector<std::unique_ptr<LookupDriver>> drivers;
  for (size_t i = 0; i < options.threads; ++i) {
    std::vector<const Connection*> share;
    for (size_t c = i; c < connections.size(); c += options.threads) share.push_back(connections[c].get());
    const size_t calls = options.concurrency / options.threads + (i < options.concurrency % options.threads ? 1 : 0);
    drivers.push_back(
        std::make_unique<LookupDriver>(&workload, std::move(share), options.mode, calls, options.workload.seed + i));
  }
  std::optional<IngestLoad> ingest;
  if (options.ingest_blocks_per_s > 0) ingest.emplace(&workload, control.get(), options.ingest_blocks_per_s);

  BenchResult result;
  const int64_t measured_from_ns = RunLookups(options, drivers);
  if (ingest.has_value()) {
    RETURN_IF_ERROR(ingest->Stop());
    result.ingest_blocks_per_s = ingest->BlocksPerSecond();
  }
  for (const auto& driver : drivers) result.lookups.Merge(driver->tally());
  result.seconds = static_cast<double>(std::max<int64_t>(result.lookups.last_done_ns - measured_from_ns, 0)) / 1e9;
  if (options.fill && options.clear) RETURN_IF_ERROR(workload.Clear(*control));
  return result;
}

std::string BenchText(const BenchOptions& options, const BenchResult& result) {
  const WorkloadOptions& workload = options.workload;
  std::string text =
      fmt::format("{} chains of {} blocks, each on {} of {} replicas; {:g} % of the lookups hit; chains sent as {}\n",
                  WithCommas(static_cast<int64_t>(workload.chains)), workload.blocks, workload.holders,
                  workload.replicas, 100 * workload.hit_ratio, EncodingName(workload.encoding));
  text += fmt::format("{} connections, {} {} in flight, {}\n\n", options.connections, options.concurrency,
                      options.mode == LookupMode::kStream ? "exchanges on streams" : "calls",
                      options.rate > 0 ? fmt::format("open loop at {:g} lookups/s", options.rate) : "closed loop");
  text += fmt::format("lookups:         {} in {:.2f} s, {}/s\n", WithCommas(result.lookups.Answered()), result.seconds,
                      WithCommas(static_cast<int64_t>(result.LookupsPerSecond())));
  text += fmt::format("latency:         {}\n", FormatLatencies(result.lookups.latency_ns));
  const LatencyHistogram& server_us = result.lookups.server_us;
  text += fmt::format("  in the daemon: p50 {} µs, p99 {} µs, p99.9 {} µs\n", WithCommas(server_us.Quantile(0.5)),
                      WithCommas(server_us.Quantile(0.99)), WithCommas(server_us.Quantile(0.999)));
  text += "answers:        ";
  for (const auto& [reason, count] : result.lookups.reason_codes)
    text += fmt::format(" {} {}", reason, WithCommas(count));
  text += "\nerrors:         ";
  if (result.lookups.errors.empty()) text += " none";
  for (const auto& [error, count] : result.lookups.errors) text += fmt::format(" {} {}", error, WithCommas(count));
  text += "\n";
  if (options.ingest_blocks_per_s > 0) {
    text += fmt::format("ingest:          {} blocks/s of {} asked for\n",
                        WithCommas(static_cast<int64_t>(result.ingest_blocks_per_s)),
                        WithCommas(static_cast<int64_t>(options.ingest_blocks_per_s)));
  }
  return text;
}

nlohmann::ordered_json BenchJson(const BenchOptions& options, const BenchResult& result) {
  const WorkloadOptions& workload = options.workload;
  nlohmann::ordered_json json;
  json["workload"] = {
      {"chains", workload.chains},   {"blocks", workload.blocks},       {"replicas", workload.replicas},
      {"holders", workload.holders}, {"hit_ratio", workload.hit_ratio}, {"encoding", EncodingName(workload.encoding)},
      {"seed", workload.seed}};
  json["mode"] = ModeName(options.mode);
  json["loop"] = options.rate > 0 ? "open" : "closed";
  json["rate"] = options.rate;
  json["connections"] = options.connections;
  json["concurrency"] = options.concurrency;
  json["threads"] = options.threads;
  json["lookups"] = result.lookups.Answered();
  json["seconds"] = result.seconds;
  json["lookups_per_s"] = result.LookupsPerSecond();
  const auto micros = [](int64_t nanos) { return static_cast<double>(nanos) / 1000; };
  const LatencyHistogram& latency = result.lookups.latency_ns;
  json["latency_us"] = {{"mean", latency.Mean() / 1000},           {"p50", micros(latency.Quantile(0.5))},
                        {"p90", micros(latency.Quantile(0.9))},    {"p99", micros(latency.Quantile(0.99))},
                        {"p999", micros(latency.Quantile(0.999))}, {"max", micros(latency.max())}};
  const LatencyHistogram& server_us = result.lookups.server_us;
  json["in_daemon_us"] = {{"p50", server_us.Quantile(0.5)},
                          {"p90", server_us.Quantile(0.9)},
                          {"p99", server_us.Quantile(0.99)},
                          {"p999", server_us.Quantile(0.999)},
                          {"max", server_us.max()}};
  json["reason_codes"] = result.lookups.reason_codes;
  json["errors"] = result.lookups.errors;
  json["ingest_blocks_per_s"] = result.ingest_blocks_per_s;
  return json;
}

absl::Status RunBench(const BenchOptions& options) {
  ASSIGN_OR_RETURN(const BenchResult result, Bench(options));
  if (options.json_path != "-") RETURN_IF_ERROR(WriteText("-", BenchText(options, result)));
  if (!options.json_path.empty()) {
    RETURN_IF_ERROR(WriteText(options.json_path, BenchJson(options, result).dump(2) + "\n"));
  }
  if (result.lookups.Answered() == 0) return absl::UnavailableError("no lookup was answered");
  return absl::OkStatus();
}

}  // namespace icache
