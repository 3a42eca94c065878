#include "ctl/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <functional>
#include <iostream>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ctl/completion.h"
#include "ctl/doctor.h"
#include "ctl/fingerprint_verb.h"
#include "ctl/ingest_verbs.h"
#include "ctl/lookup_verbs.h"
#include "ctl/output.h"
#include "ctl/policy_verbs.h"
#include "ctl/settings.h"
#include "ctl/state_verbs.h"
#include "ctl/top.h"
#include "ctl/watch.h"

namespace icache {
namespace {

constexpr int kExitNegative = 1;
constexpr int kExitUsage = 2;
constexpr int kExitUnreachable = 3;
constexpr int32_t kMaxInt = std::numeric_limits<int32_t>::max();

// What a verb does once the settings are known: whether its answer is positive.
using Verb = std::function<absl::StatusOr<bool>(const Settings& settings)>;

// The verbs and where their flags are put. One object for one command line.
class CommandLine {
 public:
  CommandLine() : app_("Asks and steers icached, the daemon of inference-cache.", "icachectl") {
    app_.fallthrough();  // the common flags may follow the verb
    app_.require_subcommand(1);
    app_.set_version_flag("--version", "icachectl " ICACHE_VERSION);
    app_.footer(
        "Common flags may be given by environment variables (ICACHECTL_ADDRESS, ...) and by a config file.\n"
        "Exit status: 0 well, 1 negative answer, 2 usage, 3 daemon unreachable. See docs/icachectl.md.");
    app_.add_option("--config", config_path_, "YAML file of these flags (ICACHECTL_CONFIG)")->type_name("FILE");
    for (const SettingKey& key : SettingKeys()) {
      GivenSetting& given = given_.emplace_back();
      const auto take = [&given](const CLI::results_t& texts) {
        given = texts.front();
        return true;
      };
      app_.add_option(std::string(key.flag), take, std::string(key.help))->type_name(std::string(key.value_name));
    }
    AddQuestions();
    AddObservations();
    AddState();
    AddPolicies();
    AddTools();
  }

  int Run(int argc, const char* const* argv) {
    try {
      // CLI11 takes the next argument for the value of "--flag=".
      std::vector<std::string> arguments;  // the last one first, as CLI11 wants them
      for (int i = argc - 1; i > 0; --i) {
        const std::string argument = argv[i];
        if (argument.size() > 3 && argument.rfind("--", 0) == 0 && argument.find('=') == argument.size() - 1) {
          arguments.emplace_back();
          arguments.push_back(argument.substr(0, argument.size() - 1));
        } else {
          arguments.push_back(argument);
        }
      }
      app_.parse(std::move(arguments));
    } catch (const CLI::ParseError& error) {
      // Of a verb that it does not know the library says only that there is none.
      const std::vector<std::string> unknown = app_.remaining(/*recurse=*/true);
      if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError) && !unknown.empty()) {
        return Exit(absl::InvalidArgumentError(fmt::format("{}: no such verb; --help lists them", unknown.front())));
      }
      if (app_.exit(error) != 0) return kExitUsage;
      return Exit(std::cout.flush() ? absl::OkStatus() : CannotWriteOut());
    }
    const absl::StatusOr<Settings> settings =
        ResolveSettings(std::vector<GivenSetting>(given_.begin(), given_.end()), config_path_);
    const absl::StatusOr<bool> answer = settings.ok() ? verb_(*settings) : settings.status();
    return answer.ok() && !*answer ? kExitNegative : Exit(answer.status());
  }

 private:
  // The exit status for `status`; says what an error is about.
  static int Exit(const absl::Status& status) {
    if (status.ok()) return 0;
    fmt::print(stderr, "icachectl: {}\n", std::string(status.message()));
    return absl::IsUnavailable(status) ? kExitUnreachable : kExitUsage;
  }

  // `parent`'s sub-command `name`, which does `verb`.
  CLI::App* Add(CLI::App* parent, const std::string& name, const std::string& help, Verb verb) {
    CLI::App* const sub = parent->add_subcommand(name, help);
    sub->callback([this, verb = std::move(verb)] { verb_ = verb; });
    return sub;
  }

  void AddQuestions() {
    constexpr char kLong[] = "; @FILE reads a file, - standard input";
    const auto add = [&](const char* name, const char* help,
                         absl::StatusOr<bool> (*run)(const Settings&, const Question&)) {
      CLI::App* const sub =
          Add(&app_, name, help, [this, run](const Settings& settings) { return run(settings, question_); });
      CLI::Option_group* const input = sub->add_option_group("input", "At most one of");
      input->add_option("--hashes", question_.hashes, fmt::format("Chain of block hashes in hexadecimal{}", kLong));
      input->add_option("--hash", question_.hash, "One hash, matched exactly");
      input->add_option("--tokens", question_.tokens, fmt::format("Token ids, hashed by the daemon{}", kLong));
      input->add_option("--text", question_.text,
                        fmt::format("Prompt, for a daemon that has its model's tokenizer{}", kLong));
      input->require_option(0, 1);
      sub->add_option("--block-size", question_.block_size, "Tokens in each block of --hashes")
          ->check(CLI::Range(1, kMaxInt))
          ->capture_default_str();
      sub->add_option("--prefix-tokens", question_.prefix_tokens, "Tokens that --hash stands for")
          ->check(CLI::Range(0, kMaxInt));
      sub->add_option("--candidate", question_.candidates, "Answer only with this replica; repeatable");
      sub->add_option("--max-replicas", question_.max_replicas, "At most so many rows; 0 = all")
          ->check(CLI::Range(0, kMaxInt));
      sub->add_option("--ttft-ms", question_.ttft_ms, "Time to first token aimed at; 0 = none")
          ->check(CLI::Range(0, kMaxInt));
    };
    add("lookup", "Ask which replicas hold a prefix warm", RunLookup);
    add("explain", "Ask likewise, and why the answer is what it is", RunExplain);
  }

