// Logger: the daemon's log, one line per event with named fields, as text or as JSON.
//
//   logger->Info("policies_reloaded", {{"policies", count}, {"path", path}});
//
//   2026-01-02T03:04:05.678Z info policies_reloaded policies=3 path=/etc/icached/policies
//   {"time":"2026-01-02T03:04:05.678Z","level":"info","event":"policies_reloaded","policies":3,"path":"/etc/…"}
//
// For state changes and, at level debug, for single requests; never with prompt text. A line is at most
// kMaxLogLineBytes long and is written whole or not at all.
//
// Of one kind of event only so many lines are written (LogRate); the next one that is tells how many were not, in its
// first field, `suppressed=N`.
//
// A log that cannot be written (a full disk, a pipe that nobody reads or whose reader is gone) costs lines, not the
// daemon: a line that would have to wait is dropped, and the next one that can be written is preceded by a line
// `log_lines_dropped count=N`. SIGPIPE must be ignored by the process.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "absl/types/span.h"
#include "icache/base/clock.h"

namespace icache {

// What a pipe takes in one piece (PIPE_BUF), newline included.
inline constexpr size_t kMaxLogLineBytes = 4096;

enum class LogSeverity { kDebug, kInfo, kWarn, kError };

// One `key=value`. Keys are lower_snake_case literals. The value is a view: it must live for the call.
struct LogField {
  using Value = std::variant<std::string_view, int64_t, double, bool>;

  LogField(std::string_view field_key, std::string_view text) : key(field_key), value(text) {}
  LogField(std::string_view field_key, const std::string& text) : key(field_key), value(std::string_view(text)) {}
  LogField(std::string_view field_key, const char* text) : key(field_key), value(std::string_view(text)) {}
  LogField(std::string_view field_key, bool flag) : key(field_key), value(flag) {}
  LogField(std::string_view field_key, std::floating_point auto number)
      : key(field_key), value(static_cast<double>(number)) {}
  LogField(std::string_view field_key, std::integral auto number)
      : key(field_key), value(static_cast<int64_t>(number)) {}

  std::string_view key;
  Value value;
};

// Counts of lines.
struct LogLosses {
  int64_t suppressed = 0;  // over their kind's rate
  int64_t unwritable = 0;  // the descriptor did not take them
};

// Thread-safe.
class Logger {
 public:
  virtual ~Logger() = default;

  void Debug(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogSeverity::kDebug, event, fields);
  }
  void Info(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogSeverity::kInfo, event, fields);
  }
  void Warn(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogSeverity::kWarn, event, fields);
  }
  void Error(std::string_view event, std::initializer_list<LogField> fields = {}) {
    Log(LogSeverity::kError, event, fields);
  }

  // `event` names what happened, in lower_snake_case. Builds nothing when `severity` is off.
  virtual void Log(LogSeverity severity, std::string_view event, absl::Span<const LogField> fields) = 0;

  // Lines that were to be written and are lost, since the start.
  virtual LogLosses Losses() const { return {}; }
};

// Says nothing.
class NullLogger final : public Logger {
 public:
  void Log(LogSeverity, std::string_view, absl::Span<const LogField>) override {}
};

// How many lines of one kind (events of one name) may be written: `burst` at once, then `per_second`. Both > 0.
struct LogRate {
  double burst;
  double per_second;
};

struct LoggerOptions {
  LogSeverity min_severity = LogSeverity::kInfo;
  bool json = false;
  LogRate rate = {.burst = 100, .per_second = 1};
  LogRate debug_rate = {.burst = 1000, .per_second = 1000};  // of lines of kDebug
  int fd = 2;                                                // where lines go; not owned
};

// `clock` is not owned and must outlive the logger.
std::unique_ptr<Logger> CreateLogger(const LoggerOptions& options, const Clock* clock);

}  // namespace icache
