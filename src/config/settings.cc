#include "config/settings.h"

#include <array>
#include <limits>
#include <map>
#include <type_traits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/flat_hash_map.h"
#include "absl/numeric/bits.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "config/go_duration.h"
#include "icache/base/status_macros.h"
#include "icache/config/address.h"
#include "icache/config/problems.h"
#include "icache/index/observation.h"

namespace icache {
namespace {

// ---- Vocabulary of the table --------------------------------------------------------------------------------------

constexpr Between<int64_t> AtLeast(int64_t min) { return {min, std::nullopt}; }
constexpr Between<int64_t> From(int64_t min, int64_t max) { return {min, max}; }
constexpr Between<double> kAnyWeight = {0.0, std::nullopt};
constexpr absl::Duration kShortest = absl::Nanoseconds(1);  // the range reads "> 0"
// The RPC library counts its times in int32 milliseconds.
constexpr absl::Duration kLongestRpcTime = absl::Hours(576);
// A change, once noticed, has to settle and to load, and must be in force within 1 s. Source: contract/policy.md.
constexpr absl::Duration kLongestPoll = absl::Milliseconds(500);

constexpr Between<absl::Duration> Lasting(absl::Duration min, absl::Duration max = kMaxGoDuration) {
  return {min, max == kMaxGoDuration ? std::nullopt : std::optional(max)};
}

constexpr TextRule kHostPort = {"HOST:PORT, port 0 to 65535", CheckHostPort};
constexpr TextRule kListenAddress = {"HOST:PORT, port 0 to 65535, or unix:PATH of at most 107 bytes; 1 to 16 of them",
                                     CheckListenAddress};

// The slot that holds a member of DaemonOptions.
#define ICACHE_SLOT(member) [](DaemonOptions& options) -> Slot { return &options.member; }

const Setting kSettings[] = {
    // Listening
    {"grpc.address", "--grpc-address", "HOST:PORT", "", kListenAddress,
     "Where gRPC listens: HOST:PORT or unix:PATH. A list in the file, repeatable as a flag. Port 0 takes a free port.",
     ICACHE_SLOT(grpc_addresses)},
    {"grpc.lookup_threads", "--grpc-lookup-threads", "N", "threads", From(0, 256),
     "Threads that answer lookups. 0 = one per core.", ICACHE_SLOT(lookup_threads)},
    {"grpc.ingest_threads", "--grpc-ingest-threads", "N", "threads", From(1, 64), "Threads that take observations in.",
     ICACHE_SLOT(ingest_threads)},
    {"grpc.keepalive_time", "--grpc-keepalive-time", "DURATION", "duration", Lasting(absl::Seconds(1), kLongestRpcTime),
     "Idle time after which the server pings a client.", ICACHE_SLOT(keepalive_time)},
    {"grpc.keepalive_timeout", "--grpc-keepalive-timeout", "DURATION", "duration",
     Lasting(absl::Seconds(1), kLongestRpcTime), "A connection whose ping stays unanswered for so long is closed.",
     ICACHE_SLOT(keepalive_timeout)},
    {"grpc.min_ping_interval", "--grpc-min-ping-interval", "DURATION", "duration",
     Lasting(absl::Milliseconds(10), kLongestRpcTime), "Clients that ping more often than this are disconnected.",
     ICACHE_SLOT(min_ping_interval)},
    {"grpc.max_connection_age", "--grpc-max-connection-age", "DURATION", "duration",
     Lasting(absl::ZeroDuration(), kLongestRpcTime),
     "Connections are closed at this age, so that clients spread anew after a scale-up. 0 = never.",
     ICACHE_SLOT(max_connection_age)},
    {"grpc.max_connection_age_grace", "--grpc-max-connection-age-grace", "DURATION", "duration",
     Lasting(absl::ZeroDuration(), kLongestRpcTime), "What calls in flight on such a connection still have.",
     ICACHE_SLOT(max_connection_age_grace)},
    {"grpc.tls_cert_file", "--grpc-tls-cert-file", "FILE", "", std::monostate(),
     "Certificate chain (PEM) with which gRPC is served over TLS. Read again when it changes.",
     ICACHE_SLOT(grpc_tls.certificate)},
    {"grpc.tls_key_file", "--grpc-tls-key-file", "FILE", "", std::monostate(), "Key of that certificate (PEM).",
     ICACHE_SLOT(grpc_tls.key)},
    {"grpc.tls_client_ca_file", "--grpc-tls-client-ca-file", "FILE", "", std::monostate(),
     "Certificates (PEM) that sign those of clients: then each client must have one.", ICACHE_SLOT(grpc_tls.client_ca)},
    {"http.address", "--http-address", "HOST:PORT", "", kHostPort,
     "Where /healthz, /readyz, /metrics and the pages below /debug/ are served. Port 0 takes a free port.",
     ICACHE_SLOT(http_address)},
    {"http.tls_cert_file", "--http-tls-cert-file", "FILE", "", std::monostate(),
     "Certificate chain (PEM) with which HTTP is served over TLS. Read again when it changes.",
     ICACHE_SLOT(http_tls.certificate)},
    {"http.tls_key_file", "--http-tls-key-file", "FILE", "", std::monostate(), "Key of that certificate (PEM).",
     ICACHE_SLOT(http_tls.key)},
    {"http.tls_client_ca_file", "--http-tls-client-ca-file", "FILE", "", std::monostate(),
     "Certificates (PEM) that sign those of clients, who then must have one for all but /healthz, /readyz and "
     "/metrics.",
     ICACHE_SLOT(http_tls.client_ca)},

    // Who may call
    {"access.path", "--access-path", "PATH", "", std::monostate(),
     "File of grants, or folder of *.yaml and *.yml files: who may call what. Empty = everybody may do everything.",
     ICACHE_SLOT(access_path)},

    // Policies
    {"policy.path", "--policy-path", "PATH", "", std::monostate(),
     "File of policies, or folder of *.yaml and *.yml files. Empty = every tenant has the defaults.",
     ICACHE_SLOT(policy_path)},
    {"policy.poll_interval", "--policy-poll-interval", "DURATION", "duration",
     Lasting(absl::Milliseconds(10), kLongestPoll),
     "How often the files of policies, grants and TLS are looked at for changes.", ICACHE_SLOT(policy_poll_interval)},

    // Engines
    {"engine.block_size", "--engine-block-size", "N", "tokens", From(1, std::numeric_limits<int32_t>::max()),
     "Tokens per KV-cache block of the engines. Token ids are fingerprinted in blocks of this size.",
     ICACHE_SLOT(router.block_size)},
    {"models.<name>.block_size", "--model-block-size", "NAME=N", "tokens", From(1, std::numeric_limits<int32_t>::max()),
     "Block size of one model, where it differs from engine.block_size. Repeatable as a flag.",
     ICACHE_SLOT(router.block_size_by_model)},

    // Index
    {"index.max_entries", "--max-entries", "N", "entries", AtLeast(0),
     "Most entries (prefix and replica) that the index holds. 0 = no cap.", ICACHE_SLOT(index.max_entries)},
    {"index.max_memory_bytes", "--max-memory-bytes", "N", "bytes", AtLeast(0),
     "Most memory that the index accounts for. 0 = no cap.", ICACHE_SLOT(index.max_memory_bytes)},
    {"index.max_idle_replicas", "--max-idle-replicas", "N", "replicas", AtLeast(1),
     "Replicas that are kept for their stats or fence alone, over all tenants; with index.max_memory_bytes, as many at "
     "most as fit in an eighth of it.",
     ICACHE_SLOT(index.max_idle_replicas)},
    {"index.hot_threshold", "--hot-threshold", "N", "lookups", From(1, std::numeric_limits<int32_t>::max()),
     "Access count from which GetCacheState counts a prefix as hot.", ICACHE_SLOT(index.hot_threshold)},
    {"index.shard_count", "--shard-count", "N", "shards", PowerOfTwo{1024},
     "Parts of the index that are locked apart from one another.", ICACHE_SLOT(index.shard_count)},
    {"index.default_ttl", "--default-ttl", "DURATION", "duration", Lasting(kShortest),
     "Age at which an entry is dead, for tenants whose policy has no evictionTTL.", ICACHE_SLOT(default_ttl)},
    {"index.sweep_interval", "--sweep-interval", "DURATION", "duration",
     Lasting(absl::Milliseconds(10), absl::Hours(24)),
     "How often dead entries are freed; the first time one interval after the start.", ICACHE_SLOT(sweep_interval)},

    // Ranker
    {"ranker.pressure_weight", "--ranker-pressure-weight", "X", "ratio", kAnyWeight,
     "How much a replica's pressure lowers its score. 0 = not at all.", ICACHE_SLOT(router.ranker.pressure_weight)},
    {"ranker.slo_tight_ttft_ms", "--ranker-slo-tight-ttft-ms", "N", "milliseconds",
     From(0, std::numeric_limits<int32_t>::max()),
     "A request whose time-to-first-token budget is below this is tight. 0 = none is.",
     ICACHE_SLOT(router.ranker.slo_tight_ttft_ms)},
    {"ranker.slo_tight_bias", "--ranker-slo-tight-bias", "X", "ratio", kAnyWeight,
     "How much a tight request prefers fresh replicas. 0 = not at all.", ICACHE_SLOT(router.ranker.slo_tight_bias)},
    {"ranker.tenant_hot_min_hit_rate", "--ranker-tenant-hot-min-hit-rate", "X", "ratio", kAnyWeight,
     "Least hit rate of a TENANT_HOT replica. 0 = any.", ICACHE_SLOT(router.ranker.tenant_hot_min_hit_rate)},
    {"ranker.tenant_hot_max_age", "--ranker-tenant-hot-max-age", "DURATION", "duration", Lasting(absl::ZeroDuration()),
     "Stats of this age are too old for TENANT_HOT. 0 = no TENANT_HOT at all.",
     ICACHE_SLOT(router.ranker.tenant_hot_max_age)},

    // Limits
    {"limits.max_chain_blocks", "--limits-max-chain-blocks", "N", "blocks", From(1, 1 << 20),
     "Longest chain that a lookup may name; a longer one is answered NO_HINT.", ICACHE_SLOT(router.max_chain_blocks)},
    {"limits.max_token_ids", "--limits-max-token-ids", "N", "tokens", From(1, 1 << 24),
     "Most token ids that a lookup may carry; more are answered NO_HINT.", ICACHE_SLOT(router.max_token_ids)},
    {"limits.max_message_bytes", "--limits-max-message-bytes", "N", "bytes", From(1 << 10, 1 << 30),
     "Largest request message; a larger one fails, alone.", ICACHE_SLOT(max_message_bytes)},
    {"limits.max_recycled_message_bytes", "--limits-max-recycled-message-bytes", "N", "bytes", From(0, 1 << 30),
     "A request object that grew beyond this is freed after its call instead of being used again.",
     ICACHE_SLOT(max_recycled_message_bytes)},
    {"limits.max_buffer_bytes", "--limits-max-buffer-bytes", "N", "bytes", From(64 << 20, int64_t{1} << 40),
     "What gRPC may buffer of requests and answers over all connections; beyond it, it ends streams and connections.",
     ICACHE_SLOT(max_buffer_bytes)},
    {"limits.max_unsent_bytes", "--limits-max-unsent-bytes", "N", "bytes", From(1 << 20, int64_t{1} << 40),
     "What answers that their clients do not read may hold; beyond it, the oldest ones' calls are cancelled.",
     ICACHE_SLOT(max_unsent_bytes)},
    {"limits.max_lookups_in_flight", "--limits-max-lookups-in-flight", "N", "lookups", From(1, 1 << 20),
     "Lookups that may wait for their turn, an equal share for each lookup thread; more are answered NO_HINT at once.",
     ICACHE_SLOT(max_lookups_in_flight)},
    {"limits.max_observer_queue_events", "--limits-max-observer-queue-events", "N", "events", From(1, 1 << 24),
     "How far an observer of events may be behind; beyond it, it loses the oldest ones and is told how many.",
     ICACHE_SLOT(max_observer_queue_events)},

    // Log and life
    {"log.level", "--log-level", "LEVEL", "", std::monostate(), "The least level that is logged.",
     ICACHE_SLOT(log_level)},
    {"log.format", "--log-format", "FORMAT", "", std::monostate(), "Lines for people, or one JSON object per line.",
     ICACHE_SLOT(log_format)},
    {"warm_up", "--warm-up", "DURATION", "duration", Lasting(absl::ZeroDuration(), absl::Hours(1)),
     "For so long after the start the daemon serves, but /readyz says 503.", ICACHE_SLOT(warm_up)},
    {"drain_delay", "--drain-delay", "DURATION", "duration", Lasting(absl::ZeroDuration(), absl::Hours(1)),
     "For so long after SIGTERM the daemon still serves, but /readyz says 503.", ICACHE_SLOT(drain_delay)},
};
#undef ICACHE_SLOT

// ---- Choices ------------------------------------------------------------------------------------------------------

constexpr std::array kLogLevels = {LogLevel::kDebug, LogLevel::kInfo, LogLevel::kWarn, LogLevel::kError};
constexpr std::array kLogFormats = {LogFormat::kText, LogFormat::kJson};

std::string Name(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return "debug";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kWarn:
      return "warn";
    case LogLevel::kError:
      return "error";
  }
  return "";
}

std::string Name(LogFormat format) {
  switch (format) {
    case LogFormat::kText:
      return "text";
    case LogFormat::kJson:
      return "json";
  }
  return "";
}

const auto& ChoicesOf(LogLevel) { return kLogLevels; }
const auto& ChoicesOf(LogFormat) { return kLogFormats; }

template <typename Choice>
std::string ChoicesText() {
  return absl::StrJoin(ChoicesOf(Choice()), ", ",
                       [](std::string* out, Choice choice) { absl::StrAppend(out, Name(choice)); });
}

// ---- Values as text -----------------------------------------------------------------------------------------------

std::string Text(const std::string& value) { return value; }
std::string Text(const std::vector<std::string>& value) { return absl::StrJoin(value, ", "); }
std::string Text(absl::Duration value) { return absl::FormatDuration(value); }
std::string Text(LogLevel value) { return Name(value); }
std::string Text(LogFormat value) { return Name(value); }
std::string Text(const StringMap<int32_t>& value) {
  std::vector<std::string> items;
  for (const auto& [name, number] : value) items.push_back(absl::StrCat(name, "=", number));
  absl::c_sort(items);
  return absl::StrJoin(items, ", ");
}
template <typename Number>
requires std::is_arithmetic_v<Number> std::string Text(Number value) { return absl::StrCat(value); }

// ---- Bounds -------------------------------------------------------------------------------------------------------

template <typename T>
std::string Text(const Between<T>& range) {
  if (range.max.has_value()) return absl::StrCat(Text(range.min), " to ", Text(*range.max));
  if constexpr (std::is_same_v<T, absl::Duration>) {
    if (range.min == kShortest) return "> 0";
  }
  return absl::StrCat(">= ", Text(range.min));
}
std::string Text(const PowerOfTwo& range) { return absl::StrCat("a power of two, 1 to ", range.max); }

bool Holds(const PowerOfTwo& range, int64_t value) {
  return value >= 1 && value <= range.max && absl::has_single_bit(static_cast<uint64_t>(value));
}
template <typename T>
bool Holds(const Between<T>& range, T value) {
  if constexpr (std::is_same_v<T, double>) {
    if (value > std::numeric_limits<double>::max()) return false;  // "1e999"
  }
  return value >= range.min && (!range.max.has_value() || value <= *range.max);
}

// Checks a number or a duration. Rules that do not apply to T say nothing.
template <typename T>
absl::Status Check(const Rule& rule, T value) {
  const auto check = [&](const auto& range) {
    if (Holds(range, value)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("must be ", Text(range), ", got ", Text(value)));
  };
  if (const auto* between = std::get_if<Between<T>>(&rule)) return check(*between);
  if constexpr (std::is_same_v<T, int64_t>) {
    if (const auto* power = std::get_if<PowerOfTwo>(&rule)) return check(*power);
  }
  return absl::OkStatus();
}

absl::Status CheckText(const Rule& rule, std::string_view value) {
  const auto* text_rule = std::get_if<TextRule>(&rule);
  return text_rule == nullptr ? absl::OkStatus() : text_rule->check(value);
}

// ---- Setting one value --------------------------------------------------------------------------------------------

// Reads, checks and stores one value; overloaded by the type of the slot.
struct Setter {
  const Setting& setting;
  std::string_view name;
  const Scalar& scalar;

