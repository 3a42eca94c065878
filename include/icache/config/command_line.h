// The command line of icached, and the config file that it may name.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "icache/config/daemon_options.h"
#include "icache/config/problems.h"

namespace icache {

// What the command line asks for.
struct CommandLine {
  // When set (--help, --version): print it to standard output and exit 0. The rest means nothing then.
  std::optional<std::string> text;
  // --validate-only: check the files too that the options name (CheckFiles), then exit 0 or 2 instead of serving.
  bool validate_only = false;
  DaemonOptions options;
};

// Resolves defaults, then the file that --config names, then the other flags; a later one wins. A list is replaced
// whole, models are merged by name. Reads that file and nothing else; prints nothing and never exits.
//
// Errors: InvalidArgument whose message has every problem of the flags and the file, one per line, as
// `file:line:column: key: message` or `--flag: message`. The process should exit 2.
absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv);

// Likewise, but what is wrong is added to `problems`, and what is right resolved all the same.
CommandLine ParseCommandLine(int argc, const char* const* argv, Problems* problems);

}  // namespace icache
