#include "ctl/fingerprint_verb.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "ctl/argument.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/block_hash.h"
#include "icache/base/status_macros.h"
#include "icache/fingerprint/fingerprint.h"

namespace icache {

absl::StatusOr<bool> RunFingerprint(const Settings& settings, const std::string& tokens, int32_t block_size,
                                    const std::string& parent) {
  ASSIGN_OR_RETURN(const std::string text, ReadArgument(tokens));
  ASSIGN_OR_RETURN(const std::vector<uint32_t> token_ids, ParseTokenIds(text));
  std::optional<uint64_t> parent_hash;
  if (!parent.empty()) {
    ASSIGN_OR_RETURN(const std::vector<std::string> hashes, ParseHashes(parent));
    if (hashes.size() != 1 || hashes[0].size() != kPackedHashBytes) {
      return absl::InvalidArgumentError("--parent: must be one hash of 16 hexadecimal digits");
    }
    parent_hash = LoadBigEndian64(hashes[0].data());
  }
  std::vector<uint64_t> prefixes;
  RETURN_IF_ERROR(FingerprintPrefixes(token_ids, block_size, parent_hash, &prefixes));

  nlohmann::ordered_json hashes = nlohmann::ordered_json::array();
  Table table({{"BLOCK", Table::Align::kRight}, {"TOKENS"}, {"HASH"}});
  for (size_t i = 0; i < prefixes.size(); ++i) {
    const std::string hash = fmt::format("{:016x}", prefixes[i]);
    hashes.push_back(hash);
    const size_t first = i * static_cast<size_t>(block_size);
    table.AddRow(
        {fmt::format("{}", i), fmt::format("{}-{}", first, first + static_cast<size_t>(block_size) - 1), hash});
  }
  const size_t dropped = token_ids.size() - prefixes.size() * static_cast<size_t>(block_size);
  const nlohmann::ordered_json document = {{"block_size", block_size},
                                           {"tokens", token_ids.size()},
                                           {"tokens_dropped", dropped},
                                           {"block_hashes", std::move(hashes)}};
  RETURN_IF_ERROR(Print(settings.Output(), document, [&](const Style& style) {
    std::string rendered = table.empty() ? "" : table.Render(style);
    if (dropped > 0) {
      rendered += fmt::format("and {} at the end, too few for a block of {}\n",
                              Counted(static_cast<int64_t>(dropped), "token"), block_size);
    }
    return rendered;
  }));
  return !prefixes.empty();
}

}  // namespace icache
