#include "load/replay_command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "icache/base/status_macros.h"
#include "load/daemon_hints.h"
#include "load/output.h"
#include "load/replay_report.h"
#include "load/steady_time.h"
#include "load/trace_file.h"

namespace icache {
namespace {

absl::Status ClearEngines(DaemonHints* hints, size_t engines) {
  for (size_t engine = 0; engine < engines; ++engine) RETURN_IF_ERROR(hints->Report(engine, {.clear = true}));
  return absl::OkStatus();
}

}  // namespace

absl::Status RunReplay(const ReplayCommand& command) {
  ReplayOutcome outcome{.options = command.options, .trace_path = command.trace_path};
  ASSIGN_OR_RETURN(const std::vector<TraceRequest> trace, ReadTrace(command.trace_path, command.max_requests));
  outcome.trace_ms = trace.back().timestamp_ms - trace.front().timestamp_ms;

  const size_t engines = command.options.fleet.engines;
  ASSIGN_OR_RETURN(const std::unique_ptr<Connection> connection, Connection::Open(command.target, kCallTimeout));
  DaemonHints hints(connection.get(), command.target, engines, command.options.fleet.block_size);
  RETURN_IF_ERROR(ClearEngines(&hints, engines));  // what a replay that was broken off has left
  ASSIGN_OR_RETURN(const int64_t others, hints.PrefixCount());
  if (others != 0) {
    return absl::FailedPreconditionError(
        fmt::format("tenant {}, model {}: {} prefixes of others are there; choose another --tenant or --model",
                    command.target.tenant, command.target.model, others));
  }

  const int64_t begin = SteadyNanos();
  absl::StatusOr<ReplayResult> result;
  {
    ProgressBar bar(trace.size());
    result = Replay(command.options, trace, &hints, [&bar] { bar.Step(); });
  }
  if (!result.ok()) return result.status();
  outcome.wall_seconds = static_cast<double>(SteadyNanos() - begin) / 1e9;
  outcome.result = *std::move(result);
  outcome.report_ns = hints.report_ns();
  ASSIGN_OR_RETURN(outcome.index_prefixes, hints.PrefixCount());
  RETURN_IF_ERROR(ClearEngines(&hints, engines));

  if (command.json_path != "-") RETURN_IF_ERROR(WriteText("-", ReplayText(outcome)));
  if (!command.json_path.empty()) {
    RETURN_IF_ERROR(WriteText(command.json_path, ReplayJson(outcome).dump(2) + "\n"));
  }
  if (!command.plot_path.empty()) RETURN_IF_ERROR(WriteText(command.plot_path, ReplaySvg(outcome)));
  return absl::OkStatus();
}

}  // namespace icache
