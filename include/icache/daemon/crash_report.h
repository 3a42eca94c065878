// A crash (SIGSEGV, SIGABRT and the like) leaves a backtrace with symbol names on standard error, and then ends the
// process as it would have ended anyway, core dump included.
#pragma once

namespace icache {

// To be called once, before any thread starts. `program` is argv[0].
void ReportCrashes(const char* program);

}  // namespace icache
