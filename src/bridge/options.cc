#include "bridge/options.h"

#include <arpa/inet.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <limits>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "icache/base/host_port.h"
#include "icache/base/status_macros.h"
#include "icache/base/utf8.h"
#include "icache/config/address.h"
#include "icache/config/file.h"
#include "icache/config/flag_reader.h"
#include "icache/config/problems.h"
#include "icache/config/scalar.h"
#include "icache/config/yaml.h"
#include "icache/telemetry/build_info.h"

namespace icache {
namespace {

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr size_t kMaxEngines = 64;
constexpr size_t kMaxDaemons = 64;
constexpr size_t kMaxNameLength = 512;  // Source: contract/index.md
constexpr int kMaxPort = 65535;
constexpr std::string_view kDnsPrefix = "dns:";
constexpr std::string_view kUnixPrefix = "unix:";
constexpr std::string_view kIpcPrefix = "ipc://";
constexpr std::string_view kTcpPrefix = "tcp://";
constexpr size_t kMaxIpcPathBytes = sizeof(sockaddr_un::sun_path) - 1;

absl::Status Bad(const std::string& message) { return absl::InvalidArgumentError(message); }

// ---- Readers of one value -----------------------------------------------------------------------------------------

template <typename Options>
using Set = std::function<absl::Status(const Scalar& scalar, Options* options)>;
using CheckFunction = absl::Status (*)(std::string_view text);

absl::Status CheckAnything(std::string_view) { return absl::OkStatus(); }

absl::Status CheckName(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameLength || !IsUtf8(name)) {
    return Bad(absl::StrFormat("must be 1 to %d bytes of UTF-8", kMaxNameLength));
  }
  return absl::OkStatus();
}

absl::Status CheckEndpoint(std::string_view endpoint) {
  if (endpoint.starts_with(kIpcPrefix) && endpoint.size() > kIpcPrefix.size()) {
    if (endpoint.size() - kIpcPrefix.size() <= kMaxIpcPathBytes) return absl::OkStatus();
    return Bad(absl::StrFormat("must have a path of at most %d bytes", kMaxIpcPathBytes));
  }
  const std::optional<uint16_t> port = PortOf(endpoint);
  if (!endpoint.starts_with(kTcpPrefix) || !port.has_value()) {
    return Bad(absl::StrCat("must be tcp://HOST:PORT or ipc://PATH, got ", Quoted(endpoint)));
  }
  if (IsBindEndpoint(endpoint)) return absl::OkStatus();
  if (*port == 0) return Bad(absl::StrCat("must have a port to connect to, got ", Quoted(endpoint)));
  return CheckHostPort(endpoint.substr(kTcpPrefix.size()));
}

// Whether `host`, which may be a name or stand in brackets, is the address that stands for all of a host's own.
bool IsWildcard(std::string_view host) {
  const bool v6 = host.starts_with('[');
  const std::string text(v6 ? host.substr(1, host.size() - 2) : host);
  in6_addr address = {};
  return inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), &address) == 1 &&
         IN6_IS_ADDR_UNSPECIFIED(&address);  // what is no IPv6 address fills but a part of it
}

absl::Status CheckDaemon(std::string_view address) {
  if (address.starts_with(kUnixPrefix)) return CheckListenAddress(address);
  const std::string_view host_port = address.starts_with(kDnsPrefix) ? address.substr(kDnsPrefix.size()) : address;
  RETURN_IF_ERROR(CheckHostPort(host_port));
  if (PortOf(host_port) == 0 || IsWildcard(HostOf(host_port))) {
    return Bad(absl::StrCat("must be an address to connect to, got ", Quoted(address)));
  }
  return absl::OkStatus();
}

absl::Status CheckUrl(std::string_view url) {
  if (url.empty()) return absl::OkStatus();
  const size_t scheme_end = url.find("://");
  const std::string_view scheme = url.substr(0, scheme_end);
  if (scheme_end != std::string_view::npos && (scheme == "http" || scheme == "https")) {
    std::string_view authority = url.substr(scheme_end + 3);
    authority = authority.substr(0, authority.find_first_of("/?#"));
    authority.remove_prefix(authority.rfind('@') + 1);  // none: from the first byte on
    if (!authority.empty() && authority.front() != ':') return absl::OkStatus();
  }
  return Bad(absl::StrCat("must be an http:// URL with a host, got ", Quoted(url)));
}

