#include "load/format.h"

#include <fmt/format.h>

namespace icache {

std::string WithCommas(int64_t number) {
  const std::string digits = fmt::format("{}", number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string FormatLatencies(const LatencyHistogram& nanoseconds) {
  const auto micros = [](int64_t nanos) { return WithCommas((nanos + 500) / 1000); };
  return fmt::format("p50 {} µs, p90 {} µs, p99 {} µs, p99.9 {} µs, max {} µs", micros(nanoseconds.Quantile(0.5)),
                     micros(nanoseconds.Quantile(0.9)), micros(nanoseconds.Quantile(0.99)),
                     micros(nanoseconds.Quantile(0.999)), micros(nanoseconds.max()));
}

}  // namespace icache
