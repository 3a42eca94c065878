#include "icache/daemon/signals.h"

#include <signal.h>

#include <algorithm>

#include "icache/base/moment.h"

namespace icache {
namespace {

sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
  return signals;
}

}  // namespace

void BlockSignals() {
  signal(SIGPIPE, SIG_IGN);
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalKind WaitForSignal(absl::Duration timeout) {
  const sigset_t signals = HandledSignals();
  const absl::Time give_up_at = SteadyNow() + timeout;
  while (true) {
    const absl::Duration left = give_up_at - SteadyNow();
    if (left <= absl::ZeroDuration()) return SignalKind::kNone;
    const timespec wait = absl::ToTimespec(std::min(left, absl::Hours(1)));
    const int number = sigtimedwait(&signals, nullptr, &wait);
    if (number > 0) return number == SIGHUP ? SignalKind::kReload : SignalKind::kTerminate;
  }
}

}  // namespace icache
