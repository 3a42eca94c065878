#include "load/load_window.h"

#include <algorithm>
#include <cassert>

namespace icache {

LoadWindow::LoadWindow(size_t engines, int64_t window_ms) : window_ms_(window_ms), loads_(engines) {
  assert(engines >= 1 && window_ms >= 1);
}

void LoadWindow::AdvanceTo(int64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  for (; !work_.empty() && work_.front().time_ms <= now_ms_ - window_ms_; work_.pop_front()) {
    loads_[work_.front().engine] -= work_.front().tokens;
    total_ -= work_.front().tokens;
  }
}

void LoadWindow::Add(size_t engine, int64_t tokens) {
  work_.push_back({.time_ms = now_ms_, .engine = engine, .tokens = tokens});
  loads_[engine] += tokens;
  total_ += tokens;
}

bool LoadWindow::IsOverCap(size_t engine, double cap) const {
  const double mean = static_cast<double>(total_) / static_cast<double>(loads_.size());
  return static_cast<double>(loads_[engine]) > cap * mean;
}

}  // namespace icache
