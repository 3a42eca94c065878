// Durations as Go's time package writes them: `30m`, `1h30m`, `1.5s`, `250ms`.
#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace icache {

// The largest duration that can be written: 2^63 − 1 nanoseconds, about 292 years.
inline constexpr absl::Duration kMaxGoDuration = absl::Nanoseconds(INT64_MAX);

// Reads exactly what Go's time.ParseDuration reads: an optional sign, then "0" or a list of decimal numbers, each with
// an optional fraction and one of the units ns, us (also with a micro sign or a Greek mu), ms, s, m, h. What goes
// beyond a nanosecond is cut off. Errors: InvalidArgument for anything else (spaces, a number without unit, days,
// "inf") and for what int64 nanoseconds cannot hold.
//
// absl::ParseDuration is another language: it takes "inf" and wraps nothing at 292 years, and knows no micro signs.
absl::StatusOr<absl::Duration> ParseGoDuration(std::string_view text);

}  // namespace icache
