// ReplaySvg(): two rows of charts. Above, one line per policy, labelled at its end. Below, one small bar chart per
// policy on a common scale: the prompt tokens that each engine computed, as a multiple of that policy's mean.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string_view>
#include <vector>

#include "load/format.h"
#include "load/replay_report.h"

namespace icache {
namespace {

constexpr double kWidth = 960;
constexpr double kHeight = 626;
constexpr std::array<std::string_view, 4> kColours = {"#0072b2", "#767676", "#d55e00", "#009e73"};

struct Box {
  double left, top, right, bottom;
  double width() const { return right - left; }
  double height() const { return bottom - top; }
};
constexpr Box kCurves = {.left = 70, .top = 100, .right = 800, .bottom = 340};
constexpr Box kBars = {.left = 70, .top = 434, .right = 930, .bottom = 584};

std::string Text(double x, double y, std::string_view anchor, std::string_view attributes, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, attributes,
                     text);
}

std::string Line(double x1, double y1, double x2, double y2, std::string_view attributes) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>\n", x1, y1, x2, y2,
                     attributes);
}

// A step of 1, 2 or 5 times a power of ten that divides `span` into at most `parts` parts.
double NiceStep(double span, int parts) {
  const double least = span / parts;
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least) return factor * power;
  }
  return 10 * power;
}

std::string HitRateChart(const ReplayOutcome& outcome) {
  const std::vector<PolicyResult>& policies = outcome.result.policies;
  const int64_t begin_ms = policies.front().curve.front().time_ms;
  const double minutes = std::max(static_cast<double>(outcome.trace_ms) / 60'000, 1e-3);
  double top_rate = 0.1;
  for (const PolicyResult& policy : policies) {
    for (const HitRatePoint& point : policy.curve) top_rate = std::max(top_rate, point.hit_rate);
  }
  const double rate_step = NiceStep(top_rate, 6);
  const double rate_end = rate_step * std::ceil(top_rate / rate_step);
  const auto x_of = [&](double at) { return kCurves.left + kCurves.width() * std::clamp(at / minutes, 0.0, 1.0); };
  const auto y_of = [&](double rate) { return kCurves.bottom - kCurves.height() * rate / rate_end; };

  std::string svg = Text(kCurves.left, kCurves.top - 14, "start", "class=\"h\"",
                         "Prompt tokens found in the serving engine's cache, cumulative");
  for (int i = 0; i * rate_step < rate_end * 1.001; ++i) {
    const double y = y_of(i * rate_step);
    svg += Line(kCurves.left, y, kCurves.right, y, i == 0 ? "class=\"axis\"" : "class=\"grid\"");
    svg += Text(kCurves.left - 8, y + 4, "end", "", fmt::format("{:.0f} %", 100 * i * rate_step));
  }
  const double minute_step = NiceStep(minutes, 8);
  for (int i = 0; i * minute_step < minutes * 1.001; ++i) {
    svg += Text(x_of(i * minute_step), kCurves.bottom + 18, "middle", "", fmt::format("{:g}", i * minute_step));
  }
  svg += Text((kCurves.left + kCurves.right) / 2, kCurves.bottom + 36, "middle", "", "minutes of trace");

  std::vector<double> label_ys;
  for (const PolicyResult& policy : policies) label_ys.push_back(y_of(policy.curve.back().hit_rate));
  // Labels that would touch are moved apart, from the top one down.
  std::vector<size_t> from_top(policies.size());
  std::iota(from_top.begin(), from_top.end(), size_t{0});
  std::sort(from_top.begin(), from_top.end(), [&](size_t a, size_t b) { return label_ys[a] < label_ys[b]; });
  constexpr double kLabelHeight = 16;
  for (size_t i = 1; i < from_top.size(); ++i) {
    double& y = label_ys[from_top[i]];
    y = std::max(y, label_ys[from_top[i - 1]] + kLabelHeight);
  }
  for (size_t i = policies.size(); i-- > 0;) {  // the hints last, on top of the others
    std::string points;
    for (const HitRatePoint& point : policies[i].curve) {
      const double at = static_cast<double>(point.time_ms - begin_ms) / 60'000;
      points += fmt::format("{:.1f},{:.1f} ", x_of(at), y_of(point.hit_rate));
    }
    svg += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n", points,
                       kColours[i % kColours.size()]);
    svg += Text(kCurves.right + 8, label_ys[i] + 4, "start",
                fmt::format("class=\"label\" style=\"fill:{}\"", kColours[i % kColours.size()]),
                fmt::format("{} {:.1f} %", policies[i].policy, 100 * policies[i].totals.HitRate()));
  }
  return svg;
}

