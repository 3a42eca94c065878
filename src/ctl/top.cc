#include "ctl/top.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "ctl/client.h"
#include "ctl/interrupt.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/text.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

using nlohmann::ordered_json;

constexpr char kCalls[] = "inferencecache_lookup_route_calls_total";
constexpr char kLatency[] = "inferencecache_lookup_route_latency_seconds_bucket";

// The bound of the bucket in which the `quantile` of the calls between the two pages lies, in microseconds.
std::optional<double> LatencyBound(const MetricsPage& before, const MetricsPage& now, double quantile) {
  std::map<double, double> calls;  // at or below each bound
  const std::map<std::string, double> old_buckets = SumsBy(before, kLatency, "le");
  for (const auto& [le, count] : SumsBy(now, kLatency, "le")) {
    double bound = std::numeric_limits<double>::infinity();
    if (le != "+Inf" && !absl::SimpleAtod(le, &bound)) continue;
    const auto old = old_buckets.find(le);
    calls[bound] = count - (old == old_buckets.end() ? 0 : old->second);
  }
  if (calls.empty() || calls.rbegin()->second <= 0) return std::nullopt;
  const double wanted = quantile * calls.rbegin()->second;
  for (const auto& [bound, count] : calls) {
    if (count >= wanted) return bound * 1e6;
  }
  return std::nullopt;
}

// The nearest whole number, as far as int64_t reaches.
int64_t Rounded(double value) {
  constexpr double kMost = 9e18;
  return std::isnan(value) ? 0 : std::llround(std::clamp(value, -kMost, kMost));
}

int64_t CountOf(const MetricsPage& page, std::string_view series) { return Rounded(SumOf(page, series)); }

// A bound of latency: null where there were no calls, "inf" beyond the last bucket.
ordered_json LatencyJson(std::optional<double> bound_us) {
  if (!bound_us.has_value()) return nullptr;
  return std::isfinite(*bound_us) ? ordered_json(*bound_us) : ordered_json("inf");
}

std::string LatencyText(std::optional<double> bound_us) {
  if (!bound_us.has_value()) return "-";
  return std::isfinite(*bound_us) ? fmt::format("≤ {:.0f} µs", *bound_us) : "over 100 ms";
}

std::string RateText(double rate) { return rate < 10 ? fmt::format("{:.1f}", rate) : WithCommas(Rounded(rate)); }

// Cut to so many columns; nothing that it cuts matters, for tables that are too wide are stacked.
std::string Cut(const std::string& text, size_t width) {
  if (width == 0 || DisplayWidth(text) <= width) return text;
  std::string cut;
  size_t columns = 0;
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) & 0xC0) != 0x80 && ++columns > width) break;
    cut += c;
  }
  return cut;
}

std::string FirstLine(const absl::Status& status) {
  const std::string message(status.message());
  return message.substr(0, message.find('\n'));
}

void AddLines(const std::string& text, std::vector<std::string>* lines) {
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines->push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
}

ordered_json ToJson(const TopFigures& figures) {
  ordered_json document = {
      {"calls_per_s", figures.calls_per_s},     {"calls_per_s_by_reason", figures.calls_per_s_by_reason},
      {"updates_per_s", figures.updates_per_s}, {"evictions_per_s", figures.evictions_per_s},
      {"prefixes", figures.prefixes},           {"entries", figures.entries},
      {"index_bytes", figures.index_bytes},     {"resident_bytes", figures.resident_bytes}};
  document["p50_us"] = LatencyJson(figures.p50_us);
  document["p99_us"] = LatencyJson(figures.p99_us);
  document["replicas"] = icache::ToJson(figures.state)["replicas"];
  document["replicas_problem"] = figures.state_problem;
  return document;
}

// The terminal while top draws: keys come unbuffered and unechoed, the alternate screen is shown, the cursor is hidden.
class Screen {
 public:
  Screen() {
    keys_ = tcgetattr(STDIN_FILENO, &old_) == 0;
    if (keys_) {
      termios raw = old_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // who is stopped cannot put the screen back
      tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    (void)WriteOut("\033[?1049h\033[?25l");
  }
  ~Screen() {
    (void)WriteOut("\033[?25h\033[?1049l");
    if (keys_) tcsetattr(STDIN_FILENO, TCSANOW, &old_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  absl::Status Draw(const std::vector<std::string>& lines) {
    std::string text = "\033[H";
    for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i] + "\033[K";
    return WriteOut(text + "\033[J");
  }

 private:
  bool keys_ = false;
  termios old_ = {};
};

winsize TerminalSize() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row == 0 || size.ws_col == 0) {
    size.ws_row = 24;
    size.ws_col = 80;
  }
  return size;
}

