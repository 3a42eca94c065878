// fingerprint: token ids to block hashes, as the daemon and the bridge compute them; without a daemon.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "ctl/settings.h"

namespace icache {

// `tokens` is an argument of argument.h, `parent` the hash that comes before the first block, "" for none. Returns
// whether the tokens make a block. Errors: InvalidArgument.
absl::StatusOr<bool> RunFingerprint(const Settings& settings, const std::string& tokens, int32_t block_size,
                                    const std::string& parent);

}  // namespace icache