  void AddObservations() {
    CLI::App* const report =
        Add(&app_, "report", "Report updates, one JSON object a line in the shape of CacheStateUpdate",
            [this](const Settings& settings) { return RunReport(settings, input_); });
    report->add_option("input", input_, "@FILE, - for standard input, or one update in place")->required();

    CLI::App* const evict = Add(&app_, "evict", "Tell the daemon that a replica no longer holds some blocks",
                                [this](const Settings& settings) { return RunEvict(settings, replica_, input_); });
    evict->add_option("--replica", replica_, "The replica")->required();
    evict->add_option("hashes", input_, "Block hashes in hexadecimal; @FILE or - likewise")->required();

    CLI::App* const clear = Add(&app_, "clear", "Tell the daemon that a replica holds nothing of the model any more",
                                [this](const Settings& settings) { return RunClear(settings, replica_); });
    clear->add_option("--replica", replica_, "The replica")->required();
  }

  void AddState() {
    Add(&app_, "state", "Show what is held of a tenant's model and what its replicas report", RunState);
    Add(&app_, "replicas", "Show the replicas present in the scope, their leases and signs of life", RunReplicas);
  }

  void AddPolicies() {
    CLI::App* const policies = app_.add_subcommand("policies", "Show, check and compare policies");
    policies->require_subcommand(1);
    Add(policies, "show", "Show the tenant's policy in force", RunPoliciesShow);
    Add(policies, "validate", "Check policy files as the daemon would, without one",
        [this](const Settings& settings) { return RunPoliciesValidate(settings, paths_); })
        ->add_option("paths", paths_, "Files or folders, each a set of its own")
        ->required();
    Add(policies, "diff", "Show what differs between two sets, or between the daemon's and one",
        [this](const Settings& settings) { return RunPoliciesDiff(settings, paths_); })
        ->add_option("paths", paths_, "OLD NEW, or NEW alone")
        ->required()
        ->expected(1, 2);
  }

  void AddTools() {
    CLI::App* const fingerprint =
        Add(&app_, "fingerprint", "Compute the block hashes of token ids, without a daemon",
            [this](const Settings& settings) { return RunFingerprint(settings, input_, block_size_or_16(), parent_); });
    fingerprint->add_option("tokens", input_, "Token ids; @FILE or - likewise")->required();
    fingerprint->add_option("--block-size", block_size_, "Tokens in a block (default 16)")
        ->check(CLI::Range(1, kMaxInt));
    fingerprint->add_option("--parent", parent_, "Hash of the block before the first one");

    CLI::App* const doctor =
        Add(&app_, "doctor", "Find what keeps lookups from matching, and how to mend it",
            [this](const Settings& settings) { return RunDoctor(settings, question_.tokens, block_size_); });
    doctor->add_option("--tokens", question_.tokens, "Token ids of a prompt that should be warm; @FILE or - likewise");
    doctor->add_option("--block-size", block_size_, "Tokens in a block, as the gateway has it")
        ->check(CLI::Range(1, kMaxInt));

    AddLive();

    CLI::App* const completion = Add(&app_, "completion", "Print the script with which a shell completes icachectl",
                                     [this](const Settings&) -> absl::StatusOr<bool> {
                                       if (absl::Status status = WriteOut(CompletionScript(app_, input_)); !status.ok())
                                         return status;
                                       return true;
                                     });
    completion->add_option("shell", input_, "bash, zsh or fish")
        ->required()
        ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  }

  void AddLive() {
    const auto duration = [](absl::Duration* target, absl::Duration least) {
      return [target, least](const CLI::results_t& texts) {
        return absl::ParseDuration(texts.front(), target) && *target >= least && *target <= absl::Hours(1000);
      };
    };
    CLI::App* const watch = Add(&app_, "watch", "Print cache events as they happen",
                                [this](const Settings& settings) { return RunWatch(settings, types_, watch_for_); });
    watch->add_option("--type", types_, "PREFIX_ADDED, PREFIX_EVICTED, REPLICA_UPDATED or ALL_CLEARED; repeatable");
    watch->add_option("--for", duration(&watch_for_, absl::ZeroDuration()), "End by itself after so long")
        ->type_name("DURATION");

    CLI::App* const top = Add(&app_, "top", "Show the daemon at work, refreshed in place; q quits",
                              [this](const Settings& settings) { return RunTop(settings, interval_, refreshes_); });
    top->add_option("--interval", duration(&interval_, absl::Milliseconds(100)), "Time between refreshes (default 1s)")
        ->type_name("DURATION");
    top->add_option("--count", refreshes_, "End after so many refreshes; 0 = never")->check(CLI::Range(0, kMaxInt));
  }

  int32_t block_size_or_16() const { return block_size_ == 0 ? 16 : block_size_; }

  CLI::App app_;
  GivenSetting config_path_;
  std::deque<GivenSetting> given_;  // in the order of SettingKeys(); does not move what flags point to
  Verb verb_;                       // of the command line that was parsed

  Question question_;
  std::string input_;
  std::string replica_;
  std::string parent_;
  std::vector<std::string> paths_;
  std::vector<std::string> types_;
  int32_t block_size_ = 0;  // 0 = not given
  absl::Duration watch_for_ = absl::InfiniteDuration();
  absl::Duration interval_ = absl::Seconds(1);
  int refreshes_ = 0;
};

}  // namespace

int RunCommandLine(int argc, const char* const* argv) { return CommandLine().Run(argc, argv); }

}  // namespace icache
