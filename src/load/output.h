// Where reports go: standard output or a file, and a progress bar for whoever is watching.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace icache {

// Writes `text` to the file, or to standard output when `path` is "-". Errors: those of the file, naming it.
absl::Status WriteText(const std::string& path, const std::string& text);

// A bar on standard error, drawn at most ten times a second, and only when that is a terminal.
class ProgressBar {
 public:
  explicit ProgressBar(size_t total);
  ~ProgressBar();  // wipes the bar
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void Step();

 private:
  const size_t total_;
  const bool shown_;
  size_t done_ = 0;
  int64_t next_draw_ns_ = 0;
};

}  // namespace icache