  absl::Status operator()(std::string* slot) const {
    ASSIGN_OR_RETURN(std::string value, ReadString(scalar));
    RETURN_IF_ERROR(CheckText(setting.rule, value));
    *slot = std::move(value);
    return absl::OkStatus();
  }

  absl::Status operator()(std::vector<std::string>* slot) const {
    if (slot->size() == kMaxListItems) {
      return absl::InvalidArgumentError(absl::StrCat("takes at most ", kMaxListItems, " values"));
    }
    std::string value;
    RETURN_IF_ERROR((*this)(&value));
    slot->push_back(std::move(value));
    return absl::OkStatus();
  }

  absl::Status operator()(double* slot) const {
    ASSIGN_OR_RETURN(const double value, ReadNumber(scalar));
    RETURN_IF_ERROR(Check(setting.rule, value));
    *slot = value;
    return absl::OkStatus();
  }

  absl::Status operator()(absl::Duration* slot) const {
    ASSIGN_OR_RETURN(const absl::Duration value, ReadDuration(scalar));
    RETURN_IF_ERROR(Check(setting.rule, value));
    *slot = value;
    return absl::OkStatus();
  }

  absl::Status operator()(StringMap<int32_t>* slot) const {
    if (name.empty() || name.size() > kMaxNameBytes) {
      return absl::InvalidArgumentError(absl::StrCat("needs a name of 1 to ", kMaxNameBytes, " bytes"));
    }
    if (slot->size() == kMaxNamedItems && !slot->contains(name)) {
      return absl::InvalidArgumentError(absl::StrCat("takes at most ", kMaxNamedItems, " names"));
    }
    int32_t value = 0;
    RETURN_IF_ERROR((*this)(&value));
    slot->insert_or_assign(std::string(name), value);
    return absl::OkStatus();
  }

