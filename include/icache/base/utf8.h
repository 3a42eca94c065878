// Valid UTF-8 out of any bytes, for formats that allow nothing else.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace icache {

// Length of the well-formed UTF-8 sequence that `text` starts with, 0 when it starts with none. Overlong forms,
// surrogates and code points beyond U+10FFFF are not well formed.
size_t Utf8SequenceLength(std::string_view text);

// Whether all of `text` is well-formed UTF-8.
bool IsUtf8(std::string_view text);

// `text` with each NUL and each byte that is not part of a well-formed sequence replaced by U+FFFD, cut between
// characters to at most `max_bytes`.
std::string SanitizedUtf8(std::string_view text, size_t max_bytes);

}  // namespace icache
