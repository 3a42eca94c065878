#include "load/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "load/steady_time.h"

namespace icache {

absl::Status WriteText(const std::string& path, const std::string& text) {
  if (path == "-") {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    return written ? absl::OkStatus() : absl::DataLossError("standard output: cannot be written");
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (file) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

ProgressBar::ProgressBar(size_t total) : total_(total), shown_(total > 0 && isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (shown_) fmt::print(stderr, "\r\033[K");
}

void ProgressBar::Step() {
  ++done_;
  if (!shown_) return;
  const int64_t now = SteadyNanos();
  if (now < next_draw_ns_) return;
  next_draw_ns_ = now + 100'000'000;
  constexpr size_t kWidth = 40;
  const size_t filled = kWidth * done_ / total_;
  fmt::print(stderr, "\r[{:=<{}}{: <{}}] {}/{}", "", filled, "", kWidth - filled, done_, total_);
}

}  // namespace icache