  // The rules of int32 and size_t slots lie within their type, so nothing is lost in the conversion.
  template <typename Integer>
  requires std::is_integral_v<Integer> absl::Status operator()(Integer* slot) const {
    ASSIGN_OR_RETURN(const int64_t value, ReadInteger(scalar));
    RETURN_IF_ERROR(Check(setting.rule, value));
    *slot = static_cast<Integer>(value);
    return absl::OkStatus();
  }

  template <typename Choice>
  requires std::is_enum_v<Choice> absl::Status operator()(Choice* slot) const {
    for (const Choice choice : ChoicesOf(Choice())) {
      if (scalar.text != Name(choice)) continue;
      *slot = choice;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("must be one of ", ChoicesText<Choice>(), ", got ", Quoted(scalar.text)));
  }
};

template <typename T>
bool SlotIs(const Setting& setting) {
  DaemonOptions options;
  return std::holds_alternative<T*>(setting.slot(options));
}

}  // namespace

absl::Span<const Setting> Settings() { return kSettings; }

bool IsList(const Setting& setting) { return SlotIs<std::vector<std::string>>(setting); }
bool IsNamed(const Setting& setting) { return SlotIs<StringMap<int32_t>>(setting); }

std::string KeyText(const Setting& setting, std::string_view name) {
  constexpr std::string_view kAnyName = "<name>";
  std::string key(setting.key);
  if (IsNamed(setting)) key.replace(key.find(kAnyName), kAnyName.size(), name);
  return key;
}

