#include "load/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "load/bench.h"
#include "load/demo.h"
#include "load/replay_command.h"

namespace icache {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

// A flag that takes a duration such as 500ms, 10s or 2m, of `least` or more.
CLI::Option* AddDuration(CLI::App* app, const std::string& name, absl::Duration* target, absl::Duration least,
                         const std::string& help) {
  const auto parse = [target, least](const CLI::results_t& texts) {
    absl::Duration value;
    if (!absl::ParseDuration(texts.front(), &value) || value < least || value > absl::Hours(1000)) return false;
    *target = value;
    return true;
  };
  return app->add_option(name, parse, help)->type_name("DURATION")->default_str(absl::FormatDuration(*target));
}

void AddTarget(CLI::App* app, Target* target) {
  app->add_option("--address", target->address, "The daemon's gRPC address, HOST:PORT or unix:/path")
      ->type_name("ADDRESS")
      ->capture_default_str();
  Security* const security = &target->security;
  CLI::Option* const tls = app->add_flag("--tls", security->tls, "Connect with TLS");
  const auto add_file = [app](const char* name, std::string* path, const char* help) {
    return app->add_option(name, *path, help)->type_name("FILE")->check(CLI::ExistingFile);
  };
  add_file("--tls-ca-file", &security->tls_ca_file, "Certificates that sign the daemon's; default the system's")
      ->needs(tls);
  CLI::Option* const cert = add_file("--tls-cert-file", &security->tls_cert_file, "Certificate of this client");
  CLI::Option* const key = add_file("--tls-key-file", &security->tls_key_file, "Its key");
  cert->needs(tls)->needs(key);
  key->needs(cert);
  app->add_option("--tls-server-name", security->tls_server_name,
                  "Name expected in the daemon's certificate; default the address's host")
      ->type_name("NAME")
      ->needs(tls);
  add_file("--token-file", &security->token_file, "Bearer token to show; it has to have the roles lookup and observe");
  app->add_option("--tenant", target->tenant, "tenant_id to report and ask under")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--model", target->model, "model_id to report and ask under")
      ->type_name("NAME")
      ->capture_default_str();
  app->add_option("--scheme", target->scheme, "hash_scheme to report and ask under")
      ->type_name("NAME")
      ->capture_default_str();
}

void AddTrace(CLI::App* app, std::string* path) {
  app->add_option("--trace", *path, "Trace file: one JSON object a line, as docs/load.md describes")
      ->type_name("FILE")
      ->required()
      ->check(CLI::ExistingFile);
}

void AddBlockSize(CLI::App* app, int32_t* block_size) {
  app->add_option("--block-size", *block_size, "Tokens in a block of the engines' caches")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

void AddJson(CLI::App* app, std::string* path) {
  app->add_option("--json", *path, "Write the result as JSON to this file; - is standard output, in place of the text")
      ->type_name("FILE");
}

CLI::App* AddDemo(CLI::App* app, DemoOptions* options) {
  CLI::App* demo = app->add_subcommand("demo", "Report a few chains of a trace, ask about them, print the answers");
  AddTarget(demo, &options->target);
  AddTrace(demo, &options->trace_path);
  AddBlockSize(demo, &options->block_size);
  return demo;
}

// What replay's flags say in other units than ReplayOptions has.
struct ReplayFlags {
  ReplayCommand command;
  int64_t capacity_tokens = 500'000;
  absl::Duration load_window = absl::Minutes(1);
  absl::Duration report_interval = absl::Seconds(10);

  ReplayCommand Resolve() const {
    ReplayCommand resolved = command;
    FleetOptions& fleet = resolved.options.fleet;
    fleet.capacity_blocks = static_cast<size_t>(std::max<int64_t>(capacity_tokens / fleet.block_size, 1));
    fleet.load_window_ms = absl::ToInt64Milliseconds(load_window);
    resolved.options.report_interval_ms = absl::ToInt64Milliseconds(report_interval);
    return resolved;
  }
};

CLI::App* AddReplay(CLI::App* app, ReplayFlags* flags) {
  CLI::App* replay = app->add_subcommand(
      "replay", "Play a trace against simulated engines, routed by a daemon's hints and by three other policies");
  ReplayCommand* command = &flags->command;
  AddTarget(replay, &command->target);
  AddTrace(replay, &command->trace_path);
  replay->add_option("--requests", command->max_requests, "Play the first so many requests only; 0 = all")
      ->capture_default_str();
  AddBlockSize(replay, &command->options.fleet.block_size);
  replay->add_option("--engines", command->options.fleet.engines, "Simulated engines")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  replay->add_option("--capacity-tokens", flags->capacity_tokens, "Tokens that one engine's cache has room for")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31))
      ->capture_default_str();
  replay
      ->add_option("--load-cap", command->options.load_cap,
                   "Pass over an engine whose recent load is above this multiple of the mean")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  AddDuration(replay, "--load-window", &flags->load_window, absl::Milliseconds(1),
              "How far back recent load reaches, in trace time");
  AddDuration(replay, "--report-interval", &flags->report_interval, absl::Milliseconds(1),
              "How often engines report stats and renew their leases, in trace time");
  replay
      ->add_option(
          "--engine-tokens-per-s", command->options.engine_tokens_per_s,
          "Prompt tokens that an engine computes in a second at most; its pressure is the share of that in use")
      ->check(CLI::Range(1.0, 1e12))
      ->capture_default_str();
  AddJson(replay, &command->json_path);
  replay->add_option("--plot", command->plot_path, "Draw the result into this SVG file")->type_name("FILE");
  return replay;
}

