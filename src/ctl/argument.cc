#include "ctl/argument.h"

#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "absl/strings/numbers.h"
#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/config/file.h"
#include "icache/config/problems.h"

namespace icache {
namespace {

constexpr size_t kMaxBytes = 64 << 20;

absl::StatusOr<std::string> ReadStandardInput() {
  std::string text;
  char buffer[1 << 16];
  while (const size_t size = std::fread(buffer, 1, sizeof(buffer), stdin)) {
    text.append(buffer, size);
    if (text.size() > kMaxBytes) {
      return absl::InvalidArgumentError(fmt::format("standard input: more than {} bytes", kMaxBytes));
    }
  }
  return text;
}

// Calls `visit(word)` for each word of `text` until it returns an error.
template <typename Visit>
absl::Status ForEachWord(std::string_view text, std::string_view separators, Visit visit) {
  while (true) {
    const size_t begin = text.find_first_not_of(separators);
    if (begin == std::string_view::npos) return absl::OkStatus();
    text.remove_prefix(begin);
    const std::string_view word = text.substr(0, text.find_first_of(separators));
    if (absl::Status status = visit(word); !status.ok()) return status;
    text.remove_prefix(word.size());
  }
}

}  // namespace

absl::StatusOr<std::string> ReadArgument(const std::string& argument) {
  if (argument == "-") return ReadStandardInput();
  if (argument.empty() || argument[0] != '@') return argument;
  const std::string path = argument.substr(1);
  absl::StatusOr<std::string> text = ReadFile(path, kMaxBytes);
  if (!text.ok()) {
    return absl::InvalidArgumentError(fmt::format("{}: {}", path, std::string(text.status().message())));
  }
  return text;
}

absl::StatusOr<std::vector<std::string>> ParseHashes(std::string_view text) {
  std::vector<std::string> hashes;
  const absl::Status status = ForEachWord(text, ", \t\r\n", [&](std::string_view word) -> absl::Status {
    const std::string_view digits = word.substr(0, 2) == "0x" ? word.substr(2) : word;
    std::optional<std::string> bytes = FromHex(digits);
    if (!bytes.has_value() || bytes->empty() || bytes->size() > kMaxBlockHashBytes) {
      return absl::InvalidArgumentError(fmt::format("{} is no block hash: that is 1 to {} bytes as hexadecimal digits",
                                                    Quoted(word), kMaxBlockHashBytes));
    }
    hashes.push_back(*std::move(bytes));
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return hashes;
}

absl::StatusOr<std::vector<uint32_t>> ParseTokenIds(std::string_view text) {
  std::vector<uint32_t> token_ids;
  const absl::Status status = ForEachWord(text, ",[] \t\r\n", [&](std::string_view word) -> absl::Status {
    uint32_t token_id = 0;
    if (!absl::SimpleAtoi(absl::string_view(word.data(), word.size()), &token_id)) {
      return absl::InvalidArgumentError(
          fmt::format("{} is no token id: that is a number from 0 to 4294967295", Quoted(word)));
    }
    token_ids.push_back(token_id);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return token_ids;
}

}  // namespace icache
