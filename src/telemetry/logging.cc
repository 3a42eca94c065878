#include "icache/telemetry/logging.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <mutex>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "icache/base/mutex.h"
#include "icache/base/string_map.h"
#include "icache/base/utf8.h"
#include "spdlog/fmt/fmt.h"
#include "spdlog/logger.h"
#include "spdlog/sinks/base_sink.h"

namespace icache {
namespace {

// Leaves room for the time, the brackets and a line break on either side.
constexpr size_t kMaxPayloadBytes = kMaxLogLineBytes - 64;

constexpr char kTextPattern[] = "%Y-%m-%dT%H:%M:%S.%eZ %v";
constexpr char kJsonPattern[] = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ",%v})";

std::string_view SeverityName(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kDebug:
      return "debug";
    case LogSeverity::kInfo:
      return "info";
    case LogSeverity::kWarn:
      return "warn";
    case LogSeverity::kError:
      return "error";
  }
  return "error";
}

spdlog::level::level_enum SpdlogLevel(LogSeverity severity) {
  switch (severity) {
    case LogSeverity::kDebug:
      return spdlog::level::debug;
    case LogSeverity::kInfo:
      return spdlog::level::info;
    case LogSeverity::kWarn:
      return spdlog::level::warn;
    case LogSeverity::kError:
      return spdlog::level::err;
  }
  return spdlog::level::err;
}

// What one character is inside quotes, in both formats: JSON's escapes, and U+FFFD for a byte that is no character.
// Control characters are escaped, so that no value can break a line or steer a terminal.
std::string Escaped(std::string_view character) {
  if (character.size() > 1) {
    // C1 controls are two bytes in UTF-8: 0xC2, then the code point.
    const bool control = character[0] == '\xC2' && static_cast<unsigned char>(character[1]) < 0xA0;
    return control ? fmt::format("\\u{:04x}", static_cast<unsigned char>(character[1])) : std::string(character);
  }
  const auto byte = static_cast<unsigned char>(character[0]);
  switch (byte) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      if (byte >= 0x80) return "\xEF\xBF\xBD";
      return byte < 0x20 || byte == 0x7F ? fmt::format("\\u{:04x}", byte) : std::string(character);
  }
}

// Whether `text` can stand after a `key=` without quotes.
bool IsPlainWord(std::string_view text) {
  for (const char c : text) {
    if (c <= ' ' || c > '~' || c == '"' || c == '\\' || c == '=') return false;
  }
  return !text.empty();
}

// `text` in quotes, of which the last characters are left out when they would make it longer than `max_bytes`.
std::string Quoted(std::string_view text, size_t max_bytes) {
  std::string result = "\"";
  while (!text.empty()) {
    const size_t length = std::max<size_t>(Utf8SequenceLength(text), 1);
    const std::string character = Escaped(text.substr(0, length));
    if (result.size() + character.size() + 1 > max_bytes) break;
    result += character;
    text.remove_prefix(length);
  }
  return result + '"';
}

// The part of a line behind the time. Cuts what would make it too long: a text at its end, and all fields behind it.
class Payload {
 public:
  Payload(bool json, LogSeverity severity, std::string_view event) : json_(json) {
    if (json_) {
      text_ = fmt::format("\"level\":\"{}\",\"event\":{}", SeverityName(severity), Quoted(event, kMaxPayloadBytes / 2));
    } else {
      text_ = fmt::format("{} {}", SeverityName(severity), Word(event, kMaxPayloadBytes / 2));
    }
  }

  void Add(const LogField& field) {
    const std::string key = json_ ? fmt::format(",\"{}\":", field.key) : fmt::format(" {}=", field.key);
    constexpr size_t kQuotes = 2;
    if (full_ || text_.size() + key.size() + kQuotes > kMaxPayloadBytes) {
      full_ = true;
      return;
    }
    const size_t room = kMaxPayloadBytes - text_.size() - key.size();
    const std::string value = std::visit([&](auto typed) { return Value(typed, room); }, field.value);
    if (value.size() > room) {
      full_ = true;
      return;
    }
    text_ += key + value;
  }

  const std::string& text() const { return text_; }

 private:
  std::string Value(std::string_view text, size_t room) const { return json_ ? Quoted(text, room) : Word(text, room); }
  std::string Value(bool value, size_t) const { return value ? "true" : "false"; }
  std::string Value(int64_t value, size_t) const { return fmt::to_string(value); }
  std::string Value(double value, size_t room) const {
    // JSON has no number for these.
    return std::isfinite(value) ? fmt::to_string(value) : Value(std::string_view(fmt::to_string(value)), room);
  }
  static std::string Word(std::string_view text, size_t room) {
    return text.size() <= room && IsPlainWord(text) ? std::string(text) : Quoted(text, room);
  }

  const bool json_;
  std::string text_;
  bool full_ = false;
};

