// DaemonSecrets: what the bridge shows of itself to daemons and what it believes of them, from the files of its
// options.
//
// Read at start, which is refused for what cannot work, and at each connection, for files change. Free function without
// state; messages never hold what a file holds.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "bridge/options.h"

namespace icache {

struct DaemonSecrets {
  std::string ca;  // PEM, like the next two; "" = the system's
  std::string certificate;
  std::string key;
  std::string token;  // "" = none
};

// Errors: InvalidArgument, with the file's name, for one that cannot be read or does not hold what it should.
absl::StatusOr<DaemonSecrets> ReadDaemonSecrets(const ReportOptions& options);

}  // namespace icache