template <typename Options>
Set<Options> Text(std::string Options::*member, CheckFunction check) {
  return [=](const Scalar& scalar, Options* options) {
    ASSIGN_OR_RETURN(std::string value, ReadString(scalar));
    RETURN_IF_ERROR(check(value));
    options->*member = std::move(value);
    return absl::OkStatus();
  };
}

template <typename Options, typename Number>
Set<Options> Integer(Number Options::*member, int64_t min, int64_t max) {
  return [=](const Scalar& scalar, Options* options) {
    ASSIGN_OR_RETURN(const int64_t value, ReadInteger(scalar));
    if (value < min || value > max) return Bad(absl::StrFormat("must be %d to %d, got %d", min, max, value));
    options->*member = static_cast<Number>(value);
    return absl::OkStatus();
  };
}

template <typename Options>
Set<Options> Time(absl::Duration Options::*member, absl::Duration min, absl::Duration max) {
  return [=](const Scalar& scalar, Options* options) {
    ASSIGN_OR_RETURN(const absl::Duration value, ReadDuration(scalar));
    if (value < min || value > max) {
      return Bad(absl::StrCat("must be ", absl::FormatDuration(min), " to ", absl::FormatDuration(max), ", got ",
                              absl::FormatDuration(value)));
    }
    options->*member = value;
    return absl::OkStatus();
  };
}

template <typename Options>
Set<Options> Switch(bool Options::*member) {
  return [=](const Scalar& scalar, Options* options) {
    ASSIGN_OR_RETURN(options->*member, ReadBoolean(scalar));
    return absl::OkStatus();
  };
}

template <typename Options, typename Value>
Set<Options> Choice(Value Options::*member, std::vector<std::pair<std::string_view, Value>> choices) {
  return [=](const Scalar& scalar, Options* options) {
    std::string names;
    for (const auto& [name, value] : choices) {
      if (scalar.text == name) {
        options->*member = value;
        return absl::OkStatus();
      }
      absl::StrAppend(&names, names.empty() ? "" : ", ", std::string(name));
    }
    return Bad(absl::StrCat("must be one of ", names, ", got ", Quoted(scalar.text)));
  };
}

absl::Status AddDaemon(const Scalar& scalar, ReportOptions* options) {
  ASSIGN_OR_RETURN(std::string address, ReadString(scalar));
  RETURN_IF_ERROR(CheckDaemon(address));
  if (options->daemons.size() == kMaxDaemons) return Bad(absl::StrFormat("takes at most %d values", kMaxDaemons));
  options->daemons.push_back(std::move(address));
  return absl::OkStatus();
}

absl::Status AddAdapter(const Scalar& scalar, EngineOptions* options) {
  const size_t equals = scalar.text.find('=');
  int64_t id = 0;
  const std::string_view id_text = scalar.text.substr(0, equals);
  const std::string_view name = equals == std::string_view::npos ? "" : scalar.text.substr(equals + 1);
  if (!absl::SimpleAtoi(absl::string_view(id_text.data(), id_text.size()), &id) || !CheckName(name).ok()) {
    return Bad(absl::StrCat("must be ID=NAME, got ", Quoted(scalar.text)));
  }
  const bool is_new = options->adapters.emplace(id, name).second;
  return is_new ? absl::OkStatus() : Bad(absl::StrFormat("names %d twice", id));
}

// ---- The settings -------------------------------------------------------------------------------------------------

enum class Form { kValue, kSwitch, kList };

template <typename Options>
struct Setting {
  std::string_view key;         // in its group of the file
  std::string_view flag;        // with its two dashes
  std::string_view value_name;  // what --help shows for the flag's value
  std::string_view help;
  Set<Options> set;
  Form form = Form::kValue;
  void (*drop)(Options* options) = nullptr;  // of a list: what an earlier place says, which a later one replaces
};

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

