// icache-bridge: reports an engine's KV-cache events to icached. docs/engines.md tells how to run it.
#include <curl/curl.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "absl/synchronization/mutex.h"
#include "bridge/bridge.h"
#include "bridge/daemon_secrets.h"
#include "bridge/options.h"
#include "icache/daemon/background_task.h"
#include "icache/daemon/file_limit.h"
#include "icache/daemon/signals.h"
#include "icache/telemetry/logging.h"

namespace icache {
namespace {

// How long the daemons may take for what is left at the end.
constexpr absl::Duration kShutdownGrace = absl::Seconds(4);
// How long the whole end may take. A supervisor may kill the process half a second later.
constexpr absl::Duration kShutdownDeadline = absl::Milliseconds(4500);

// Exit status 2 for what somebody must put right in flags or config first, 1 for all else.
int Fail(const absl::Status& status) {
  fprintf(stderr, "icache-bridge: %s\n", std::string(status.message()).c_str());
  return absl::IsInvalidArgument(status) ? 2 : 1;
}

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
  std::optional<BackgroundTask> deadline;
  const auto bridge = Bridge::Start(options, logger.get());
  if (!bridge.ok()) return Fail(bridge.status());
  while (WaitForSignal() != SignalKind::kTerminate) {
  }
  // Nothing that is left then is worth waiting for: memory to be freed, a scrape under way.
  deadline.emplace("deadline", kShutdownDeadline, [&logger]() -> BackgroundTask::Next {
    logger->Warn("shutdown_cut_short");
    _exit(0);
  });
  (*bridge)->Shutdown(kShutdownGrace);
  return 0;
}

}  // namespace
}  // namespace icache

int main(int argc, char** argv) {
  // Debian's abseil looks for lock cycles in every program, which costs CPU at each of gRPC's locks.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  icache::RaiseFileLimit();
  curl_global_init(CURL_GLOBAL_DEFAULT);
  icache::BlockSignals();  // before any thread starts
  return icache::Main(argc, argv);
}
