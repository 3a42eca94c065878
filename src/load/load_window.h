// LoadWindow: how much prompt work each engine was given lately, in trace time.
//
// The load of an engine is the number of prompt tokens it had to compute for the requests it was given in the last
// window: those with now - window < time <= now. Tokens found in its cache cost it nothing and do not count.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace icache {

class LoadWindow {
 public:
  // Requires: engines >= 1, window_ms >= 1.
  LoadWindow(size_t engines, int64_t window_ms);

  // Moves now forward and forgets what the window has left behind.
  void AdvanceTo(int64_t now_ms);
  // Adds to the load of `engine` at now.
  void Add(size_t engine, int64_t tokens);

  size_t engines() const { return loads_.size(); }
  int64_t window_ms() const { return window_ms_; }
  int64_t load(size_t engine) const { return loads_[engine]; }
  // Whether the engine's load is above `cap` times the mean over all engines. For cap >= 1 never true of all of them.
  bool IsOverCap(size_t engine, double cap) const;

 private:
  struct Work {
    int64_t time_ms;
    size_t engine;
    int64_t tokens;
  };

  const int64_t window_ms_;
  int64_t now_ms_ = 0;
  int64_t total_ = 0;  // the sum of loads_
  std::vector<int64_t> loads_;
  std::deque<Work> work_;  // oldest first
};

}  // namespace icache