const std::vector<Setting<EngineOptions>>& EngineSettings() {
  using E = EngineOptions;
  static const auto* const settings = new std::vector<Setting<E>>{
      {"kind", "--kind", "vllm|sglang", "The engine. Default vllm.",
       Choice<E, EngineKind>(&E::kind, {{"vllm", EngineKind::kVllm}, {"sglang", EngineKind::kSglang}})},
      {"model", "--model", "NAME", "model_id to report under. Required.", Text(&E::model, CheckName)},
      {"tenant", "--tenant", "NAME", "tenant_id to report under. Default $POD_NAMESPACE.", Text(&E::tenant, CheckName)},
      {"replica", "--replica", "NAME", "replica_id to report as. Default the host's name.",
       Text(&E::replica, CheckName)},
      {"hash_scheme", "--hash-scheme", "NAME", "hash_scheme to report under. Default the engine's kind.",
       Text(&E::hash_scheme, CheckName)},
      {"events", "--events", "ENDPOINT",
       "tcp://HOST:PORT or ipc://PATH of the engine's KV events; bound when HOST is *. Required.",
       Text(&E::events, CheckEndpoint)},
      {"replay", "--replay", "ENDPOINT", "Its replay socket. Default none.", Text(&E::replay, CheckEndpoint)},
      {"topic", "--topic", "PREFIX", "Topics to take. Default all.", Text(&E::topic, CheckAnything)},
      {"ranks", "--ranks", "N", "Data-parallel ranks; rank i is i ports further on. Default 1.",
       Integer(&E::ranks, 1, 256)},
      {"metrics_url", "--metrics-url", "URL", "The engine's /metrics. Default none: no stats.",
       Text(&E::metrics_url, CheckUrl)},
      {"metrics_model", "--metrics-model", "NAME", "The model_name of its metrics. Default the model.",
       Text(&E::metrics_model, CheckName)},
      {"cache_bytes", "--cache-bytes", "N", "Size of its KV cache. Default 0 = unknown.",
       Integer(&E::cache_bytes, 0, kMost)},
      {"max_concurrency", "--max-concurrency", "N", "Requests at which it is full. Default 0 = unknown.",
       Integer(&E::max_concurrency, 0, kMost)},
      {"gone_after", "--gone-after", "N",
       "Failed scrapes in a row, with the event socket lost, after which its claims are cleared. Default 3.",
       Integer(&E::gone_after, 1, 1000)},
      {"block_size", "--block-size", "N", "Tokens of a block; others are dropped. Default 0 = any.",
       Integer(&E::block_size, 0, std::numeric_limits<int32_t>::max())},
      {"adapters", "--adapter", "ID=NAME", "Adapter name of a lora_id that comes without one. Repeatable.", AddAdapter,
       Form::kList, [](E* options) { options->adapters.clear(); }},
      {"gpu_removal", "--gpu-removal", "evict|offload",
       "What a removal from the GPU means: gone, or kept by an external tier as T2. Default evict.",
       Choice<E, GpuRemoval>(&E::gpu_removal, {{"evict", GpuRemoval::kEvict}, {"offload", GpuRemoval::kOffload}})},
      {"max_blocks", "--max-blocks", "N", "Most blocks of one replica that are kept track of. Default 4000000.",
       Integer(&E::max_blocks, 1, 1 << 30)},
  };
  return *settings;
}

