#include "config/go_duration.h"

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "icache/config/problems.h"

namespace icache {
namespace {

// Sums are kept unsigned, since the most negative duration has a magnitude of 2^63.
constexpr uint64_t kMaxMagnitude = uint64_t{1} << 63;

struct Unit {
  std::string_view name;
  uint64_t nanoseconds;
};
constexpr Unit kUnits[] = {
    {"ns", 1},          {"us", 1'000},        {"\u00B5s", 1'000},  // micro sign
    {"\u03BCs", 1'000},                                            // Greek mu
    {"ms", 1'000'000},  {"s", 1'000'000'000}, {"m", 60'000'000'000}, {"h", 3'600'000'000'000},
};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// What the digits at the front of a text say.
struct Digits {
  size_t length = 0;
  uint64_t value = 0;
  double scale = 1;       // 10 to the number of digits in `value`
  bool overflow = false;  // `value` stops before the digit that would pass 2^63
};

Digits LeadingDigits(std::string_view text) {
  Digits digits;
  for (; digits.length < text.size() && IsDigit(text[digits.length]); ++digits.length) {
    if (digits.overflow) continue;
    const uint64_t digit = static_cast<uint64_t>(text[digits.length] - '0');
    if (digits.value > (kMaxMagnitude - digit) / 10) {
      digits.overflow = true;
      continue;
    }
    digits.value = digits.value * 10 + digit;
    digits.scale *= 10;
  }
  return digits;
}

absl::Status Invalid(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("must be a duration such as 30m, 1h30m or 250ms, got ", Quoted(text)));
}

absl::Status TooLong(std::string_view text) {
  return absl::InvalidArgumentError(absl::StrCat("is a duration beyond 292 years: ", Quoted(text)));
}

}  // namespace

absl::StatusOr<absl::Duration> ParseGoDuration(std::string_view text) {
  std::string_view rest = text;
  const bool negative = !rest.empty() && rest.front() == '-';
  if (negative || (!rest.empty() && rest.front() == '+')) rest.remove_prefix(1);
  if (rest == "0") return absl::ZeroDuration();
  if (rest.empty()) return Invalid(text);

  uint64_t total = 0;
  while (!rest.empty()) {
    const Digits whole = LeadingDigits(rest);
    rest.remove_prefix(whole.length);
    Digits fraction;
    if (!rest.empty() && rest.front() == '.') {
      rest.remove_prefix(1);
      fraction = LeadingDigits(rest);
      rest.remove_prefix(fraction.length);
    }
    if (whole.length == 0 && fraction.length == 0) return Invalid(text);

    size_t name_length = 0;
    while (name_length < rest.size() && rest[name_length] != '.' && !IsDigit(rest[name_length])) ++name_length;
    const std::string_view name = rest.substr(0, name_length);
    rest.remove_prefix(name_length);
    const Unit* unit = nullptr;
    for (const Unit& candidate : kUnits) {
      if (candidate.name == name) unit = &candidate;
    }
    if (unit == nullptr) return Invalid(text);

    if (whole.overflow || whole.value > kMaxMagnitude / unit->nanoseconds) return TooLong(text);
    uint64_t part = whole.value * unit->nanoseconds;
    // Below one unit, and digits of a fraction beyond 2^63 are too small to matter; so this cannot overflow.
    part += static_cast<uint64_t>(static_cast<double>(fraction.value) *
                                  (static_cast<double>(unit->nanoseconds) / fraction.scale));
    if (part > kMaxMagnitude - total) return TooLong(text);
    total += part;
  }
  if (negative) return absl::Nanoseconds(static_cast<int64_t>(0 - total));
  if (total == kMaxMagnitude) return TooLong(text);
  return absl::Nanoseconds(static_cast<int64_t>(total));
}

}  // namespace icache
