// icache-load: load generator and trace replay for capacity planning. docs/load.md is its reference.
#include "absl/synchronization/mutex.h"
#include "icache/wire/library_logs.h"
#include "icache/wire/peer_names.h"
#include "load/command_line.h"

int main(int argc, char** argv) {
  // Debian builds abseil with its deadlock detector on, which gRPC would pay for at every lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  icache::SilenceRpcLibraries();
  icache::RefuseUnreadablePeers();
  return icache::RunCommandLine(argc, argv);
}