CLI::App* AddBench(CLI::App* app, BenchOptions* options) {
  CLI::App* bench = app->add_subcommand("bench", "Drive a daemon with a chosen mix of lookups and observations");
  AddTarget(bench, &options->target);
  WorkloadOptions* workload = &options->workload;
  bench->add_option("--blocks", workload->blocks, "Blocks of a chain")
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str();
  bench->add_option("--chains", workload->chains, "Chains that the daemon is filled with")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  bench->add_option("--replicas", workload->replicas, "Replicas that report")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  bench->add_option("--holders", workload->holders, "Replicas that hold each chain, at most --replicas")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  bench->add_option("--hit-ratio", workload->hit_ratio, "Share of the lookups that ask for a chain that is held")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  const auto use = [workload](ChainEncoding encoding) {
    return [workload, encoding](int64_t) { workload->encoding = encoding; };
  };
  CLI::Option* packed =
      bench->add_flag("--packed", use(ChainEncoding::kPacked), "Send chains as packed 64-bit numbers (default)");
  bench->add_flag("--bytes", use(ChainEncoding::kBytes), "Send chains as byte strings with token counts")
      ->excludes(packed);
  bench->add_option("--seed", workload->seed, "Of the hashes and of the order of lookups")->capture_default_str();
  bench
      ->add_option(
          "--mode", options->mode,
          "How lookups are sent: unary, a LookupRoute call for each; stream, over LookupRouteStream calls that "
          "stay open, one for each lookup in flight")
      ->transform(CLI::CheckedTransformer(
          std::map<std::string, LookupMode>{{"unary", LookupMode::kUnary}, {"stream", LookupMode::kStream}}))
      ->default_str("unary");
  bench->add_flag("!--no-fill", options->fill, "Ask for the chains without reporting them first");
  bench->add_flag("!--keep", options->clear, "Leave what was reported in the daemon");
  bench->add_option("--connections", options->connections, "TCP connections")
      ->check(CLI::Range(1, 1024))
      ->capture_default_str();
  bench->add_option("--concurrency", options->concurrency, "Lookups in flight at once, over all connections")
      ->check(CLI::Range(1, 65'536))
      ->capture_default_str();
  bench->add_option("--threads", options->threads, "Threads that drive the connections, at most --connections")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  bench
      ->add_option("--rate", options->rate,
                   "Lookups a second, sent on schedule whatever the answers do (open loop); 0 = the next one after "
                   "each answer (closed loop)")
      ->check(CLI::Range(0.0, 1e7))
      ->capture_default_str();
  AddDuration(bench, "--warm-up", &options->warm_up, absl::ZeroDuration(), "Load that comes first and is not measured");
  CLI::Option* duration =
      AddDuration(bench, "--duration", &options->duration, absl::Milliseconds(1), "How long to measure");
  bench->add_option("--requests", options->requests, "Measure so many lookups, in place of --duration")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->excludes(duration);
  bench
      ->add_option("--ingest-blocks-per-s", options->ingest_blocks_per_s,
                   "Blocks stored and evicted a second beside the lookups")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  AddJson(bench, &options->json_path);
  return bench;
}

// What no single flag can tell: empty when all is well.
std::string BenchProblem(const BenchOptions& options) {
  const WorkloadOptions& workload = options.workload;
  if (workload.holders > workload.replicas) {
    return fmt::format("--holders {} is above --replicas {}", workload.holders, workload.replicas);
  }
  if (options.threads > options.connections) {
    return fmt::format("--threads {} is above --connections {}", options.threads, options.connections);
  }
  if (options.concurrency < options.connections) {
    return fmt::format("--concurrency {} is below --connections {}", options.concurrency, options.connections);
  }
  return "";
}

int Finish(const absl::Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "icache-load: {}\n", std::string(status.message()));
  return kExitFailed;
}

}  // namespace

int RunCommandLine(int argc, const char* const* argv) {
  CLI::App app("Load generator and trace replay for inference-cache", "icache-load");
  app.require_subcommand(1);
  app.set_version_flag("--version", "icache-load " ICACHE_VERSION, "Print the version and exit");
  app.footer("Durations are written as in 30s, 2m or 500ms; \"icache-load COMMAND --help\" lists a command's flags.");
  DemoOptions demo_options;
  ReplayFlags replay_flags;
  BenchOptions bench_options;
  const CLI::App* demo = AddDemo(&app, &demo_options);
  const CLI::App* replay = AddReplay(&app, &replay_flags);
  AddBench(&app, &bench_options);
  for (CLI::App* command : app.get_subcommands({})) {
    command->footer("A DURATION is a number with a unit, as 30s, 2m or 500ms.");
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }

  if (demo->parsed()) return Finish(RunDemo(demo_options));
  if (replay->parsed()) return Finish(RunReplay(replay_flags.Resolve()));
  if (const std::string problem = BenchProblem(bench_options); !problem.empty()) {
    fmt::print(stderr, "{}\n", problem);
    return kExitUsage;
  }
  return Finish(RunBench(bench_options));
}

}  // namespace icache
