#include "ctl/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "icache/base/utf8.h"

namespace icache {
namespace {

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Control characters of ASCII and of Latin-1, which terminals obey.
bool IsControl(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (character.size() == 1) return first < 0x20 || first == 0x7F;
  return character.size() == 2 && first == 0xC2 && static_cast<unsigned char>(character[1]) < 0xA0;
}

}  // namespace

std::string ToHex(std::string_view bytes) {
  std::string digits;
  digits.reserve(bytes.size() * 2);
  for (const unsigned char byte : bytes) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

std::optional<std::string> FromHex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    const int high = DigitOf(digits[i]);
    const int low = DigitOf(digits[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

std::string Visible(std::string_view text) {
  std::string visible;
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    const std::string_view character = text.substr(0, std::max<size_t>(length, 1));
    if (length == 0 || IsControl(character)) {
      for (const unsigned char byte : character) visible += fmt::format("\\x{:02x}", byte);
    } else {
      visible += character;
    }
    text.remove_prefix(character.size());
  }
  return visible;
}

size_t DisplayWidth(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](unsigned char byte) { return (byte & 0xC0) != 0x80; }));
}

std::string WithCommas(int64_t number) {
  std::string text = fmt::format("{}", number);
  const size_t first = number < 0 ? 1 : 0;
  for (size_t at = text.size(); at > first + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string Counted(int64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", WithCommas(number), noun, number == 1 ? "" : "s");
}

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string AgeText(absl::Duration age) {
  const int64_t seconds = absl::ToInt64Seconds(age);
  if (seconds >= 86400) return fmt::format("{}d{}h", seconds / 86400, seconds / 3600 % 24);
  if (seconds >= 3600) return fmt::format("{}h{}m", seconds / 3600, seconds / 60 % 60);
  if (seconds >= 60) return fmt::format("{}m{}s", seconds / 60, seconds % 60);
  if (seconds >= 1) return fmt::format("{}s", seconds);
  const int64_t milliseconds = absl::ToInt64Milliseconds(age);
  return milliseconds >= 1 ? fmt::format("{}ms", milliseconds) : "0s";
}

}  // namespace icache