std::string LoadCharts(const ReplayOutcome& outcome) {
  const std::vector<PolicyResult>& policies = outcome.result.policies;
  double top = 1.25;
  for (const PolicyResult& policy : policies) top = std::max(top, Imbalance(policy.computed_tokens));
  const double step = NiceStep(top, 4);
  const double end = step * std::ceil(top / step);
  const auto y_of = [&](double share) { return kBars.bottom - kBars.height() * share / end; };

  std::string svg = Text(kBars.left, kBars.top - 34, "start", "class=\"h\"",
                         "Prompt tokens computed by each engine, as a multiple of the policy's mean");
  constexpr double kGap = 24;
  const double panel = (kBars.width() + kGap) / static_cast<double>(policies.size()) - kGap;
  for (size_t i = 0; i < policies.size(); ++i) {
    const double left = kBars.left + static_cast<double>(i) * (panel + kGap);
    for (int tick = 0; tick * step < end * 1.001; ++tick) {
      const double y = y_of(tick * step);
      svg += Line(left, y, left + panel, y, tick == 0 ? "class=\"axis\"" : "class=\"grid\"");
      if (i == 0) svg += Text(left - 8, y + 4, "end", "", fmt::format("{:g}×", tick * step));
    }
    const std::vector<int64_t>& computed = policies[i].computed_tokens;
    const auto sum = static_cast<double>(std::accumulate(computed.begin(), computed.end(), int64_t{0}));
    const auto engines = static_cast<double>(computed.size());
    const double slot = panel / engines;
    for (size_t engine = 0; engine < computed.size(); ++engine) {
      const double share = sum == 0 ? 0 : static_cast<double>(computed[engine]) * engines / sum;
      svg += fmt::format("<rect x=\"{:.2f}\" y=\"{:.1f}\" width=\"{:.2f}\" height=\"{:.1f}\" fill=\"{}\"/>\n",
                         left + slot * (static_cast<double>(engine) + 0.1), y_of(share), slot * 0.8,
                         kBars.bottom - y_of(share), kColours[i % kColours.size()]);
    }
    svg += Line(left, y_of(1), left + panel, y_of(1), "class=\"mean\"");
    svg += Text(left, kBars.top - 8, "start",
                fmt::format("class=\"label\" style=\"fill:{}\"", kColours[i % kColours.size()]),
                fmt::format("{}: max {:.2f}×", policies[i].policy, Imbalance(computed)));
    svg += Text(left + panel / 2, kBars.bottom + 18, "middle", "",
                computed.size() == 1 ? "engine 0" : fmt::format("engines 0 to {}", computed.size() - 1));
  }
  return svg;
}

}  // namespace

std::string ReplaySvg(const ReplayOutcome& outcome) {
  const FleetOptions& fleet = outcome.options.fleet;
  const FleetTotals& hinted = outcome.result.policies.front().totals;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} "
      "{1:.0f}\">\n"
      "<style>text{{font:13px sans-serif;fill:#333}} .title{{font-size:17px;font-weight:bold}} .h{{font-weight:bold}} "
      ".label{{font-weight:bold}} .grid{{stroke:#e3e3e3}} .axis{{stroke:#555}} "
      ".mean{{stroke:#333;stroke-dasharray:4 3}}</style>\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n",
      kWidth, kHeight);
  svg += Text(kCurves.left, 32, "start", "class=\"title\"", "Prefix reuse by routing policy");
  svg += Text(kCurves.left, 52, "start", "",
              fmt::format("{} requests, {} engines of {} blocks of {} tokens, load cap {}", WithCommas(hinted.requests),
                          fleet.engines, WithCommas(static_cast<int64_t>(fleet.capacity_blocks)), fleet.block_size,
                          outcome.options.load_cap));
  svg += HitRateChart(outcome);
  svg += LoadCharts(outcome);
  svg += "</svg>\n";
  return svg;
}

}  // namespace icache
