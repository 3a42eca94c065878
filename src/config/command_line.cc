#include "icache/config/command_line.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/config_file.h"
#include "config/problems.h"
#include "config/scalar.h"
#include "config/settings.h"

namespace icache {
namespace {

constexpr std::string_view kConfig = "--config";
constexpr std::string_view kValidateOnly = "--validate-only";
constexpr std::string_view kVersion = "--version";
constexpr std::string_view kHelp = "--help";

std::string HelpText() {
  std::string text =
      "Usage: icached [--config FILE] [--FLAG VALUE]...\n\n"
      "Serves cache-aware routing hints over gRPC. A flag wins over the config file, which wins over the default.\n"
      "Durations are written as in 30m, 1h30m or 250ms.\n\n"
      "  --config FILE\n      YAML file with the keys named below.\n"
      "  --validate-only\n      Check the flags, the config file and the policies, then exit with 0 or 2.\n"
      "  --version\n      Print the version and exit.\n"
      "  --help\n      Print this text and exit.\n\n";
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    const std::string value = ValueText(setting, defaults);
    const std::string unit = setting.unit.empty() ? "" : absl::StrCat(std::string(setting.unit), ", ");
    absl::StrAppendFormat(&text, "  %s %s\n      %s\n      [%s; %s%s; default %s]\n", setting.flag, setting.value_name,
                          setting.help, setting.key, unit, RangeText(setting), value.empty() ? "none" : value);
  }
  return text;
}

// One setting's flag as it was given.
struct GivenFlag {
  const Setting* setting = nullptr;
  std::string_view value;
};

// The command line cut into flags.
struct GivenFlags {
  std::vector<GivenFlag> settings;
  std::optional<std::string_view> config;
  bool validate_only = false;
  bool version = false;
  bool help = false;
};

const Setting* FindFlag(std::string_view flag) {
  for (const Setting& setting : Settings()) {
    if (setting.flag == flag) return &setting;
  }
  return nullptr;
}

// Reads the flags in order; a class because each may consume the argument after it.
class FlagReader {
 public:
  FlagReader(int argc, const char* const* argv, Problems* problems)
      : next_(argv + (argc > 0 ? 1 : 0)), end_(argv + argc), problems_(problems) {}

  GivenFlags Read() {
    while (next_ != end_) ReadFlag(*next_++);
    return std::move(given_);
  }

 private:
  void ReadFlag(std::string_view argument) {
    const size_t equals = argument.find('=');
    const std::string_view flag = argument.substr(0, equals);
    const std::optional<std::string_view> attached =
        equals == std::string_view::npos ? std::nullopt : std::optional(argument.substr(equals + 1));
    if (flag == kHelp || flag == "-h") {
      ReadSwitch(flag, attached, &given_.help);
    } else if (flag == kVersion) {
      ReadSwitch(flag, attached, &given_.version);
    } else if (flag == kValidateOnly) {
      ReadSwitch(flag, attached, &given_.validate_only);
    } else if (flag == kConfig) {
      given_.config = ReadValue(flag, attached, "FILE", /*repeatable=*/false);
    } else if (const Setting* setting = FindFlag(flag)) {
      const auto value = ReadValue(flag, attached, setting->value_name, IsList(*setting) || IsNamed(*setting));
      if (value.has_value()) given_.settings.push_back({setting, *value});
    } else {
      const bool is_flag = flag.substr(0, 1) == "-";
      problems_->Add(absl::StrCat(Printable(flag), is_flag ? ": unknown flag" : ": only flags are expected"));
    }
  }

  void ReadSwitch(std::string_view flag, std::optional<std::string_view> attached, bool* on) {
    if (attached.has_value()) problems_->Add(absl::StrFormat("%s: takes no value", flag));
    *on = true;
  }

  // The flag's value, attached by "=" or in the next argument; nullopt, reported, when there is none to take.
  std::optional<std::string_view> ReadValue(std::string_view flag, std::optional<std::string_view> attached,
                                            std::string_view value_name, bool repeatable) {
    const bool first = seen_.insert(std::string(flag)).second;
    if (!first && !repeatable) problems_->Add(absl::StrFormat("%s: given more than once", flag));
    if (attached.has_value()) return attached;
    if (next_ == end_ || std::string_view(*next_).substr(0, 2) == "--") {
      problems_->Add(absl::StrFormat("%s: needs a value: %s", flag, value_name));
      return std::nullopt;
    }
    return *next_++;
  }

  const char* const* next_;
  const char* const* const end_;
  Problems* const problems_;
  GivenFlags given_;
  absl::flat_hash_set<std::string> seen_;
};

void ApplyFlags(const GivenFlags& given, DaemonOptions* options, Origins* origins, Problems* problems) {
  // The first flag of a list drops what the file says; a name may be given once.
  absl::flat_hash_set<std::string> seen;
  for (const auto& [setting, text] : given.settings) {
    const std::string flag(setting->flag);
    (*origins)[std::string(setting->key)] = flag;
    std::string_view name;
    std::string_view value = text;
    if (IsNamed(*setting)) {
      const size_t equals = text.rfind('=');
      if (equals == std::string_view::npos) {
        problems->Add(absl::StrCat(flag, ": must be NAME=VALUE, got ", Quoted(text)));
        continue;
      }
      name = text.substr(0, equals);
      value = text.substr(equals + 1);
    }
    const bool first = seen.insert(absl::StrCat(flag, "=", std::string(name))).second;
    if (first) {
      ClearList(*setting, options);
    } else if (IsNamed(*setting)) {
      problems->Add(absl::StrCat(flag, ": ", Quoted(name), " is given more than once"));
    }
    const absl::Status set = SetValue(*setting, name, {value, Scalar::Style::kFlag}, options);
    if (!set.ok()) problems->Add(absl::StrCat(flag, ": ", set.message()));
  }
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, const char* const* argv) {
  Problems problems;
  const GivenFlags given = FlagReader(argc, argv, &problems).Read();
  CommandLine command_line;
  if (given.help || given.version) {
    command_line.text = given.help ? HelpText() : "icached " ICACHE_VERSION "\n";
    return command_line;
  }
  command_line.validate_only = given.validate_only;

  Origins origins;
  DaemonOptions* const options = &command_line.options;
  if (given.config.has_value()) ApplyConfigFile(std::string(*given.config), options, &origins, &problems);
  ApplyFlags(given, options, &origins, &problems);
  for (const auto& [key, message] : CheckTogether(*options)) {
    const std::string& origin = origins[std::string(key)];
    problems.Add(absl::StrCat(origin.empty() ? std::string(key) : origin, ": ", message));
  }
  if (absl::Status status = problems.ToStatus(); !status.ok()) return status;
  return command_line;
}

}  // namespace icache
