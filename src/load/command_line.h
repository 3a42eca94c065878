// The command line of icache-load: `demo`, `replay` and `bench`, with every flag's meaning, default and bounds.
#pragma once

namespace icache {

// Reads the command line, runs the command, and returns the exit status of the program: 0 when it did what was asked
// (help included), 1 when it failed, 2 when the command line is wrong.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace icache
