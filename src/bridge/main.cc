// icache-bridge: reports an engine's KV-cache events to icached. docs/engines.md tells how to run it.
#include <cstdio>
#include <memory>

#include "absl/synchronization/mutex.h"
#include "bridge/bridge.h"
#include "bridge/daemon_secrets.h"
#include "bridge/options.h"
#include "icache/base/clock.h"
#include "icache/daemon/ending.h"
#include "icache/daemon/file_limit.h"
#include "icache/daemon/signals.h"
#include "icache/telemetry/logging.h"
#include "icache/wire/library_logs.h"
#include "icache/wire/peer_names.h"

namespace icache {
namespace {

int Fail(const absl::Status& status) { return FailToStart("icache-bridge", status); }

int Main(int argc, char** argv) {
  const auto command_line = ParseBridgeCommandLine(argc, argv, BridgeEnvironment::OfProcess());
  if (!command_line.ok()) return Fail(command_line.status());
  if (command_line->text.has_value()) return fputs(command_line->text->c_str(), stdout) >= 0 ? 0 : 1;
  const BridgeOptions& options = command_line->options;
  const auto secrets = ReadDaemonSecrets(options.report);
  if (!secrets.ok()) return Fail(secrets.status());
  if (command_line->validate_only) return 0;
  const std::unique_ptr<Logger> logger =
      CreateLogger({.min_severity = options.log_level, .json = options.log_json}, Clock::System());
  ShutdownDeadline deadline(logger.get());
  const auto bridge = Bridge::Start(options, logger.get());
  if (!bridge.ok()) return Fail(bridge.status());
  while (WaitForSignal() != SignalKind::kTerminate) {
  }
  deadline.Begin();
  (*bridge)->Shutdown(kShutdownGrace);
  return 0;
}

}  // namespace
}  // namespace icache

int main(int argc, char** argv) {
  // Debian's abseil looks for lock cycles in every program, which costs CPU at each of gRPC's locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  icache::SilenceRpcLibraries();
  icache::RefuseUnreadablePeers();
  icache::RaiseFileLimit();
  icache::BlockSignals();  // before any thread starts
  return icache::Main(argc, argv);
}
