// Interrupt: turns SIGINT and SIGTERM into something to look at, for as long as it lives.
#pragma once

#include <signal.h>

namespace icache {

// One at a time.
class Interrupt {
 public:
  Interrupt();
  // Puts back what was there before.
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool seen() const;

 private:
  struct sigaction old_int_;
  struct sigaction old_term_;
};

}  // namespace icache
