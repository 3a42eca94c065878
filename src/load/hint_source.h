// HintSource: where a replay asks for routing hints and reports what its engines did. DaemonHints is the real one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace icache {

// One row of an answer.
struct HintRow {
  size_t engine = 0;
  int64_t matched_tokens = 0;
  double worth = 0;  // what the rows are ordered by, more is better
};

struct Hint {
  std::string reason_code;
  std::vector<HintRow> rows = {};
  int64_t round_trip_ns = 0;  // as the asker saw it
  int64_t server_us = 0;      // as the daemon says
};

struct EngineStats {
  double hit_rate = 0;      // 0..1, since the report before
  double pressure = 0;      // 0..1
  int64_t held_tokens = 0;  // in the cache
};

// What one engine tells, applied in the order of the fields. Spans are read during the call only.
struct EngineReport {
  bool clear = false;                       // all that it reported before is gone
  absl::Span<const uint64_t> evicted = {};  // blocks that it no longer holds
  absl::Span<const uint64_t> chain = {};    // a chain that it holds, from the root
  bool lease = false;                       // it still holds everything else
  std::optional<EngineStats> stats = std::nullopt;
};

class HintSource {
 public:
  virtual ~HintSource() = default;

  // Which engines are believed to hold how much of `chain`.
  virtual absl::StatusOr<Hint> Ask(absl::Span<const uint64_t> chain) = 0;

  // Returns when the report is in force: the next Ask() sees it.
  virtual absl::Status Report(size_t engine, const EngineReport& report) = 0;
};

}  // namespace icache