std::string RangeText(const Setting& setting) {
  if (SlotIs<LogLevel>(setting)) return ChoicesText<LogLevel>();
  if (SlotIs<LogFormat>(setting)) return ChoicesText<LogFormat>();
  return std::visit(
      [](const auto& rule) -> std::string {
        using R = std::decay_t<decltype(rule)>;
        if constexpr (std::is_same_v<R, std::monostate>)
          return "any";
        else if constexpr (std::is_same_v<R, TextRule>)
          return std::string(rule.range);
        else
          return Text(rule);
      },
      setting.rule);
}

std::string ValueText(const Setting& setting, const DaemonOptions& options) {
  DaemonOptions copy = options;
  return std::visit([](const auto* slot) { return Text(*slot); }, setting.slot(copy));
}

std::vector<ResolvedSetting> ResolvedSettings(const DaemonOptions& options) {
  std::vector<ResolvedSetting> resolved;
  const auto add = [&](std::string key, std::string value) {
    const auto origin = options.origins.find(key);
    resolved.push_back({.key = std::move(key),
                        .value = std::move(value),
                        .origin = origin == options.origins.end() ? "default" : origin->second});
  };
  DaemonOptions copy = options;
  for (const Setting& setting : kSettings) {
    const Slot slot = setting.slot(copy);
    if (const auto* const named = std::get_if<StringMap<int32_t>*>(&slot)) {
      const std::map<std::string, int32_t> sorted((*named)->begin(), (*named)->end());
      for (const auto& [name, number] : sorted) add(KeyText(setting, name), Text(number));
    } else {
      add(std::string(setting.key), std::visit([](const auto* value) { return Text(*value); }, slot));
    }
  }
  return resolved;
}