// Writes lines to a descriptor without ever waiting for its reader. spdlog calls it under the mutex of base_sink.
class DescriptorSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  DescriptorSink(int fd, bool json) : fd_(fd), json_(json) {}

  // Lines not written so far.
  int64_t dropped() const { return dropped_ever_.load(std::memory_order_relaxed); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (dropped_ > 0) {
      Payload payload(json_, LogSeverity::kWarn, "log_lines_dropped");
      payload.Add({"count", dropped_});
      if (Write({message.time, {}, message.logger_name, spdlog::level::warn, payload.text()})) dropped_ = 0;
    }
    if (Write(message)) return;
    ++dropped_;
    dropped_ever_.fetch_add(1, std::memory_order_relaxed);
  }
  void flush_() override {}

 private:
  // Whether the whole line was written.
  bool Write(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    if (torn_) line.push_back('\n');
    formatter_->format(message, line);
    const ssize_t written = WriteNow(line.data(), line.size());
    if (written > 0) torn_ = written < static_cast<ssize_t>(line.size());
    return written > 0 && !torn_;
  }

  // Like write(), but fails where that would wait. (O_NONBLOCK would do it too, but for everybody who shares the
  // descriptor.)
  ssize_t WriteNow(const char* data, size_t size) const {
    const ssize_t sent = send(fd_, data, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0 || errno != ENOTSOCK) return sent;
    // A pipe that is ready takes kMaxLogLineBytes at once; a file is always ready.
    pollfd ready = {fd_, POLLOUT, 0};
    if (poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return -1;
    return write(fd_, data, size);
  }

  const int fd_;
  const bool json_;
  int64_t dropped_ = 0;  // lines not written since the last one that was
  std::atomic<int64_t> dropped_ever_ = 0;
  bool torn_ = false;  // the last line was cut by a fault; the next begins with a line break
};

// Decides which lines of each kind are written. Names of events are literals of the program, so kinds are few.
// Thread-safe.
class LineBudget {
 public:
  // Whether a line may be written now; then `suppressed` is how many of its kind were not since the last one.
  bool Take(std::string_view event, const LogRate& rate, absl::Time now, int64_t* suppressed) {
    MutexLock lock(&mutex_);
    const auto [found, added] = kinds_.try_emplace(event, Kind{.lines = rate.burst, .filled_at = now, .suppressed = 0});
    Kind& kind = found->second;
    const double seconds = std::max(0.0, absl::ToDoubleSeconds(now - kind.filled_at));
    kind.lines = std::min(rate.burst, kind.lines + seconds * rate.per_second);
    kind.filled_at = now;
    if (kind.lines < 1) {
      ++kind.suppressed;
      ++suppressed_ever_;
      return false;
    }
    --kind.lines;
    *suppressed = std::exchange(kind.suppressed, 0);
    return true;
  }

  // Lines not written so far.
  int64_t suppressed() const {
    MutexLock lock(&mutex_);
    return suppressed_ever_;
  }

 private:
  struct Kind {
    double lines;  // that may be written
    absl::Time filled_at;
    int64_t suppressed;  // since the last line
  };

  mutable Mutex mutex_;
  StringMap<Kind> kinds_ ABSL_GUARDED_BY(mutex_);
  int64_t suppressed_ever_ ABSL_GUARDED_BY(mutex_) = 0;
};

class SpdlogLogger final : public Logger {
 public:
  SpdlogLogger(const LoggerOptions& options, const Clock* clock)
      : options_(options),
        clock_(clock),
        sink_(std::make_shared<DescriptorSink>(options.fd, options.json)),
        logger_("icached", sink_) {
    logger_.set_level(SpdlogLevel(options.min_severity));
    logger_.set_pattern(options_.json ? kJsonPattern : kTextPattern, spdlog::pattern_time_type::utc);
    // By default spdlog prints its own failures to stderr, which may wait.
    logger_.set_error_handler([](const std::string&) {});
  }

  void Log(LogSeverity severity, std::string_view event, absl::Span<const LogField> fields) override {
    const spdlog::level::level_enum level = SpdlogLevel(severity);
    if (!logger_.should_log(level)) return;
    const absl::Time now = clock_->Now();
    const LogRate& rate = severity == LogSeverity::kDebug ? options_.debug_rate : options_.rate;
    int64_t suppressed = 0;
    if (!budget_.Take(event, rate, now, &suppressed)) return;
    Payload payload(options_.json, severity, event);
    if (suppressed > 0) payload.Add({"suppressed", suppressed});
    for (const LogField& field : fields) payload.Add(field);
    logger_.log(absl::ToChronoTime(now), spdlog::source_loc{}, level, payload.text());
  }

  LogLosses Losses() const override { return {.suppressed = budget_.suppressed(), .unwritable = sink_->dropped()}; }

 private:
  const LoggerOptions options_;
  const Clock* const clock_;
  LineBudget budget_;
  const std::shared_ptr<DescriptorSink> sink_;
  spdlog::logger logger_;  // thread-safe once set up
};

}  // namespace

std::unique_ptr<Logger> CreateLogger(const LoggerOptions& options, const Clock* clock) {
  return std::make_unique<SpdlogLogger>(options, clock);
}

}  // namespace icache