enum class Pause { kOver, kResized, kQuit };

// Waits until `end`, a key, a signal, or a terminal of another size.
Pause WaitUntil(absl::Time end, const Interrupt& interrupt, bool keys, const winsize& drawn) {
  constexpr absl::Duration kLook = absl::Milliseconds(100);
  while (true) {
    if (interrupt.seen()) return Pause::kQuit;
    const absl::Duration left = end - absl::Now();
    if (left <= absl::ZeroDuration()) return Pause::kOver;
    pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    const int timeout_ms = static_cast<int>(absl::ToInt64Milliseconds(std::min(left, kLook))) + 1;
    if (poll(&input, keys ? 1 : 0, timeout_ms) > 0) {
      char key = 0;
      if (read(STDIN_FILENO, &key, 1) != 1) {
        keys = false;  // closed: only signals end it
      } else if (key == 'q' || key == 'Q') {
        return Pause::kQuit;
      }
    }
    const winsize size = TerminalSize();
    if (keys && (size.ws_row != drawn.ws_row || size.ws_col != drawn.ws_col)) return Pause::kResized;
  }
}

// Takes samples and shows them.
class Top {
 public:
  Top(const Settings& settings, const Client& client, absl::Duration interval)
      : settings_(settings), client_(client), interval_(interval) {}

  absl::StatusOr<bool> Run(int count) {
    RETURN_IF_ERROR(Take([] { return false; }));
    const Interrupt interrupt;  // not before: until there is a screen, a signal ends all of it at once
    const bool terminal = settings_.Output() == OutputFormat::kTable && isatty(STDOUT_FILENO) == 1;
    std::unique_ptr<Screen> screen;
    if (terminal) screen = std::make_unique<Screen>();
    absl::Time next = absl::Now() + interval_;
    for (int drawn = 0; count == 0 || drawn < count;) {
      const winsize size = TerminalSize();
      if (terminal) RETURN_IF_ERROR(screen->Draw(Lines(size)));
      const Pause pause = WaitUntil(next, interrupt, terminal, size);
      if (pause == Pause::kQuit) break;
      if (pause == Pause::kResized) continue;
      next = absl::Now() + interval_;
      problem_ = Take([&interrupt] { return interrupt.seen(); });
      if (interrupt.seen()) break;
      ++drawn;
      if (!terminal) RETURN_IF_ERROR(Follow(drawn));
    }
    return true;
  }

 private:
  absl::Status Take(const std::function<bool()>& stopping) {
    TopSample sample;
    ASSIGN_OR_RETURN(sample.metrics, FetchMetrics(settings_, stopping));
    if (!settings_.tenant.empty() && !settings_.model.empty() && !stopping()) {
      absl::StatusOr<wire::GetCacheStateResponse> state = client_.CacheState(settings_.tenant, settings_.model);
      if (!state.ok()) {
        sample.state_problem = FirstLine(state.status());
      } else {
        sample.state = *std::move(state);
      }
    }
    sample.time = absl::Now();
    before_ = std::exchange(now_, std::move(sample));
    if (before_.metrics.empty()) before_ = now_;
    return absl::OkStatus();
  }

  std::vector<std::string> Lines(const winsize& size) const {
    Style style = DetectStyle();
    style.width = size.ws_col;
    std::vector<std::string> lines = TopScreen(settings_, Compare(before_, now_), now_.time, size.ws_row, style);
    if (!problem_.ok() && !lines.empty()) {
      lines[0] = Painted(Cut(FirstLine(problem_), style.width), Tone::kBad, style);
    }
    return lines;
  }

  // What follows the last refresh where nothing can be drawn in place.
  absl::Status Follow(int drawn) const {
    RETURN_IF_ERROR(problem_);
    const TopFigures figures = Compare(before_, now_);
    switch (settings_.Output()) {
      case OutputFormat::kJson:
        return WriteOut(ToJsonText(ToJson(figures)) + "\n");
      case OutputFormat::kYaml:
        return WriteOut("---\n" + ToYaml(ToJson(figures)));
      case OutputFormat::kTable:
        break;
    }
    std::string text = drawn > 1 ? "\n" : "";
    for (const std::string& line : TopScreen(settings_, figures, now_.time, 0, DetectStyle())) text += line + "\n";
    return WriteOut(text);
  }

