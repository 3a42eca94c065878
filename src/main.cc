// icached: the daemon. docs/operations.md tells how to run it.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "icache/base/moment.h"
#include "icache/config/access_loader.h"
#include "icache/config/command_line.h"
#include "icache/config/policy_loader.h"
#include "icache/config/problems.h"
#include "icache/config/tls_loader.h"
#include "icache/daemon/crash_report.h"
#include "icache/daemon/ending.h"
#include "icache/daemon/file_limit.h"
#include "icache/daemon/server.h"
#include "icache/daemon/signals.h"
#include "icache/http/http_server.h"
#include "icache/telemetry/logging.h"
#include "icache/wire/library_logs.h"
#include "icache/wire/peer_names.h"

namespace icache {
namespace {

int Fail(const absl::Status& status) { return FailToStart("icached", status); }

// A standard descriptor that is closed would go to the next socket, which the log would then be written into. What
// takes its place takes no line, so that lines are counted as lost.
void OccupyStandardDescriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) < 0) open("/dev/null", O_RDONLY);  // takes the lowest that is free
  }
}

// Adds what is wrong with the files that `options` name.
void CheckFiles(const DaemonOptions& options, Problems* problems) {
  const auto add = [problems](const absl::Status& status) {
    if (!status.ok()) problems->Add(std::string(status.message()));
  };
  add(LoadPolicies(options.policy_path).status());
  add(LoadAccess(options.access_path, options.client_certificates()).status());
  const absl::Status grpc_tls = LoadTlsIdentity(options.grpc_tls).status();
  const absl::Status http_tls = LoadTlsIdentity(options.http_tls, &CheckHttpIdentity).status();
  add(grpc_tls);
  if (http_tls != grpc_tls) add(http_tls);  // both may have the same files
}

int Main(int argc, char** argv) {
  Problems problems;
  const CommandLine command_line = ParseCommandLine(argc, argv, &problems);
  if (command_line.text.has_value()) return fputs(command_line.text->c_str(), stdout) >= 0 ? 0 : 1;
  const DaemonOptions& options = command_line.options;
  if (command_line.validate_only) CheckFiles(options, &problems);
  if (const absl::Status status = problems.ToStatus(); !status.ok()) return Fail(status);
  if (command_line.validate_only) return 0;

  const std::unique_ptr<Logger> logger = CreateDaemonLogger(options);
  ShutdownDeadline deadline(logger.get());
  const auto server = Server::Start(options, logger.get());
  if (!server.ok()) return Fail(server.status());
  while (WaitForSignal() == SignalKind::kReload) (*server)->Reload();
  (*server)->Drain();
  const absl::Time drained_at = SteadyNow() + options.drain_delay;
  while (WaitForSignal(drained_at - SteadyNow()) == SignalKind::kReload) {
  }  // a second signal to end cuts it short, one to reload does not
  deadline.Begin();
  (*server)->Shutdown(kShutdownGrace);
  return 0;
}

}  // namespace
}  // namespace icache

int main(int argc, char** argv) {
  icache::OccupyStandardDescriptors();
  icache::ReportCrashes(argv[0]);
  // Debian's abseil looks for lock cycles in every program, which costs 7 % of the CPU per call.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  icache::SilenceRpcLibraries();
  icache::RefuseUnreadablePeers();
  icache::RaiseFileLimit();
  icache::BlockSignals();  // before any thread starts
  return icache::Main(argc, argv);
}
