#include "load/engine_chooser.h"

#include <algorithm>

namespace icache {

bool EngineChooser::MayTake(size_t engine, const LoadWindow& load) const {
  return !load_cap_.has_value() || !load.IsOverCap(engine, *load_cap_);
}

size_t EngineChooser::Choose(absl::Span<const RankedEngine> ranked, const LoadWindow& load) {
  if (load_cap_.has_value() && introduced_ < load.engines()) return introduced_++;

  std::optional<double> best;
  for (const RankedEngine& candidate : ranked) {
    if (MayTake(candidate.engine, load)) best = std::max(best.value_or(0), candidate.worth);
  }
  if (best.has_value()) {
    constexpr double kEqual = 1 - 1e-5;
    const auto load_of = [&](size_t engine) { return load_cap_.has_value() ? load.load(engine) : 0; };
    std::optional<size_t> choice;
    for (const RankedEngine& candidate : ranked) {
      if (!MayTake(candidate.engine, load) || candidate.worth < *best * kEqual) continue;
      const bool better = !choice.has_value() || load_of(candidate.engine) < load_of(*choice) ||
                          (load_of(candidate.engine) == load_of(*choice) && candidate.engine < *choice);
      if (better) choice = candidate.engine;
    }
    return *choice;
  }

  size_t engine = next_in_turn_;
  while (!MayTake(engine, load)) engine = (engine + 1) % load.engines();
  next_in_turn_ = (engine + 1) % load.engines();
  return engine;
}

}  // namespace icache
