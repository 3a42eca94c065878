#include "ctl/interrupt.h"

namespace icache {
namespace {

volatile sig_atomic_t interrupted = 0;

void Note(int) { interrupted = 1; }

}  // namespace

Interrupt::Interrupt() {
  interrupted = 0;
  struct sigaction action = {};
  action.sa_handler = &Note;  // without SA_RESTART: what waits is to look
  for (size_t i = 0; i < kSignals.size(); ++i) {
    sigaction(kSignals[i], nullptr, &old_[i]);
    if (old_[i].sa_handler != SIG_IGN) sigaction(kSignals[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &old_[i], nullptr);
}

bool Interrupt::seen() const { return interrupted != 0; }

}  // namespace icache
