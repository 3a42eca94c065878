// What the operating system says about this process, for the process_* series.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/time/time.h"

namespace icache {

struct ProcessStats {
  absl::Duration cpu_time;  // user and system
  int64_t max_fds = 0;
  // Not there when /proc cannot be read, for instance because the process has run out of descriptors.
  std::optional<int64_t> resident_bytes;
  std::optional<int64_t> virtual_bytes;
  std::optional<int64_t> open_fds;
};

ProcessStats ReadProcessStats();

// When the process started, to the clock tick; nullopt when /proc cannot be read.
std::optional<absl::Time> ReadProcessStartTime();

}  // namespace icache
