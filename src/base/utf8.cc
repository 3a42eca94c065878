#include "icache/base/utf8.h"

#include <algorithm>

namespace icache {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

size_t Utf8SequenceLength(std::string_view text) {
  if (text.empty()) return 0;
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;

  // The second byte has a narrower range behind four of the leads; that excludes overlong forms, surrogates and what
  // is beyond U+10FFFF.
  size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  }
  if (length == 0 || text.size() < length || byte(1) < low || byte(1) > high) return 0;
  for (size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = Utf8SequenceLength(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string SanitizedUtf8(std::string_view text, size_t max_bytes) {
  std::string result;
  result.reserve(std::min(text.size(), max_bytes));
  while (!text.empty()) {
    const size_t length = text.front() == '\0' ? 0 : Utf8SequenceLength(text);
    const std::string_view piece = length > 0 ? text.substr(0, length) : kReplacement;
    if (result.size() + piece.size() > max_bytes) break;
    result.append(piece);
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return result;
}

}  // namespace icache
