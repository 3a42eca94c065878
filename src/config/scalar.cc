#include "icache/config/scalar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "config/go_duration.h"
#include "icache/config/problems.h"

namespace icache {
namespace {

absl::Status Expected(const char* what, const Scalar& scalar) {
  const char* quotes = scalar.style == Scalar::Style::kQuoted ? " in quotes" : "";
  return absl::InvalidArgumentError(absl::StrCat("must be ", what, ", got ", Quoted(scalar.text), quotes));
}

bool IsDigit(char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); }

std::string_view WithoutSign(std::string_view text) {
  if (!text.empty() && (text.front() == '-' || text.front() == '+')) text.remove_prefix(1);
  return text;
}

std::optional<double> DecimalNumber(std::string_view text) {
  const std::string_view digits = WithoutSign(text);
  // Keeps out what the conversion takes beyond decimal numbers: "inf", "nan", hexadecimal, and spaces around it.
  if (digits.find_first_not_of("0123456789.eE+-") != std::string_view::npos) return std::nullopt;
  if (digits.empty() || !(IsDigit(digits.front()) || digits.front() == '.')) return std::nullopt;
  double value = 0;
  if (!absl::SimpleAtod(absl::string_view(text.data(), text.size()), &value)) return std::nullopt;
  return value;
}

// Whether some YAML reader (1.1 or 1.2) takes plain `text` for a number, a boolean or null.
bool LooksUnlikeString(std::string_view text) {
  static constexpr std::array<std::string_view, 11> kWords = {"",   "~",  "null", "true", "false", "yes",
                                                              "no", "on", "off",  ".inf", ".nan"};
  const std::string lower = absl::AsciiStrToLower(absl::string_view(text.data(), text.size()));
  if (std::find(kWords.begin(), kWords.end(), lower) != kWords.end()) return true;
  std::string_view number = WithoutSign(lower);
  if (number == ".inf") return true;
  const auto all = [](std::string_view digits, const char* allowed) {
    return !digits.empty() && digits.find_first_not_of(allowed) == std::string_view::npos;
  };
  if (number.substr(0, 2) == "0x") return all(number.substr(2), "0123456789abcdef_");
  if (number.substr(0, 2) == "0o") return all(number.substr(2), "01234567_");
  if (number.substr(0, 2) == "0b") return all(number.substr(2), "01_");
  std::string plain(number);
  plain.erase(std::remove(plain.begin(), plain.end(), '_'), plain.end());
  return DecimalNumber(plain).has_value();
}

}  // namespace

absl::StatusOr<std::string> ReadString(const Scalar& scalar) {
  if (scalar.style == Scalar::Style::kPlain && LooksUnlikeString(scalar.text)) {
    return absl::InvalidArgumentError(
        absl::StrCat("must be a string, got ", Printable(scalar.text), " (a string that looks like it needs quotes)"));
  }
  return std::string(scalar.text);
}

absl::StatusOr<int64_t> ReadInteger(const Scalar& scalar) {
  const std::string_view digits = WithoutSign(scalar.text);
  const bool decimal = !digits.empty() && std::all_of(digits.begin(), digits.end(), IsDigit);
  if (scalar.style == Scalar::Style::kQuoted || !decimal || (digits.size() > 1 && digits.front() == '0')) {
    return Expected("an integer", scalar);
  }
  // from_chars knows no plus.
  const char* begin = scalar.text.front() == '+' ? digits.data() : scalar.text.data();
  int64_t value = 0;
  if (std::from_chars(begin, digits.data() + digits.size(), value).ec != std::errc()) {
    return Expected("an integer of at most 64 bits", scalar);
  }
  return value;
}

absl::StatusOr<double> ReadNumber(const Scalar& scalar) {
  if (scalar.style == Scalar::Style::kQuoted) return Expected("a number", scalar);
  return ReadNumberOrString(scalar);
}

absl::StatusOr<double> ReadNumberOrString(const Scalar& scalar) {
  const std::optional<double> value = DecimalNumber(scalar.text);
  if (!value.has_value()) return Expected("a number", scalar);
  return *value;
}

absl::StatusOr<bool> ReadBoolean(const Scalar& scalar) {
  if (scalar.style != Scalar::Style::kQuoted) {
    if (scalar.text == "true") return true;
    if (scalar.text == "false") return false;
  }
  return Expected("true or false", scalar);
}

absl::StatusOr<absl::Duration> ReadDuration(const Scalar& scalar) { return ParseGoDuration(scalar.text); }

}  // namespace icache