const std::vector<Setting<ReportOptions>>& ReportSettings() {
  using R = ReportOptions;
  static const auto* const settings = new std::vector<Setting<R>>{
      {"daemons", "--daemon", "ADDRESS",
       "HOST:PORT or unix:PATH of a daemon, or dns:NAME:PORT for all that NAME resolves to. Repeatable. Required.",
       AddDaemon, Form::kList, [](R* options) { options->daemons.clear(); }},
      {"wire", "--wire", "auto|extended|base",
       "Extension fields that daemons understand. Default auto: they are asked.",
       Choice<R, WireChoice>(
           &R::wire, {{"auto", WireChoice::kAuto}, {"extended", WireChoice::kExtended}, {"base", WireChoice::kBase}})},
      {"tls", "--tls", "", "Connect with TLS.", Switch(&R::tls), Form::kSwitch},
      {"tls_ca_file", "--tls-ca-file", "FILE", "Roots to trust. Default the system's.",
       Text(&R::tls_ca_file, CheckAnything)},
      {"tls_cert_file", "--tls-cert-file", "FILE", "Certificate of this client.",
       Text(&R::tls_cert_file, CheckAnything)},
      {"tls_key_file", "--tls-key-file", "FILE", "Its key.", Text(&R::tls_key_file, CheckAnything)},
      {"tls_server_name", "--tls-server-name", "NAME", "Name expected in the daemons' certificates.",
       Text(&R::tls_server_name, CheckAnything)},
      {"token_file", "--token-file", "FILE", "Bearer token, read at each connection.",
       Text(&R::token_file, CheckAnything)},
      {"batch_interval", "--batch-interval", "DURATION", "Longest wait of a change for others. Default 5ms.",
       Time(&R::batch_interval, absl::Milliseconds(1), absl::Seconds(10))},
      {"batch_blocks", "--batch-blocks", "N", "Changes that are reported at once. Default 4096.",
       Integer(&R::batch_blocks, 1, 1 << 20)},
      {"max_queued_blocks", "--max-queued-blocks", "N",
       "Changes waiting for one daemon and replica; beyond, it is told everything anew. Default 262144.",
       Integer(&R::max_queued_blocks, 1, 1 << 30)},
      {"lease_interval", "--lease-interval", "DURATION", "How often leases are renewed. Default 10s.",
       Time(&R::lease_interval, absl::Milliseconds(100), absl::Hours(1))},
      {"stats_interval", "--stats-interval", "DURATION", "How often the engine's metrics are read. Default 5s.",
       Time(&R::stats_interval, absl::Milliseconds(100), absl::Hours(1))},
      {"ttl", "--ttl", "DURATION", "The daemons' TTL for the tenant. Default 30m.",
       Time(&R::ttl, absl::Seconds(1), absl::Hours(24 * 365))},
      {"resolve_interval", "--resolve-interval", "DURATION", "How often dns: names are resolved. Default 10s.",
       Time(&R::resolve_interval, absl::Milliseconds(100), absl::Hours(1))},
      {"write_timeout", "--write-timeout", "DURATION",
       "A daemon that takes nothing for so long is cut off. Default 10s.",
       Time(&R::write_timeout, absl::Milliseconds(100), absl::Hours(1))},
      {"clear_on_exit", "--clear-on-exit", "", "Clear what was reported when told to end.", Switch(&R::clear_on_exit),
       Form::kSwitch},
  };
  return *settings;
}

const std::vector<Setting<BridgeOptions>>& ProcessSettings() {
  using B = BridgeOptions;
  static const auto* const settings = new std::vector<Setting<B>>{
      {"http_address", "--http-address", "HOST:PORT",
       "Where /healthz, /readyz and /metrics are served. Default 0.0.0.0:8081.", Text(&B::http_address, CheckHostPort)},
      {"log_level", "--log-level", "LEVEL", "debug, info, warn or error. Default info.",
       Choice<B, LogSeverity>(&B::log_level, {{"debug", LogSeverity::kDebug},
                                              {"info", LogSeverity::kInfo},
                                              {"warn", LogSeverity::kWarn},
                                              {"error", LogSeverity::kError}})},
      {"log_json", "--log-json", "", "Log JSON objects in place of text.", Switch(&B::log_json), Form::kSwitch},
  };
  return *settings;
}

template <typename Options, typename Key>
const Setting<Options>* Find(const std::vector<Setting<Options>>& settings, Key Setting<Options>::*key,
                             std::string_view wanted) {
  for (const Setting<Options>& setting : settings) {
    if (setting.*key == wanted) return &setting;
  }
  return nullptr;
}

// ---- The file -----------------------------------------------------------------------------------------------------