void ClearList(const Setting& setting, DaemonOptions* options) {
  const Slot slot = setting.slot(*options);
  if (auto* const* list = std::get_if<std::vector<std::string>*>(&slot)) (*list)->clear();
}

absl::Status SetValue(const Setting& setting, std::string_view name, const Scalar& scalar, DaemonOptions* options) {
  return std::visit(Setter{setting, name, scalar}, setting.slot(*options));
}

std::vector<std::pair<std::string_view, std::string>> CheckTogether(const DaemonOptions& options) {
  std::vector<std::pair<std::string_view, std::string>> found;
  StringMap<std::string_view> owners;
  const auto claim = [&](std::string_view key, const std::string& address) {
    if (TakesFreePort(address)) return;
    const auto [owner, added] = owners.try_emplace(address, key);
    if (!added) found.emplace_back(key, absl::StrCat(Quoted(address), " is taken by ", std::string(owner->second)));
  };
  for (const std::string& address : options.grpc_addresses) claim("grpc.address", address);
  claim("http.address", options.http_address);
  const auto check_tls = [&](std::string_view cert_key, std::string_view key_key, std::string_view ca_key,
                             const TlsFiles& files) {
    if (files.certificate.empty() && !files.key.empty()) found.emplace_back(key_key, "needs a certificate");
    if (!files.certificate.empty() && files.key.empty()) found.emplace_back(cert_key, "needs a key");
    if (files.certificate.empty() && !files.client_ca.empty()) found.emplace_back(ca_key, "needs a certificate");
  };
  check_tls("grpc.tls_cert_file", "grpc.tls_key_file", "grpc.tls_client_ca_file", options.grpc_tls);
  check_tls("http.tls_cert_file", "http.tls_key_file", "http.tls_client_ca_file", options.http_tls);
  return found;
}

}  // namespace icache
