// The Prometheus text format, read sample by sample. Pure functions, thread-safe.
//
// What is no sample, comments among it, is passed over: pages come from programs of any version. O(page), without
// copies but for labels that are asked for.
#pragma once

#include <string>
#include <string_view>

#include "absl/functional/function_ref.h"

namespace icache {

struct PrometheusSample {
  std::string_view name;
  std::string_view labels;  // as written between the braces, well formed; "" without any
  double value = 0;         // also not finite
};

// Visits the samples of a page in order; views are of the page.
void ForEachSample(std::string_view page, absl::FunctionRef<void(const PrometheusSample&)> visit);

// Visits the labels of a sample, their values unescaped.
void ForEachLabel(std::string_view labels, absl::FunctionRef<void(std::string_view name, std::string value)> visit);

}  // namespace icache