// Keys and flags whose value is bad, which has been said: they are not missing. A key is its path in the file.
using BadKeys = std::set<std::string>;

class FileReader {
 public:
  FileReader(const FileProblems& problems, BridgeOptions* options, EngineOptions* defaults,
             std::vector<const YamlNode*>* engines, BadKeys* bad_keys)
      : problems_(problems), options_(options), defaults_(defaults), engines_(engines), bad_keys_(bad_keys) {}

  void Read(const YamlNode& document) {
    ForEachField(document, "", [&](const YamlNode::Field& field) {
      if (field.key == "engine") {
        ReadGroup(*field.value, "engine", EngineSettings(), defaults_);
      } else if (field.key == "engines") {
        if (field.value->kind != YamlNode::Kind::kSequence || field.value->items.empty() ||
            field.value->items.size() > kMaxEngines) {
          problems_.Add(field.value->place, "engines",
                        absl::StrFormat("must be a list of 1 to %d engines", kMaxEngines));
          return;
        }
        *engines_ = field.value->items;
      } else if (field.key == "report") {
        ReadGroup(*field.value, "report", ReportSettings(), &options_->report);
      } else if (const auto* setting = Find(ProcessSettings(), &Setting<BridgeOptions>::key, field.key)) {
        ReadSetting(*setting, *field.value, std::string(field.key), options_);
      } else {
        problems_.Add(field.place, Printable(field.key), "unknown key");
      }
    });
  }

  template <typename Options>
  void ReadGroup(const YamlNode& node, const std::string& path, const std::vector<Setting<Options>>& settings,
                 Options* options) {
    ForEachField(node, path, [&](const YamlNode::Field& field) {
      const std::string field_path = absl::StrCat(path, ".", Printable(field.key));
      if (const auto* setting = Find(settings, &Setting<Options>::key, field.key)) {
        ReadSetting(*setting, *field.value, field_path, options);
      } else {
        problems_.Add(field.place, field_path, "unknown key");
      }
    });
  }

 private:
  template <typename Visit>
  void ForEachField(const YamlNode& node, const std::string& path, Visit visit) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMapping) {
      problems_.Add(node.place, path, absl::StrCat("must be a mapping, got ", KindName(node.kind)));
      return;
    }
    for (const YamlNode::Field& field : node.fields) visit(field);
  }

  template <typename Options>
  void ReadSetting(const Setting<Options>& setting, const YamlNode& node, const std::string& path, Options* options) {
    const auto read = [&](const YamlNode& value, const std::string& value_path) {
      const absl::StatusOr<Scalar> scalar = ScalarOf(value);
      const absl::Status set = scalar.ok() ? setting.set(*scalar, options) : scalar.status();
      if (set.ok()) return;
      problems_.Add(value.place, value_path, std::string(set.message()));
      bad_keys_->insert(path);
    };
    if (setting.form == Form::kList) setting.drop(options);
    if (setting.form != Form::kList || node.kind != YamlNode::Kind::kSequence) return read(node, path);
    for (size_t i = 0; i < node.items.size(); ++i) read(*node.items[i], absl::StrCat(path, "[", i, "]"));
  }

  const FileProblems& problems_;
  BridgeOptions* const options_;
  EngineOptions* const defaults_;
  std::vector<const YamlNode*>* const engines_;
  BadKeys* const bad_keys_;
};

// ---- The command line ---------------------------------------------------------------------------------------------

constexpr std::string_view kConfig = "--config";
constexpr std::string_view kValidateOnly = "--validate-only";
constexpr std::string_view kVersion = "--version";
constexpr std::string_view kHelp = "--help";

template <typename Options>
void AppendHelp(const char* title, const std::vector<Setting<Options>>& settings, std::string* text) {
  absl::StrAppend(text, title);
  for (const Setting<Options>& setting : settings) {
    absl::StrAppendFormat(text, "  %s%s%s\n      %s\n", setting.flag, setting.value_name.empty() ? "" : " ",
                          setting.value_name, setting.help);
  }
}

