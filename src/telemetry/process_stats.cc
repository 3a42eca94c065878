#include "telemetry/process_stats.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <system_error>

namespace icache {
namespace {

std::optional<int64_t> CountOpenFds() {
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc/self/fd", error);
  int64_t count = -1;  // the iterator's own descriptor is listed too
  while (!error && entry != std::filesystem::directory_iterator()) {
    ++count;
    entry.increment(error);
  }
  if (error) return std::nullopt;
  return count;
}

}  // namespace

ProcessStats ReadProcessStats() {
  ProcessStats stats;
  rusage usage = {};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    stats.cpu_time = absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
  }
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    // Unlimited is the largest number.
    stats.max_fds = static_cast<int64_t>(std::min<rlim_t>(limit.rlim_cur, std::numeric_limits<int64_t>::max()));
  }

  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  std::ifstream statm("/proc/self/statm");
  int64_t virtual_pages = 0;
  int64_t resident_pages = 0;
  if (statm >> virtual_pages >> resident_pages) {
    stats.virtual_bytes = virtual_pages * page_bytes;
    stats.resident_bytes = resident_pages * page_bytes;
  }
  stats.open_fds = CountOpenFds();
  return stats;
}

std::optional<absl::Time> ReadProcessStartTime() {
  std::ifstream stat_file("/proc/self/stat");
  std::string stat((std::istreambuf_iterator<char>(stat_file)), std::istreambuf_iterator<char>());
  // The program's name is in parentheses and may hold anything; field 3 follows. The start is field 22, in ticks since
  // the boot.
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  int64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;

  std::ifstream system_stat("/proc/stat");
  std::string key;
  while (system_stat >> key) {
    int64_t boot_seconds = 0;
    if (key == "btime" && system_stat >> boot_seconds) {
      return absl::FromUnixSeconds(boot_seconds) + absl::Seconds(1) * ticks / sysconf(_SC_CLK_TCK);
    }
    std::getline(system_stat, key);
  }
  return std::nullopt;
}

}  // namespace icache
