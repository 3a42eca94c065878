#include "load/replay_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "load/format.h"

namespace icache {
namespace {

const PolicyResult& RoundRobin(const ReplayResult& result) { return result.policies[1]; }

nlohmann::ordered_json LatencyJson(const LatencyHistogram& histogram, double unit) {
  nlohmann::ordered_json json;
  json["p50"] = static_cast<double>(histogram.Quantile(0.5)) / unit;
  json["p99"] = static_cast<double>(histogram.Quantile(0.99)) / unit;
  json["p999"] = static_cast<double>(histogram.Quantile(0.999)) / unit;
  json["max"] = static_cast<double>(histogram.max()) / unit;
  return json;
}

}  // namespace

std::string ReplayText(const ReplayOutcome& outcome) {
  const ReplayResult& result = outcome.result;
  const FleetOptions& fleet = outcome.options.fleet;
  const FleetTotals& hinted = result.policies.front().totals;

  std::string text = fmt::format(
      "{} requests in {:.0f} s of trace, {} prompt tokens\n{} engines of {} blocks of {} tokens, load cap {}\n\n",
      WithCommas(hinted.requests), static_cast<double>(outcome.trace_ms) / 1000, WithCommas(hinted.prompt_tokens),
      fleet.engines, WithCommas(static_cast<int64_t>(fleet.capacity_blocks)), fleet.block_size,
      outcome.options.load_cap);

  text += fmt::format("{:<12} {:>9} {:>14} {:>16} {:>21} {:>10} {:>15}\n", "policy", "hit rate", "tokens reused",
                      "tokens computed", "saved on round robin", "imbalance", "blocks evicted");
  const int64_t base = RoundRobin(result).totals.ComputedTokens();
  for (const PolicyResult& policy : result.policies) {
    const FleetTotals& totals = policy.totals;
    text += fmt::format("{:<12} {:>7.2f} % {:>14} {:>16} {:>21} {:>10.2f} {:>15}\n", policy.policy,
                        100 * totals.HitRate(), WithCommas(totals.reused_tokens), WithCommas(totals.ComputedTokens()),
                        WithCommas(base - totals.ComputedTokens()), Imbalance(policy.computed_tokens),
                        WithCommas(totals.evicted_blocks));
  }

  text += "\nanswers:        ";
  for (const auto& [reason, count] : result.reason_codes) {
    text += fmt::format(" {} {} ({:.1f} %)", reason, WithCommas(count),
                        100.0 * static_cast<double>(count) / static_cast<double>(hinted.requests));
  }
  text += fmt::format("\nrows checked:    {}, of them wrong: {}", WithCommas(result.rows_checked),
                      WithCommas(result.rows_wrong));
  text += fmt::format("\nindex at end:    {} prefixes, held by the engines: {}", WithCommas(outcome.index_prefixes),
                      WithCommas(result.held_prefixes));
  text += fmt::format("\nlookup:          {}", FormatLatencies(result.round_trip_ns));
  text +=
      fmt::format("\n  in the daemon: p50 {} µs, p99 {} µs, p99.9 {} µs", WithCommas(result.server_us.Quantile(0.5)),
                  WithCommas(result.server_us.Quantile(0.99)), WithCommas(result.server_us.Quantile(0.999)));
  text += fmt::format("\nreport to ack:   {}", FormatLatencies(outcome.report_ns));
  text += fmt::format("\nreports:         {} with {} blocks; replayed in {:.1f} s\n", WithCommas(result.reports),
                      WithCommas(result.reported_blocks), outcome.wall_seconds);
  return text;
}

nlohmann::ordered_json ReplayJson(const ReplayOutcome& outcome) {
  const ReplayResult& result = outcome.result;
  const ReplayOptions& options = outcome.options;
  const FleetTotals& hinted = result.policies.front().totals;

  nlohmann::ordered_json json;
  json["trace"] = {{"file", outcome.trace_path},
                   {"requests", hinted.requests},
                   {"prompt_tokens", hinted.prompt_tokens},
                   {"duration_ms", outcome.trace_ms}};
  json["fleet"] = {{"engines", options.fleet.engines},
                   {"capacity_blocks", options.fleet.capacity_blocks},
                   {"block_size", options.fleet.block_size},
                   {"load_cap", options.load_cap},
                   {"load_window_ms", options.fleet.load_window_ms},
                   {"report_interval_ms", options.report_interval_ms},
                   {"engine_tokens_per_s", options.engine_tokens_per_s}};
  const int64_t base = RoundRobin(result).totals.ComputedTokens();
  for (const PolicyResult& policy : result.policies) {
    const FleetTotals& totals = policy.totals;
    json["policies"].push_back({{"policy", policy.policy},
                                {"hit_rate", totals.HitRate()},
                                {"tokens_reused", totals.reused_tokens},
                                {"tokens_computed", totals.ComputedTokens()},
                                {"tokens_saved_on_round_robin", base - totals.ComputedTokens()},
                                {"imbalance", Imbalance(policy.computed_tokens)},
                                {"tokens_computed_by_engine", policy.computed_tokens},
                                {"blocks_evicted", totals.evicted_blocks}});
  }
  json["reason_codes"] = result.reason_codes;
  json["rows"] = {{"checked", result.rows_checked}, {"wrong", result.rows_wrong}};
  json["prefixes"] = {{"in_index", outcome.index_prefixes}, {"held_by_engines", result.held_prefixes}};
  json["reports"] = {{"updates", result.reports}, {"blocks", result.reported_blocks}};
  json["lookup_us"] = LatencyJson(result.round_trip_ns, 1000);
  json["lookup_in_daemon_us"] = LatencyJson(result.server_us, 1);
  json["report_to_ack_us"] = LatencyJson(outcome.report_ns, 1000);
  json["wall_seconds"] = outcome.wall_seconds;
  return json;
}

}  // namespace icache
