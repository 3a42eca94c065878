// Settings: which daemon icachectl talks to, how, and about whom. Each has a flag, an environment variable and a key of
// the config file; the first of these that is given wins.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

namespace icache {

enum class OutputFormat { kTable, kJson, kYaml };

struct Settings {
  std::string address = "127.0.0.1:9090";       // gRPC: HOST:PORT or unix:/path
  std::string http_address = "127.0.0.1:8080";  // HOST:PORT or https://HOST:PORT of /metrics
  std::string tls_ca;                           // file of certificates that sign the daemon's, or "system"; "" = no TLS
  std::string tls_cert;                         // file of the client's own certificate; "" = none
  std::string tls_key;                          // file of its key
  std::string tls_server_name;                  // name that the daemon's certificate must have; "" = the address's host
  std::string token_file;                       // file of the bearer token; "" = none
  std::string tenant;
  std::string model;
  std::string scheme = "vllm";
  std::string adapter;
  std::string timeout = "5s";    // of one call
  std::string output = "table";  // "table", "json" or "yaml"

  // Both have been checked by ResolveSettings.
  absl::Duration Timeout() const;
  OutputFormat Output() const;
};

// What an HTTP address over TLS begins with.
inline constexpr std::string_view kHttps = "https://";

struct SettingKey {
  std::string_view key;  // in the file
  std::string_view flag;
  std::string_view variable;  // of the environment
  std::string_view value_name;
  std::string_view help;
  std::string Settings::*slot;
};

// All of them, in the order in which they are shown.
absl::Span<const SettingKey> SettingKeys();

// What was given for one setting; nullopt = nothing.
using GivenSetting = std::optional<std::string>;

// The settings from the flags (`given`, in the order of SettingKeys()), the environment, the config file and the
// defaults. `config_path` is the file that a flag names; else ICACHECTL_CONFIG does, else it is icachectl.yaml in
// $XDG_CONFIG_HOME or ~/.config, which may be missing.
// Errors: InvalidArgument with every problem, one a line.
absl::StatusOr<Settings> ResolveSettings(absl::Span<const GivenSetting> given, const GivenSetting& config_path);

// InvalidArgument, naming the ways to set it, when the setting in `slot` is empty.
absl::Status RequireSetting(const Settings& settings, std::string Settings::*slot);

}  // namespace icache
