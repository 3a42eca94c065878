// The command line of icachectl: its verbs, their flags, and what the exit status says.
#pragma once

namespace icache {

// Runs one verb. Returns 0 when all is well, 1 for a negative answer (no rows, a refused file, a finding, a
// difference), 2 for a command line or file that must be put right, 3 when the daemon could not be asked.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace icache
