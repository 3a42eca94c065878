// Signals of the daemon: SIGTERM and SIGINT end it, SIGHUP reloads the policies, SIGPIPE means nothing.
#pragma once

#include "absl/time/time.h"

namespace icache {

// Blocks the three and ignores SIGPIPE. To be called before any thread starts, so that only WaitForSignal() sees them.
void BlockSignals();

enum class SignalKind { kReload, kTerminate, kNone };

// The next of the blocked signals; kNone when none comes within `timeout`.
SignalKind WaitForSignal(absl::Duration timeout = absl::InfiniteDuration());

}  // namespace icache