  const Settings& settings_;
  const Client& client_;
  const absl::Duration interval_;
  TopSample before_;
  TopSample now_;
  absl::Status problem_;  // of the last sample
};

}  // namespace

TopFigures Compare(const TopSample& before, const TopSample& now) {
  const double seconds = absl::ToDoubleSeconds(now.time - before.time);
  const auto rate = [seconds](double old_value, double value) {
    // A daemon that was restarted begins to count anew.
    return seconds > 0 ? std::max(value < old_value ? value : value - old_value, 0.0) / seconds : 0;
  };
  const auto rate_of = [&](std::string_view series) {
    return rate(SumOf(before.metrics, series), SumOf(now.metrics, series));
  };
  TopFigures figures;
  figures.calls_per_s = rate_of(kCalls);
  std::map<std::string, double> old_calls = SumsBy(before.metrics, kCalls, "reason_code");
  for (const auto& [reason, calls] : SumsBy(now.metrics, kCalls, "reason_code")) {
    figures.calls_per_s_by_reason[reason] = rate(old_calls[reason], calls);
  }
  figures.p50_us = LatencyBound(before.metrics, now.metrics, 0.5);
  figures.p99_us = LatencyBound(before.metrics, now.metrics, 0.99);
  figures.updates_per_s = rate_of("inferencecache_ingest_updates_total");
  figures.evictions_per_s = rate_of("inferencecache_index_evictions_total");
  figures.prefixes = CountOf(now.metrics, "inferencecache_index_entries");
  figures.entries = CountOf(now.metrics, "inferencecache_index_holdings");
  figures.index_bytes = CountOf(now.metrics, "inferencecache_index_memory_bytes");
  figures.resident_bytes = CountOf(now.metrics, "process_resident_memory_bytes");
  figures.state = now.state;
  figures.state_problem = now.state_problem;
  return figures;
}

std::vector<std::string> TopScreen(const Settings& settings, const TopFigures& figures, absl::Time now, size_t height,
                                   const Style& style) {
  const std::string title =
      fmt::format("icached {}   {}", settings.address, absl::FormatTime("%H:%M:%S", now, absl::LocalTimeZone()));
  std::vector<std::string> lines = {
      Bold(Cut(title, style.width), style),
      Cut(fmt::format("lookups {}/s   p50 {}   p99 {}", RateText(figures.calls_per_s), LatencyText(figures.p50_us),
                      LatencyText(figures.p99_us)),
          style.width),
      Cut(fmt::format("updates {}/s   evictions {}/s", RateText(figures.updates_per_s),
                      RateText(figures.evictions_per_s)),
          style.width),
      Cut(fmt::format("prefixes {}   entries {}   index {}   resident {}", WithCommas(figures.prefixes),
                      WithCommas(figures.entries), BytesText(static_cast<double>(figures.index_bytes)),
                      BytesText(static_cast<double>(figures.resident_bytes))),
          style.width),
      ""};
  Table reasons({{"REASON"}, {"LOOKUPS/S", Table::Align::kRight}});
  for (const auto& [reason, calls] : figures.calls_per_s_by_reason) reasons.AddRow({Visible(reason), RateText(calls)});
  AddLines(reasons.Render(style), &lines);
  if (!figures.state_problem.empty()) {
    lines.emplace_back();
    lines.push_back(Painted(Cut(figures.state_problem, style.width), Tone::kWarning, style));
  }
  if (!figures.state.replicas().empty()) {
    lines.emplace_back();
    Table replicas({{"REPLICA"}, {"HIT RATE", Table::Align::kRight}, {"PRESSURE", Table::Align::kRight}});
    for (const auto& replica : figures.state.replicas()) {
      replicas.AddRow({Visible(replica.replica_id()), fmt::format("{:.3f}", replica.hit_rate()),
                       fmt::format("{:.3f}", replica.pressure())});
    }
    AddLines(replicas.Render(style), &lines);
  }
  if (height > 0 && lines.size() > height) {
    const size_t hidden = lines.size() - height + 1;
    lines.resize(height - 1);
    lines.push_back(Cut(fmt::format("{} more lines; q quits", hidden), style.width));
  }
  return lines;
}

absl::StatusOr<bool> RunTop(const Settings& settings, absl::Duration interval, int count) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  return Top(settings, *client, interval).Run(count);
}

}  // namespace icache
