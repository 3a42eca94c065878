// lookup and explain: what the daemon answers to one question, and why.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ctl/settings.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

// The question as the command line has it. Texts are arguments of argument.h; at most one of the four is set.
struct Question {
  std::string hashes;
  std::string hash;
  std::string tokens;
  std::string text;
  int32_t block_size = 16;    // tokens in each block of `hashes`
  int32_t prefix_tokens = 0;  // that `hash` stands for
  std::vector<std::string> candidates;
  int32_t max_replicas = 0;  // 0 = all
  int32_t ttft_ms = 0;       // 0 = none
};

// Errors: InvalidArgument for what cannot be read.
absl::StatusOr<inferencecache::v1alpha1::LookupRouteRequest> RequestOf(const Settings& settings,
                                                                       const Question& question);

// Each prints the answer and returns whether it has rows. Errors: those of arguments, the client and the output.
absl::StatusOr<bool> RunLookup(const Settings& settings, const Question& question);
absl::StatusOr<bool> RunExplain(const Settings& settings, const Question& question);

}  // namespace icache
