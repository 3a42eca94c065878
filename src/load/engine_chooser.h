// EngineChooser: which engine a request goes to, given what is known about the engines' caches.
//
// The rule, the same for every routing policy that the replay compares:
//   1. The first requests go to the engines one by one: an engine that was never given anything holds nothing, is
//   ranked
//      by nobody, and would otherwise stay idle.
//   2. Of the ranked engines that are not over the load cap, take the one worth most. Worths that differ by less than
//      one part in 100,000 are equal; of equals take the least loaded, then the lowest number.
//   3. With none left, take the next engine in turn that is not over the cap (round robin over all of them).
// A load-blind chooser cares for no load: it leaves out 1, nobody is over the cap, and of equals it takes the lowest
// number.
//
// The load cap keeps an engine from getting more than it can do: since prompts share heads, the engine that holds a
// popular one would otherwise be the best match for all that follow.
#pragma once

#include <cstddef>
#include <optional>

#include "absl/types/span.h"
#include "load/load_window.h"

namespace icache {

// An engine that is believed to hold part of a prompt.
struct RankedEngine {
  size_t engine = 0;
  double worth = 0;  // more is better; >= 0
};

class EngineChooser {
 public:
  // `load_cap` is a multiple of the mean load, >= 1; without one the chooser is load-blind.
  explicit EngineChooser(std::optional<double> load_cap) : load_cap_(load_cap) {}

  // `ranked` in any order; its engines are below load.engines(). O(engines).
  size_t Choose(absl::Span<const RankedEngine> ranked, const LoadWindow& load);

 private:
  bool MayTake(size_t engine, const LoadWindow& load) const;

  const std::optional<double> load_cap_;
  size_t introduced_ = 0;  // engines that rule 1 has given their first request
  size_t next_in_turn_ = 0;
};

}  // namespace icache
