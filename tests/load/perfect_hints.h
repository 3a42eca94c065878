// PerfectHints: a HintSource that knows exactly what was reported to it, and keeps the reports for a test to look at.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "load/hint_source.h"

namespace icache::testing {

class PerfectHints : public HintSource {
 public:
  // An EngineReport with storage of its own.
  struct Kept {
    size_t engine;
    bool clear;
    std::vector<uint64_t> evicted;
    std::vector<uint64_t> chain;
    bool lease;
    std::optional<EngineStats> stats;
  };

  PerfectHints(size_t engines, int32_t block_size) : block_size_(block_size), held_(engines) {}

  // One row per engine that holds the first block, worth what it matches; NO_HINT when there is none.
  absl::StatusOr<Hint> Ask(absl::Span<const uint64_t> chain) override {
    Hint hint{.reason_code = "NO_HINT", .round_trip_ns = 1000, .server_us = 1};
    for (size_t engine = 0; engine < held_.size(); ++engine) {
      int64_t blocks = 0;
      for (const uint64_t hash : chain) {
        if (!held_[engine].contains(hash)) break;
        ++blocks;
      }
      if (blocks == 0) continue;
      hint.reason_code = "PREFIX_MATCH";
      hint.rows.push_back({.engine = engine,
                           .matched_tokens = blocks * block_size_ + misstated_tokens,
                           .worth = static_cast<double>(blocks)});
    }
    return hint;
  }

  absl::Status Report(size_t engine, const EngineReport& report) override {
    if (report.clear) held_[engine].clear();
    for (const uint64_t hash : report.evicted) held_[engine].erase(hash);
    held_[engine].insert(report.chain.begin(), report.chain.end());
    reports.push_back({.engine = engine,
                       .clear = report.clear,
                       .evicted = {report.evicted.begin(), report.evicted.end()},
                       .chain = {report.chain.begin(), report.chain.end()},
                       .lease = report.lease,
                       .stats = report.stats});
    return status;
  }

  std::vector<Kept> reports;
  absl::Status status;           // what reports end with
  int64_t misstated_tokens = 0;  // added to every row

 private:
  const int32_t block_size_;
  std::vector<std::set<uint64_t>> held_;
};

}  // namespace icache::testing
