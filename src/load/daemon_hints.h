// DaemonHints: a HintSource that asks a real daemon, each engine being a replica of its own.
//
// A report is one ReportCacheState stream with one update, whose Ack is awaited: that is the only sign on the wire that
// an update is applied. Observations are unstamped, so they happen at the daemon's now.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "icache/base/string_map.h"
#include "load/connection.h"
#include "load/hint_source.h"
#include "load/latency_histogram.h"

namespace icache {

class DaemonHints : public HintSource {
 public:
  // `connection` is not owned and must outlive this. Requires: engines >= 1, block_size >= 1.
  DaemonHints(const Connection* connection, const Target& target, size_t engines, int32_t block_size);

  // Rows of replicas that are no engine of ours are left out.
  //
  // A PREFIX_MATCH row's worth is its score without freshness: how old an observation is says something about real
  // time, while a replay runs through an hour of trace time in seconds and would make an order of that noise.
  absl::StatusOr<Hint> Ask(absl::Span<const uint64_t> chain) override;
  absl::Status Report(size_t engine, const EngineReport& report) override;

  // Distinct prefixes of (tenant, model) that the daemon has in its index, whoever holds them.
  absl::StatusOr<int64_t> PrefixCount() const;

  const std::string& replica_id(size_t engine) const { return replica_ids_[engine]; }
  const LatencyHistogram& report_ns() const { return report_ns_; }  // report to Ack

 private:
  const Connection* const connection_;
  const Target target_;
  const int32_t block_size_;
  std::vector<std::string> replica_ids_;  // bytewise order is the engines' order
  StringMap<size_t> engines_by_id_;
  wire::LookupRouteRequest request_;  // all but the chain is set once
  wire::LookupRouteResponse response_;
  wire::CacheStateUpdate update_;
  LatencyHistogram report_ns_;
};

}  // namespace icache
