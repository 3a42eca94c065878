#include "load/replay.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "icache/base/status_macros.h"
#include "load/engine_chooser.h"
#include "load/prompt.h"

namespace icache {
namespace {

// The engines under one policy, and how it chooses among them.
class PolicyRun {
 public:
  PolicyRun(std::string name, const FleetOptions& options, std::optional<double> load_cap, size_t trace_length)
      : chooser_(load_cap), fleet_(options), stride_(std::max<size_t>(trace_length / kCurvePoints, 1)) {
    result_.policy = std::move(name);
  }

  const Fleet& fleet() const { return fleet_; }

  void AdvanceTo(int64_t now_ms) { fleet_.AdvanceTo(now_ms); }

  struct Assignment {
    size_t engine;
    Fleet::Service service;
  };
  Assignment Assign(const TraceRequest& request, absl::Span<const uint64_t> chain,
                    absl::Span<const RankedEngine> ranked) {
    fleet_.AdvanceTo(request.timestamp_ms);
    const size_t engine = chooser_.Choose(ranked, fleet_.load());
    const Assignment assignment{.engine = engine, .service = fleet_.Serve(engine, request, chain)};
    if (static_cast<size_t>(fleet_.totals().requests) % stride_ == 0) AddPoint(request.timestamp_ms);
    return assignment;
  }

  // The true ranking: how many blocks of `chain` each engine holds. Engines that hold none are left out.
  const std::vector<RankedEngine>& Truth(absl::Span<const uint64_t> chain) {
    truth_.clear();
    for (size_t engine = 0; engine < fleet_.engines(); ++engine) {
      const size_t held = fleet_.cache(engine).HeldBlocks(chain);
      if (held > 0) truth_.push_back({.engine = engine, .worth = static_cast<double>(held)});
    }
    return truth_;
  }

  PolicyResult Finish(int64_t end_ms) && {
    if (static_cast<size_t>(fleet_.totals().requests) % stride_ != 0) AddPoint(end_ms);
    result_.totals = fleet_.totals();
    result_.computed_tokens = fleet_.ComputedTokens();
    return std::move(result_);
  }

 private:
  void AddPoint(int64_t time_ms) {
    result_.curve.push_back({.time_ms = time_ms, .hit_rate = fleet_.totals().HitRate()});
  }

  EngineChooser chooser_;
  Fleet fleet_;
  const size_t stride_;  // requests from one point of the curve to the next
  std::vector<RankedEngine> truth_;
  PolicyResult result_;
};

// The routing by hints: asks, checks the answers, and reports what the engines did.
class HintedRun {
 public:
  HintedRun(const ReplayOptions& options, size_t trace_length, HintSource* hints)
      : options_(options),
        hints_(hints),
        run_("hints", options.fleet, options.load_cap, trace_length),
        reported_(options.fleet.engines) {}

  // The engines come up empty.
  absl::Status Start(ReplayResult* result) {
    for (size_t engine = 0; engine < run_.fleet().engines(); ++engine) {
      RETURN_IF_ERROR(Report(engine, {.clear = true}, result));
    }
    return absl::OkStatus();
  }

  absl::Status Step(const TraceRequest& request, absl::Span<const uint64_t> chain, ReplayResult* result) {
    run_.AdvanceTo(request.timestamp_ms);
    RETURN_IF_ERROR(ReportStatsWhenDue(request.timestamp_ms, result));

    ASSIGN_OR_RETURN(const Hint hint, hints_->Ask(chain));
    ++result->reason_codes[hint.reason_code];
    result->round_trip_ns.Record(hint.round_trip_ns);
    result->server_us.Record(hint.server_us);
    ranked_.clear();
    for (const HintRow& row : hint.rows) {
      ranked_.push_back({.engine = row.engine, .worth = row.worth});
      if (hint.reason_code == "PREFIX_MATCH") CheckRow(row, chain, result);
    }

    const auto [engine, service] = run_.Assign(request, chain, ranked_);
    if (!service.stored && service.evicted.empty()) return absl::OkStatus();
    // From the root even when only the tail is new, so that the daemon learns the right depths and token counts.
    const absl::Span<const uint64_t> held = chain.first(service.stored ? service.held_after : 0);
    return Report(engine, {.evicted = service.evicted, .chain = held}, result);
  }

