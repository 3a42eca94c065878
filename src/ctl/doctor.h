// doctor: what is wrong between an operator's names and a daemon, and how to mend it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ctl/settings.h"
#include "inferencecache/ops/v1alpha1/ops.pb.h"

namespace icache {

enum class Health { kOk, kWarning, kBad };

struct Finding {
  std::string check;  // one word
  Health health = Health::kOk;
  std::string found;
  std::string mend;  // what to do; "" when all is well
};

// What is held of a prompt's first block, if blocks have so many tokens.
struct BlockProbe {
  int32_t block_size = 0;
  bool asked = false;    // false: the lookup ended before the index was consulted
  std::string because;   // why it ended as it did
  bool held = false;     // by a replica, alive
  bool expired = false;  // by a replica, but dead
};

// What the doctor knows when it judges.
struct DoctorFacts {
  Settings settings;
  std::string version;  // icachectl's
  bool serving = false;
  absl::Time local_time;      // half-way through the call that brought `explanation`
  absl::Duration round_trip;  // of that call
  // The daemon's, of a lookup of the settings' names and, if there are some, `token_count` token ids.
  inferencecache::ops::v1alpha1::ExplainRouteResponse explanation;
  size_t token_count = 0;
  std::optional<int32_t> expected_block_size;  // what the operator's gateway uses
  // Of those tokens, where the scope is known: the daemon's block size first, unless they are fewer, then others until
  // one is held.
  std::vector<BlockProbe> probes;
};

// One finding per check, in the order in which they should be mended. Pure.
std::vector<Finding> Judge(const DoctorFacts& facts);

// Asks the daemon, judges and prints. `tokens` is an argument of argument.h: a prompt that should be warm, "" for none;
// `block_size` is what a gateway uses, 0 when it is not told. Returns whether every check is well.
absl::StatusOr<bool> RunDoctor(const Settings& settings, const std::string& tokens, int32_t block_size);

}  // namespace icache