std::string HelpText() {
  std::string text =
      "Usage: icache-bridge [--config FILE] [--FLAG VALUE]...\n\n"
      "Reports the KV-cache blocks of an engine to icached. A flag wins over the config file. Durations are written as "
      "in\n"
      "30m, 1h30m or 250ms. docs/engines.md tells what to set in the engine.\n\n"
      "  --config FILE\n      YAML file; the keys are the flags' names, in the groups engine:, engines: and report:.\n"
      "  --validate-only\n      Check the flags and the config file, then exit with 0 or 2.\n"
      "  --version\n      Print the version and exit.\n"
      "  --help\n      Print this text and exit.\n";
  AppendHelp("\nThe engine:\n", EngineSettings(), &text);
  AppendHelp("\nReporting:\n", ReportSettings(), &text);
  AppendHelp("\nThe bridge itself:\n", ProcessSettings(), &text);
  return text;
}

template <typename Options>
std::optional<FlagKind> KindIn(const std::vector<Setting<Options>>& settings, std::string_view flag) {
  const Setting<Options>* setting = Find(settings, &Setting<Options>::flag, flag);
  if (setting == nullptr) return std::nullopt;
  return FlagKind{setting->value_name, setting->form == Form::kList};
}

std::optional<FlagKind> KindOf(std::string_view flag) {
  if (flag == kHelp || flag == kVersion || flag == kValidateOnly) return FlagKind{};
  if (flag == kConfig) return FlagKind{.value_name = "FILE"};
  if (const auto kind = KindIn(EngineSettings(), flag)) return kind;
  if (const auto kind = KindIn(ReportSettings(), flag)) return kind;
  return KindIn(ProcessSettings(), flag);
}

// Applies the flags that are among `settings`.
template <typename Options>
void ApplyFlags(const std::vector<GivenFlag>& given, const std::vector<Setting<Options>>& settings, Options* options,
                Problems* problems) {
  std::set<std::string_view> lists;  // begun
  for (const GivenFlag& flag : given) {
    const Setting<Options>* setting = Find(settings, &Setting<Options>::flag, flag.flag);
    if (setting == nullptr) continue;
    if (setting->form == Form::kList && lists.insert(setting->flag).second) setting->drop(options);
    const std::string_view value = setting->form == Form::kSwitch ? "true" : flag.value;
    const absl::Status set = setting->set({value, Scalar::Style::kFlag}, options);
    if (!set.ok()) problems->Add(absl::StrCat(std::string(flag.flag), ": ", set.message()));
  }
}

// The flags that are named on the command line, whether or not they have a value.
BadKeys NamedFlags(int argc, const char* const* argv) {
  BadKeys flags;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    flags.emplace(argument.substr(0, argument.find('=')));
  }
  return flags;
}

// Whether one of the sockets of `ranks` ranks from `endpoint` on is one of those of `other_ranks` from `other` on.
bool Collide(const std::string& endpoint, int32_t ranks, const std::string& other, int32_t other_ranks) {
  const bool both_tcp = endpoint.starts_with(kTcpPrefix) && other.starts_with(kTcpPrefix);
  if (!both_tcp) return endpoint == other;
  if (HostOf(endpoint) != HostOf(other)) return false;
  const int port = PortOf(endpoint).value_or(0);
  const int other_port = PortOf(other).value_or(0);
  if (port == 0 || other_port == 0) return false;  // whichever is free
  return port < other_port + other_ranks && other_port < port + ranks;
}

// Whether both would hear the same engine. One endpoint may carry several, told apart by their topics.
bool HearTheSame(const EngineOptions& engine, const EngineOptions& other) {
  if (engine.events.empty() || !Collide(engine.events, engine.ranks, other.events, other.ranks)) return false;
  return IsBindEndpoint(engine.events) || engine.topic.starts_with(other.topic) ||
         other.topic.starts_with(engine.topic);
}

