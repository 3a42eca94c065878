// MetricSample: one series of a metric and its value, as text and number.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace icache {

struct MetricSample {
  std::string family;     // what the metric is called as a whole
  std::string name;       // of the series: the family's, or a histogram's with _bucket, _sum or _count behind it
  const char* type = "";  // "counter", "gauge" or "histogram"
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;
};

}  // namespace icache
