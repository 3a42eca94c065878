#include "icache/config/command_line.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "config/config_file.h"
#include "config/settings.h"
#include "icache/config/flag_reader.h"
#include "icache/config/problems.h"
#include "icache/config/scalar.h"

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
      "  --validate-only\n      Check flags, config file, policies, grants and TLS files, say what is wrong, exit with "
      "0 or 2.\n"
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

const Setting* FindFlag(std::string_view flag) {
  for (const Setting& setting : Settings()) {
    if (setting.flag == flag) return &setting;
  }
  return nullptr;
}

std::optional<FlagKind> KindOf(std::string_view flag) {
  if (flag == kHelp || flag == "-h" || flag == kVersion || flag == kValidateOnly) return FlagKind{};
  if (flag == kConfig) return FlagKind{.value_name = "FILE"};
  const Setting* setting = FindFlag(flag);
  if (setting == nullptr) return std::nullopt;
  return FlagKind{.value_name = setting->value_name, .repeatable = IsList(*setting) || IsNamed(*setting)};
}

void ApplyFlags(const std::vector<GivenFlag>& given, DaemonOptions* options, Origins* origins, Problems* problems) {
  // The first flag of a list drops what the file says; a name may be given once.
  absl::flat_hash_set<std::string> seen;
  for (const auto& [given_flag, text] : given) {
    const Setting* setting = FindFlag(given_flag);
    if (setting == nullptr) continue;
    const std::string flag(given_flag);
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
    (*origins)[KeyText(*setting, name)] = flag;
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
  CommandLine command_line = ParseCommandLine(argc, argv, &problems);
  if (command_line.text.has_value()) return command_line;
  if (absl::Status status = problems.ToStatus(); !status.ok()) return status;
  return command_line;
}

CommandLine ParseCommandLine(int argc, const char* const* argv, Problems* problems) {
  const std::vector<GivenFlag> given = ReadFlags(argc, argv, KindOf, problems);
  const auto find = [&](std::string_view flag) {
    return std::find_if(given.begin(), given.end(), [&](const GivenFlag& one) { return one.flag == flag; });
  };
  const auto has = [&](std::string_view flag) { return find(flag) != given.end(); };
  CommandLine command_line;
  if (has(kHelp) || has("-h") || has(kVersion)) {
    command_line.text = has(kHelp) || has("-h") ? HelpText() : "icached " ICACHE_VERSION "\n";
    return command_line;
  }
  command_line.validate_only = has(kValidateOnly);

  DaemonOptions* const options = &command_line.options;
  if (has(kConfig)) ApplyConfigFile(std::string(find(kConfig)->value), options, &options->origins, problems);
  ApplyFlags(given, options, &options->origins, problems);
  for (const auto& [key, message] : CheckTogether(*options)) {
    const auto origin = options->origins.find(key);
    problems->Add(absl::StrCat(origin == options->origins.end() ? std::string(key) : origin->second, ": ", message));
  }
  return command_line;
}

}  // namespace icache
