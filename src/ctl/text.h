// Small texts: hexadecimal, names and numbers as people read them. Pure functions, thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace icache {

// Two lower-case digits a byte.
std::string ToHex(std::string_view bytes);
// nullopt unless `digits` is an even number of hexadecimal digits; upper case will do.
std::optional<std::string> FromHex(std::string_view digits);

// `text`, which came from the network, fit for a terminal: what is no printable UTF-8 is shown as \xNN.
std::string Visible(std::string_view text);
// How many columns `text` takes: one a character, which is right but for wide scripts.
size_t DisplayWidth(std::string_view text);

// 1234567 -> "1,234,567".
std::string WithCommas(int64_t number);
// "1 replica", "1,234 replicas".
std::string Counted(int64_t number, std::string_view noun);
// "1.5 GiB", "512 B".
std::string BytesText(double bytes);
// An age in its two largest units: "3h20m", "12s", "250ms"; "0s" below a millisecond.
std::string AgeText(absl::Duration age);

}  // namespace icache
