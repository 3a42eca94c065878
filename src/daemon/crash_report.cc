#include "icache/daemon/crash_report.h"

#include <execinfo.h>

#include <algorithm>

#include "absl/debugging/failure_signal_handler.h"
#include "absl/debugging/stacktrace.h"
#include "absl/debugging/symbolize.h"

namespace icache {
namespace {

constexpr int kMaxFrames = 64;

// Abseil follows frame pointers, which optimised code does not keep; the C library reads unwind tables. Safe in a
// signal handler once it has been called before.
int Unwind(void** frames, int* sizes, int max_depth, int skip_count, const void* /*context*/, int* dropped) {
  void* found[kMaxFrames];
  const int first = skip_count + 1;  // this function as well
  const int depth = std::max(backtrace(found, kMaxFrames) - first, 0);
  const int kept = std::min(depth, max_depth);
  std::copy_n(found + first, kept, frames);
  if (sizes != nullptr) std::fill_n(sizes, kept, 0);
  if (dropped != nullptr) *dropped = depth - kept;
  return kept;
}

}  // namespace

void ReportCrashes(const char* program) {
  void* frame = nullptr;
  backtrace(&frame, 1);  // the first call loads what it needs
  absl::SetStackUnwinder(&Unwind);
  absl::InitializeSymbolizer(program);
  absl::InstallFailureSignalHandler({});
}

}  // namespace icache