// `item` is the engine's path in the file, "" for the one that flags describe.
void CheckEngine(const std::string& item, EngineOptions* engine, const BridgeEnvironment& environment,
                 const BadKeys& bad_keys, Problems* problems) {
  const auto problem = [&](std::string_view key, std::string_view what) {
    const Setting<EngineOptions>& setting = *Find(EngineSettings(), &Setting<EngineOptions>::key, key);
    problems->Add(item.empty() ? absl::StrCat(std::string(setting.flag), ": ", std::string(what))
                               : absl::StrCat(item, ".", std::string(key), ": ", std::string(what)));
  };
  const auto require = [&](const std::string& value, std::string_view key, std::string_view what) {
    const Setting<EngineOptions>& setting = *Find(EngineSettings(), &Setting<EngineOptions>::key, key);
    const bool is_bad = bad_keys.contains(std::string(setting.flag)) ||
                        bad_keys.contains(absl::StrCat("engine.", std::string(key))) ||
                        bad_keys.contains(absl::StrCat(item, ".", std::string(key)));
    if (value.empty() && !is_bad) problem(key, what);
  };
  if (engine->tenant.empty()) engine->tenant = environment.pod_namespace;
  if (engine->replica.empty()) engine->replica = environment.host_name;
  if (engine->hash_scheme.empty()) engine->hash_scheme = std::string(EngineKindName(engine->kind));
  if (engine->metrics_model.empty()) engine->metrics_model = engine->model;
  require(engine->model, "model", "is required");
  require(engine->events, "events", "is required");
  require(engine->tenant, "tenant", "is required, for POD_NAMESPACE is not set");
  require(engine->replica, "replica", "is required, for the host has no name");
  if (IsBindEndpoint(engine->replay)) {
    problem("replay", "must name a host");
  } else if (!engine->replay.empty() && Collide(engine->events, engine->ranks, engine->replay, engine->ranks)) {
    problem("replay", engine->ranks == 1 ? "must not be the endpoint of the events"
                                         : "must not share ports with the events, as each rank has one of both");
  }
  for (const auto& [key, endpoint] : {std::pair("events", engine->events), std::pair("replay", engine->replay)}) {
    if (engine->ranks == 1 || endpoint.empty()) continue;
    const int port = PortOf(endpoint).value_or(0);
    if (endpoint.starts_with(kTcpPrefix) && port > 0 && port + engine->ranks - 1 <= kMaxPort) continue;
    problem(key, absl::StrFormat("must have a TCP port for each of %d ranks", engine->ranks));
  }
}

