// Scalar: one value as it was written, and the types that it can be read as.
//
// YAML tells a number from a string by quotes, a command line does not; Kubernetes' typed objects are strict about it,
// and so are these readers. They judge the form alone; whether a value is in bounds is another question.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace icache {

struct Scalar {
  enum class Style {
    kPlain,   // YAML without quotes: a number, a boolean or a string, by its looks
    kQuoted,  // YAML in quotes or as a block: a string
    kFlag,    // from the command line: whatever is asked for
  };
  std::string_view text;
  Style style = Style::kPlain;
};

// All of them: errors are InvalidArgument and say what was expected and what is there.

// Plain text that some YAML reader takes for a number, a boolean or null is no string: it needs quotes.
absl::StatusOr<std::string> ReadString(const Scalar& scalar);
// Decimal digits with an optional sign and no leading zero (which is octal to some readers), within int64. Not quoted.
absl::StatusOr<int64_t> ReadInteger(const Scalar& scalar);
// A decimal number, with or without a fraction and an exponent. Not quoted. May be infinite when its exponent is large.
absl::StatusOr<double> ReadNumber(const Scalar& scalar);
// Likewise, quoted or not.
absl::StatusOr<double> ReadNumberOrString(const Scalar& scalar);
// `true` or `false`, and nothing else that YAML once took for one. Not quoted.
absl::StatusOr<bool> ReadBoolean(const Scalar& scalar);
// As go_duration.h reads it, quoted or not.
absl::StatusOr<absl::Duration> ReadDuration(const Scalar& scalar);

}  // namespace icache
