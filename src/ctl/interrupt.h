// Interrupt: turns SIGINT, SIGTERM, SIGHUP and SIGQUIT into something to look at, for as long as it lives. Those that
// are ignored stay so, as nohup and shells want it.
#pragma once

#include <signal.h>

#include <array>

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
  static constexpr std::array<int, 4> kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  std::array<struct sigaction, kSignals.size()> old_;
};

}  // namespace icache