// Whether `replica` is what a rank of the engine's would be called.
bool IsRankOf(std::string_view replica, const EngineOptions& engine) {
  if (engine.ranks == 1 || !replica.starts_with(engine.replica + "@")) return false;
  const std::string_view rank = replica.substr(engine.replica.size() + 1);
  return !rank.empty() && rank.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

BridgeEnvironment BridgeEnvironment::OfProcess() {
  BridgeEnvironment environment;
  char name[256] = "";
  if (gethostname(name, sizeof(name) - 1) == 0) environment.host_name = name;
  if (const char* pod_namespace = std::getenv("POD_NAMESPACE")) environment.pod_namespace = pod_namespace;
  return environment;
}

absl::StatusOr<BridgeCommandLine> ParseBridgeCommandLine(int argc, const char* const* argv,
                                                         const BridgeEnvironment& environment) {
  Problems problems;
  const std::vector<GivenFlag> given = ReadFlags(argc, argv, KindOf, &problems);
  BridgeCommandLine command_line;
  std::optional<std::string> config;
  for (const GivenFlag& flag : given) {
    if (flag.flag == kHelp) command_line.text = HelpText();
    if (flag.flag == kVersion) command_line.text = absl::StrCat("icache-bridge ", CompiledBuild().version, "\n");
    if (flag.flag == kValidateOnly) command_line.validate_only = true;
    if (flag.flag == kConfig) config = std::string(flag.value);
  }
  if (command_line.text.has_value()) return command_line;

  BridgeOptions& options = command_line.options;
  EngineOptions defaults;
  BadKeys bad_keys = NamedFlags(argc, argv);
  if (config.has_value()) {
    const absl::StatusOr<std::string> text = ReadFile(*config, kMaxConfigBytes);
    if (!text.ok()) return Bad(absl::StrCat(*config, ": ", text.status().message()));
    const FileProblems file_problems(*config, &problems);
    int documents = 0;
    ReadYaml(*text, file_problems, [&](const YamlNode& document) {
      if (++documents > 1) {
        file_problems.Add(document.place, "", "must be the only document of the file");
        return;
      }
      std::vector<const YamlNode*> engines;
      FileReader reader(file_problems, &options, &defaults, &engines, &bad_keys);
      reader.Read(document);
      ApplyFlags(given, EngineSettings(), &defaults, &problems);
      for (size_t i = 0; i < engines.size(); ++i) {
        reader.ReadGroup(*engines[i], absl::StrCat("engines[", i, "]"), EngineSettings(),
                         &options.engines.emplace_back(defaults));
      }
    });
    if (documents == 0) ApplyFlags(given, EngineSettings(), &defaults, &problems);
  } else {
    ApplyFlags(given, EngineSettings(), &defaults, &problems);
  }
  const bool has_list = !options.engines.empty();
  if (!has_list) options.engines.push_back(defaults);
  ApplyFlags(given, ReportSettings(), &options.report, &problems);
  ApplyFlags(given, ProcessSettings(), &options, &problems);

  std::set<std::tuple<std::string, std::string, std::string>> replicas;
  for (size_t i = 0; i < options.engines.size(); ++i) {
    EngineOptions& engine = options.engines[i];
    const std::string item = has_list ? absl::StrCat("engines[", i, "]") : "";
    CheckEngine(item, &engine, environment, bad_keys, &problems);
    if (!replicas.emplace(engine.tenant, engine.model, engine.replica).second) {
      problems.Add(absl::StrCat(item, ".replica: ", Quoted(engine.replica), " is taken by another engine"));
    }
  }
  for (size_t i = 0; i < options.engines.size(); ++i) {
    const auto end = options.engines.begin() + static_cast<ptrdiff_t>(i);
    const bool taken = std::any_of(options.engines.begin(), end,
                                   [&](const EngineOptions& other) { return HearTheSame(options.engines[i], other); });
    if (taken) problems.Add(absl::StrCat("engines[", i, "].events: is another engine's, whose topics are these, too"));
  }
  // Nor may one have the name of another's rank.
  for (size_t i = 0; i < options.engines.size(); ++i) {
    for (const EngineOptions& other : options.engines) {
      const EngineOptions& engine = options.engines[i];
      if (engine.tenant != other.tenant || engine.model != other.model || !IsRankOf(engine.replica, other)) continue;
      problems.Add(absl::StrCat("engines[", i, "].replica: ", Quoted(engine.replica), " is the name of a rank of ",
                                Quoted(other.replica)));
    }
  }
  const ReportOptions& report = options.report;
  if (report.daemons.empty() && !bad_keys.contains("--daemon") && !bad_keys.contains("report.daemons")) {
    problems.Add("--daemon: at least one is required");
  }
  if (report.tls_cert_file.empty() != report.tls_key_file.empty()) {
    problems.Add(report.tls_key_file.empty() ? "--tls-cert-file: needs --tls-key-file"
                                             : "--tls-key-file: needs --tls-cert-file");
  }
  for (const auto& [flag, value] :
       {std::pair("--tls-ca-file", &report.tls_ca_file), std::pair("--tls-cert-file", &report.tls_cert_file),
        std::pair("--tls-key-file", &report.tls_key_file), std::pair("--tls-server-name", &report.tls_server_name)}) {
    if (!report.tls && !value->empty()) problems.Add(absl::StrCat(flag, ": needs --tls"));
  }
  RETURN_IF_ERROR(problems.ToStatus());
  return command_line;
}

std::string EndpointOfRank(const std::string& endpoint, int32_t rank) {
  if (rank == 0) return endpoint;
  return absl::StrCat(std::string(HostOf(endpoint)), ":", PortOf(endpoint).value_or(0) + rank);
}

bool IsBindEndpoint(std::string_view endpoint) { return endpoint.starts_with("tcp://*:"); }

}  // namespace icache