  PolicyResult Finish(int64_t end_ms, ReplayResult* result) && {
    result->held_prefixes = static_cast<int64_t>(run_.fleet().DistinctBlocks());
    return std::move(run_).Finish(end_ms);
  }

 private:
  absl::Status Report(size_t engine, const EngineReport& report, ReplayResult* result) {
    ++result->reports;
    result->reported_blocks += static_cast<int64_t>(report.chain.size());
    return hints_->Report(engine, report);
  }

  void CheckRow(const HintRow& row, absl::Span<const uint64_t> chain, ReplayResult* result) const {
    const size_t held = run_.fleet().cache(row.engine).HeldBlocks(chain);
    ++result->rows_checked;
    if (row.matched_tokens != static_cast<int64_t>(held) * options_.fleet.block_size) ++result->rows_wrong;
  }

  absl::Status ReportStatsWhenDue(int64_t now_ms, ReplayResult* result) {
    const int64_t interval = now_ms / options_.report_interval_ms;
    if (interval == last_interval_) return absl::OkStatus();
    last_interval_ = interval;
    const Fleet& fleet = run_.fleet();
    const double full_load = options_.engine_tokens_per_s * static_cast<double>(options_.fleet.load_window_ms) / 1000.0;
    for (size_t engine = 0; engine < fleet.engines(); ++engine) {
      const FleetTotals& totals = fleet.totals(engine);
      const FleetTotals since{.prompt_tokens = totals.prompt_tokens - reported_[engine].prompt_tokens,
                              .reused_tokens = totals.reused_tokens - reported_[engine].reused_tokens};
      reported_[engine] = totals;
      const EngineStats stats{
          .hit_rate = since.HitRate(),
          .pressure = std::min(static_cast<double>(fleet.load().load(engine)) / full_load, 1.0),
          .held_tokens = static_cast<int64_t>(fleet.cache(engine).size()) * options_.fleet.block_size};
      RETURN_IF_ERROR(Report(engine, {.lease = true, .stats = stats}, result));
    }
    return absl::OkStatus();
  }

  const ReplayOptions& options_;
  HintSource* const hints_;
  PolicyRun run_;
  int64_t last_interval_ = 0;
  std::vector<FleetTotals> reported_;  // by engine: its totals at its last stats
  std::vector<RankedEngine> ranked_;
};

}  // namespace

absl::StatusOr<ReplayResult> Replay(const ReplayOptions& options, absl::Span<const TraceRequest> trace,
                                    HintSource* hints, absl::FunctionRef<void()> progress) {
  HintedRun hinted(options, trace.size(), hints);
  PolicyRun round_robin("round robin", options.fleet, std::nullopt, trace.size());
  PolicyRun best_match("best match", options.fleet, std::nullopt, trace.size());
  PolicyRun oracle("oracle", options.fleet, options.load_cap, trace.size());
  PromptExpander expander(options.fleet.block_size);

  ReplayResult result;
  RETURN_IF_ERROR(hinted.Start(&result));
  for (const TraceRequest& request : trace) {
    const absl::Span<const uint64_t> chain = expander.Chain(request);
    RETURN_IF_ERROR(hinted.Step(request, chain, &result));
    round_robin.Assign(request, chain, {});
    best_match.Assign(request, chain, best_match.Truth(chain));
    oracle.Assign(request, chain, oracle.Truth(chain));
    progress();
  }

  const int64_t end_ms = trace.back().timestamp_ms;
  result.policies.push_back(std::move(hinted).Finish(end_ms, &result));
  for (PolicyRun* run : {&round_robin, &best_match, &oracle}) {
    result.policies.push_back(std::move(*run).Finish(end_ms));
  }
  return result;
}

}  // namespace icache
