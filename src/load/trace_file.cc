#include "load/trace_file.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "absl/status/status.h"

namespace icache {

absl::StatusOr<std::vector<TraceRequest>> ReadTrace(const std::string& path, size_t max_requests) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("{}: cannot be opened", path));

  std::vector<TraceRequest> requests;
  std::vector<char> buffer(kMaxTraceLineBytes + 1);  // one more for the terminating zero
  size_t line_number = 0;
  while (max_requests == 0 || requests.size() < max_requests) {
    file.getline(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    auto length = static_cast<size_t>(file.gcount());
    if (length == 0 && file.eof()) break;
    ++line_number;
    if (file.bad()) return absl::DataLossError(fmt::format("{}:{}: cannot be read", path, line_number));
    if (file.fail()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}:{}: a line above {} bytes", path, line_number, length, kMaxTraceLineBytes));
    }
    if (!file.eof()) --length;  // the line feed counts as read
    auto request = ParseTraceLine({buffer.data(), length});
    if (!request.ok()) {
      return absl::InvalidArgumentError(
          fmt::format("{}:{}:{}", path, line_number, std::string(request.status().message())));
    }
    if (!requests.empty() && request->timestamp_ms < requests.back().timestamp_ms) {
      return absl::InvalidArgumentError(fmt::format("{}:{}:1: timestamp {} after {}", path, line_number,
                                                    request->timestamp_ms, requests.back().timestamp_ms));
    }
    requests.push_back(*std::move(request));
  }
  if (requests.empty()) return absl::InvalidArgumentError(fmt::format("{}:1:1: no request", path));
  return requests;
}

}  // namespace icache
