// Arguments that may be long: given in place, as @FILE, or as - for standard input.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace icache {

// What `argument` stands for. Errors: InvalidArgument for a file that cannot be read or more than 64 MiB.
absl::StatusOr<std::string> ReadArgument(const std::string& argument);

// Block hashes as bytes, from hexadecimal digits parted by commas or white space; "0x" before them will do.
// Errors: InvalidArgument naming the word that is none.
absl::StatusOr<std::vector<std::string>> ParseHashes(std::string_view text);

// Token ids, from decimal numbers parted by commas or white space; a JSON list of numbers will do.
absl::StatusOr<std::vector<uint32_t>> ParseTokenIds(std::string_view text);

}  // namespace icache
