#include "load/trace_line.h"

#include <fmt/format.h>

#include <limits>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

// A position in the line, and the few pieces of JSON that a trace consists of.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : line_(line) {}

  // Skips white space, then takes `wanted` if it comes next.
  bool Take(char wanted) {
    SkipSpace();
    if (at_ == line_.size() || line_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  bool AtEnd() {
    SkipSpace();
    return at_ == line_.size();
  }

  absl::Status Expect(char wanted) {
    return Take(wanted) ? absl::OkStatus() : Error(fmt::format("expected '{}'", wanted));
  }

  // A string without escapes, as every key of the format is.
  absl::StatusOr<std::string_view> Key() {
    RETURN_IF_ERROR(Expect('"'));
    const size_t begin = at_;
    while (at_ < line_.size() && line_[at_] != '"') {
      if (line_[at_] == '\\') return Error("no key of the format has an escape in it");
      ++at_;
    }
    if (at_ == line_.size()) return Error("expected '\"' to end the key");
    return line_.substr(begin, at_++ - begin);
  }

  // A whole number in [0, max].
  absl::StatusOr<int64_t> Number(int64_t max) {
    SkipSpace();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < line_.size() && line_[at_] >= '0' && line_[at_] <= '9'; ++at_) {
      const int digit = line_[at_] - '0';
      if (value > (max - digit) / 10) return Error(fmt::format("a number above {}", max));
      value = value * 10 + digit;
    }
    if (at_ == begin) return Error("expected a whole number, 0 or more");
    if (line_[begin] == '0' && at_ - begin > 1) return Error("a number with a leading zero");
    if (at_ < line_.size() && (line_[at_] == '.' || line_[at_] == 'e' || line_[at_] == 'E')) {
      return Error("expected a whole number");
    }
    return value;
  }

  absl::Status Error(std::string_view what) const {
    return absl::InvalidArgumentError(fmt::format("{}: {}", at_ + 1, what));
  }

 private:
  void SkipSpace() {
    while (at_ < line_.size() && (line_[at_] == ' ' || line_[at_] == '\t' || line_[at_] == '\r')) ++at_;
  }

  const std::string_view line_;
  size_t at_ = 0;
};

absl::StatusOr<std::vector<int64_t>> ReadIds(LineReader* reader) {
  std::vector<int64_t> ids;
  RETURN_IF_ERROR(reader->Expect('['));
  do {
    if (ids.size() == kMaxTraceHashIds) return reader->Error(fmt::format("more than {} hash_ids", kMaxTraceHashIds));
    ASSIGN_OR_RETURN(ids.emplace_back(), reader->Number(kMaxTraceNumber));
  } while (reader->Take(','));
  RETURN_IF_ERROR(reader->Expect(']'));
  return ids;
}

}  // namespace

absl::StatusOr<TraceRequest> ParseTraceLine(std::string_view line) {
  if (line.size() > kMaxTraceLineBytes) {
    return absl::InvalidArgumentError(fmt::format("{}: a line above {} bytes", kMaxTraceLineBytes, kMaxTraceLineBytes));
  }
  LineReader reader(line);
  std::optional<int64_t> timestamp, input, output;
  std::vector<int64_t> ids;

  const auto read_number = [&reader](std::optional<int64_t>* field, int64_t max) -> absl::Status {
    if (field->has_value()) return reader.Error("a key that was there before");
    ASSIGN_OR_RETURN(*field, reader.Number(max));
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(reader.Expect('{'));
  do {
    ASSIGN_OR_RETURN(const std::string_view key, reader.Key());
    RETURN_IF_ERROR(reader.Expect(':'));
    if (key == "timestamp") {
      RETURN_IF_ERROR(read_number(&timestamp, kMaxTraceNumber));
    } else if (key == "input_length") {
      RETURN_IF_ERROR(read_number(&input, std::numeric_limits<int32_t>::max()));
    } else if (key == "output_length") {
      RETURN_IF_ERROR(read_number(&output, std::numeric_limits<int32_t>::max()));
    } else if (key == "hash_ids") {
      if (!ids.empty()) return reader.Error("a key that was there before");
      ASSIGN_OR_RETURN(ids, ReadIds(&reader));
    } else {
      return reader.Error("a key other than timestamp, input_length, output_length and hash_ids");
    }
  } while (reader.Take(','));
  RETURN_IF_ERROR(reader.Expect('}'));
  if (!reader.AtEnd()) return reader.Error("something after the object");

  if (!timestamp || !input || !output || ids.empty()) {
    return reader.Error("one of timestamp, input_length, output_length and hash_ids is missing");
  }
  const auto pieces = static_cast<size_t>((*input + kTraceIdTokens - 1) / kTraceIdTokens);
  if (pieces != ids.size()) {
    return reader.Error(fmt::format("input_length {} needs {} hash_ids of {} tokens, got {}", *input, pieces,
                                    kTraceIdTokens, ids.size()));
  }
  return TraceRequest{.timestamp_ms = *timestamp,
                      .input_tokens = static_cast<int32_t>(*input),
                      .output_tokens = static_cast<int32_t>(*output),
                      .hash_ids = std::move(ids)};
}

}  // namespace icache
