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
  sigaction(SIGINT, &action, &old_int_);
  sigaction(SIGTERM, &action, &old_term_);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &old_int_, nullptr);
  sigaction(SIGTERM, &old_term_, nullptr);
}

bool Interrupt::seen() const { return interrupted != 0; }

}  // namespace icache
