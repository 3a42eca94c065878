#include "ctl/settings.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "icache/config/address.h"
#include "icache/config/file.h"
#include "icache/config/problems.h"
#include "icache/config/yaml.h"

namespace icache {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;

constexpr SettingKey kKeys[] = {
    {"address", "--address", "ICACHECTL_ADDRESS", "HOST:PORT", "The daemon's gRPC address, or unix:/path",
     &Settings::address},
    {"http_address", "--http-address", "ICACHECTL_HTTP_ADDRESS", "HOST:PORT",
     "Its HTTP address, for top; https://HOST:PORT over TLS", &Settings::http_address},
    {"tls_ca", "--tls-ca", "ICACHECTL_TLS_CA", "FILE",
     "Talk TLS to a daemon whose certificate these sign; 'system' = this host's authorities", &Settings::tls_ca},
    {"tls_cert", "--tls-cert", "ICACHECTL_TLS_CERT", "FILE", "Own certificate, for mutual TLS", &Settings::tls_cert},
    {"tls_key", "--tls-key", "ICACHECTL_TLS_KEY", "FILE", "Key of the own certificate", &Settings::tls_key},
    {"tls_server_name", "--tls-server-name", "ICACHECTL_TLS_SERVER_NAME", "NAME",
     "Name in the daemon's certificate, if it is not the address's host", &Settings::tls_server_name},
    {"token_file", "--token-file", "ICACHECTL_TOKEN_FILE", "FILE", "Bearer token to show", &Settings::token_file},
    {"tenant", "--tenant", "ICACHECTL_TENANT", "NAME", "tenant_id to ask or report under", &Settings::tenant},
    {"model", "--model", "ICACHECTL_MODEL", "NAME", "model_id likewise", &Settings::model},
    {"scheme", "--scheme", "ICACHECTL_SCHEME", "NAME", "hash_scheme likewise", &Settings::scheme},
    {"adapter", "--adapter", "ICACHECTL_ADAPTER", "NAME", "adapter_id likewise; empty = the base model",
     &Settings::adapter},
    {"timeout", "--timeout", "ICACHECTL_TIMEOUT", "DURATION", "How long one call may take", &Settings::timeout},
    {"output", "-o,--output", "ICACHECTL_OUTPUT", "FORMAT", "table, json or yaml", &Settings::output},
};

// The file that is read, and whether it may be missing.
struct ConfigPath {
  std::string path;
  bool optional = false;
};

std::string Environment(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value == nullptr ? "" : value;
}

ConfigPath FindConfig(const GivenSetting& given) {
  if (given.has_value()) return {*given};
  if (std::string path = Environment("ICACHECTL_CONFIG"); !path.empty()) return {path};
  std::string folder = Environment("XDG_CONFIG_HOME");
  if (folder.empty()) {
    folder = Environment("HOME");
    if (folder.empty()) return {"", true};
    folder += "/.config";
  }
  return {folder + "/icachectl.yaml", true};
}

void ApplyConfig(const ConfigPath& config, Settings* settings, Problems* problems) {
  std::error_code unreachable;  // is as good as missing
  if (config.path.empty() || (config.optional && !std::filesystem::exists(config.path, unreachable))) return;
  const absl::StatusOr<std::string> text = ReadFile(config.path, kMaxConfigBytes);
  if (!text.ok()) {
    problems->Add(fmt::format("{}: {}", config.path, std::string(text.status().message())));
    return;
  }
  const FileProblems in_file(config.path, problems);
  ReadYaml(*text, in_file, [&](const YamlNode& document) {
    if (document.kind == YamlNode::Kind::kNull) return;
    if (document.kind != YamlNode::Kind::kMapping) {
      in_file.Add(document.place, "", fmt::format("must be a mapping, got {}", KindName(document.kind)));
      return;
    }
    for (const YamlNode::Field& field : document.fields) {
      const SettingKey* const key = [&]() -> const SettingKey* {
        for (const SettingKey& each : kKeys) {
          if (each.key == field.key) return &each;
        }
        return nullptr;
      }();
      if (key == nullptr) {
        in_file.Add(field.place, Printable(field.key), "unknown key");
        continue;
      }
      const absl::StatusOr<Scalar> scalar = ScalarOf(*field.value);
      const absl::StatusOr<std::string> value = scalar.ok() ? ReadString(*scalar) : scalar.status();
      if (value.ok()) {
        settings->*key->slot = *value;
      } else {
        in_file.Add(field.place, field.key, std::string(value.status().message()));
      }
    }
  });
}

void Check(const Settings& settings, Problems* problems) {
  if (const absl::Status status = CheckListenAddress(settings.address); !status.ok()) {
    problems->Add(fmt::format("address: {}", std::string(status.message())));
  }
  std::string_view http_address = settings.http_address;
  if (http_address.substr(0, kHttps.size()) == kHttps) http_address.remove_prefix(kHttps.size());
  if (const absl::Status status = CheckHostPort(http_address); !status.ok()) {
    problems->Add(fmt::format("http_address: {}", std::string(status.message())));
  }
  absl::Duration timeout;
  if (!absl::ParseDuration(settings.timeout, &timeout) || timeout < absl::Milliseconds(1) || timeout > absl::Hours(1)) {
    problems->Add(fmt::format("timeout: must be a duration from 1ms to 1h, got {}", Quoted(settings.timeout)));
  }
  if (settings.output != "table" && settings.output != "json" && settings.output != "yaml") {
    problems->Add(fmt::format("output: must be table, json or yaml, got {}", Quoted(settings.output)));
  }
  if (settings.tls_cert.empty() != settings.tls_key.empty()) {
    problems->Add("tls_cert, tls_key: one needs the other");
  }
  if (settings.tls_ca.empty() && (!settings.tls_cert.empty() || !settings.tls_server_name.empty())) {
    problems->Add("tls_ca: must be set for TLS; 'system' takes this host's authorities");
  }
}

}  // namespace

absl::Duration Settings::Timeout() const {
  absl::Duration duration = absl::Seconds(5);
  (void)absl::ParseDuration(timeout, &duration);
  return duration;
}

OutputFormat Settings::Output() const {
  if (output == "json") return OutputFormat::kJson;
  return output == "yaml" ? OutputFormat::kYaml : OutputFormat::kTable;
}

absl::Span<const SettingKey> SettingKeys() { return kKeys; }

absl::StatusOr<Settings> ResolveSettings(absl::Span<const GivenSetting> given, const GivenSetting& config_path) {
  Settings settings;
  Problems problems;
  ApplyConfig(FindConfig(config_path), &settings, &problems);
  for (size_t i = 0; i < given.size(); ++i) {
    const SettingKey& key = kKeys[i];
    const char* const variable = std::getenv(std::string(key.variable).c_str());
    if (given[i].has_value()) {
      settings.*key.slot = *given[i];
    } else if (variable != nullptr) {
      settings.*key.slot = variable;
    }
  }
  Check(settings, &problems);
  if (absl::Status status = problems.ToStatus(); !status.ok()) return status;
  return settings;
}

absl::Status RequireSetting(const Settings& settings, std::string Settings::*slot) {
  if (!(settings.*slot).empty()) return absl::OkStatus();
  for (const SettingKey& key : kKeys) {
    if (key.slot != slot) continue;
    return absl::InvalidArgumentError(
        fmt::format("needs {} {} (or {}, or {}: in the config file)", key.flag, key.value_name, key.variable, key.key));
  }
  return absl::OkStatus();
}

}  // namespace icache
