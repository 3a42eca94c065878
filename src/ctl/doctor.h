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

// What the doctor knows when it judges.
struct DoctorFacts {
  Settings settings;
  std::string version;  // icachectl's
  bool serving = false;
  absl::Time local_time;      // half-way through the call that brought `explanation`
  absl::Duration round_trip;  // of that call
  // The daemon's, of a lookup of the settings' names and, if there are some, `tokens_given` token ids.
  inferencecache::ops::v1alpha1::ExplainRouteResponse explanation;
  bool tokens_given = false;
  std::optional<int32_t> expected_block_size;  // what the operator's gateway uses
  std::optional<int32_t> matching_block_size;  // another one, at which replicas hold the tokens
};

// One finding per check, in the order in which they should be mended. Pure.
std::vector<Finding> Judge(const DoctorFacts& facts);

// Asks the daemon, judges and prints. `tokens` is an argument of argument.h: a prompt that should be warm, "" for none;
// `block_size` is what a gateway uses, 0 when it is not told. Returns whether every check is well.
absl::StatusOr<bool> RunDoctor(const Settings& settings, const std::string& tokens, int32_t block_size);

}  // namespace icache
