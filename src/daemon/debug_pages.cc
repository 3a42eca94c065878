#include "daemon/debug_pages.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "icache/base/status_macros.h"
#include "icache/config/problems.h"
#include "icache/index/prefix_index.h"
#include "icache/policy/policy_store.h"

namespace icache {
namespace {

using Json = nlohmann::ordered_json;

std::string Dump(const Json& page) { return page.dump(2, ' ', false, Json::error_handler_t::replace) + "\n"; }

Json TimeJson(absl::Time time) { return absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", time, absl::UTCTimeZone()); }
Json TimeJson(std::optional<absl::Time> time) { return time.has_value() ? TimeJson(*time) : Json(nullptr); }

// `text` as a parameter's value.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_' || c == '~') {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

// The parameters of one request.
class Parameters {
 public:
  // Errors: InvalidArgument for one that is not among `known`, or given twice.
  static absl::StatusOr<Parameters> Parse(const HttpQuery& query, std::initializer_list<std::string_view> known) {
    Parameters parameters;
    for (const auto& [name, value] : query) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return absl::InvalidArgumentError(absl::StrCat("unknown parameter ", Quoted(name)));
      }
      if (!parameters.values_.emplace(name, value).second) {
        return absl::InvalidArgumentError(absl::StrCat(name, ": given more than once"));
      }
    }
    return parameters;
  }

  // "" when it is not given.
  std::string Text(const std::string& name) const {
    const auto found = values_.find(name);
    return found == values_.end() ? "" : found->second;
  }
  bool Has(const std::string& name) const { return values_.contains(name); }

  absl::StatusOr<size_t> Number(const std::string& name, size_t min, size_t max, size_t otherwise) const {
    const auto found = values_.find(name);
    if (found == values_.end()) return otherwise;
    uint64_t value = 0;
    const bool digits = !found->second.empty() && found->second.find_first_not_of("0123456789") == std::string::npos;
    if (!digits || !absl::SimpleAtoi(found->second, &value) || value < min || value > max) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, ": must be a number from ", min, " to ", max, ", got ", Quoted(found->second)));
    }
    return static_cast<size_t>(value);
  }
  absl::StatusOr<size_t> Limit() const { return Number("limit", 1, DebugPages::kMaxRows, DebugPages::kDefaultRows); }
  absl::StatusOr<size_t> Offset() const { return Number("offset", 0, size_t{1} << 40, 0); }

 private:
  std::map<std::string, std::string> values_;
};

// A page of a list: rows [offset, offset + limit) of `total`, and where the next page is (null on the last one).
// `path` ends in "?" or "&".
void AddPlace(Json* page, std::string_view path, size_t offset, size_t limit, size_t total) {
  (*page)["total"] = total;
  (*page)["offset"] = offset;
  (*page)["next"] = total <= limit || offset >= total - limit
                        ? Json(nullptr)
                        : Json(absl::StrCat(std::string(path), "offset=", offset + limit, "&limit=", limit));
}

// Where a page of partitions goes on: the four names, each in base64url.
std::string CursorAfter(const PartitionName& name) {
  std::vector<std::string> parts;
  for (const std::string* part : {&name.tenant_id, &name.model_id, &name.hash_scheme, &name.adapter_id}) {
    parts.push_back(absl::WebSafeBase64Escape(*part));
  }
  return absl::StrJoin(parts, ".");
}

std::optional<PartitionName> ReadCursor(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, '.');
  PartitionName name;
  const std::array fields = {&name.tenant_id, &name.model_id, &name.hash_scheme, &name.adapter_id};
  if (parts.size() != fields.size()) return std::nullopt;
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!absl::WebSafeBase64Unescape(parts[i], fields[i])) return std::nullopt;
  }
  return name;
}

// The page of a scope's replicas; ends in "&".
std::string ScopePath(const PartitionName& name) {
  return absl::StrCat("/debug/index?tenant=", Escaped(name.tenant_id), "&model=", Escaped(name.model_id),
                      "&scheme=", Escaped(name.hash_scheme), "&");
}

Json StatsJson(const ReplicaStats& stats) {
  return {{"cache_memory_bytes", stats.cache_memory_bytes},
          {"hit_rate", stats.hit_rate},
          {"pressure", stats.pressure},
          {"client_version", stats.client_version},
          {"t2_hit_tokens", stats.t2_hit_tokens},
          {"t2_query_tokens", stats.t2_query_tokens},
          {"last_seen", TimeJson(stats.last_seen)},
          {"reported", TimeJson(stats.reported)}};
}

Json ReplicasPage(const PrefixIndex& index, const PartitionName& scope, const std::string& after, size_t limit) {
  // One more than asked for, to see whether there is a next page.
  ScopeReplicas listed = index.ListReplicas({scope.tenant_id, scope.model_id, scope.hash_scheme}, after, limit + 1);
  const bool more = listed.replicas.size() > limit;
  if (more) listed.replicas.pop_back();
  Json page = {{"tenant", scope.tenant_id}, {"model", scope.model_id}, {"scheme", scope.hash_scheme}};
  page["total"] = listed.total;
  page["next"] = nullptr;
  if (more) {
    page["next"] =
        absl::StrCat(ScopePath(scope), "limit=", limit, "&after=", Escaped(listed.replicas.back().replica_id));
  }
  Json& rows = page["replicas"] = Json::array();
  for (const PresenceState& replica : listed.replicas) {
    rows.push_back({{"replica", replica.replica_id},
                    {"entries", replica.entries},
                    {"partitions", replica.partitions},
                    {"oldest_seen", TimeJson(replica.oldest_seen)},
                    {"newest_seen", TimeJson(replica.newest_seen)},
                    {"lease", TimeJson(replica.lease)},
                    {"stats", replica.stats.has_value() ? StatsJson(*replica.stats) : Json(nullptr)}});
  }
  return page;
}

Json PartitionsPage(const PrefixIndex& index, const IndexOptions& options, const std::string& tenant_id,
                    const std::optional<PartitionName>& after, size_t limit) {
  // One more than asked for, to see whether there is a next page.
  std::vector<PartitionState> partitions = index.ListPartitions(tenant_id, after, limit + 1);
  const bool more = partitions.size() > limit;
  if (more) partitions.pop_back();
  const IndexStats stats = index.Stats();
  Json page = {{"prefixes", stats.prefixes},
               {"entries", stats.entries},
               {"max_entries", options.max_entries},
               {"memory_bytes", stats.memory_bytes},
               {"max_memory_bytes", options.max_memory_bytes},
               {"runs", stats.runs}};
  page["next"] = nullptr;
  if (more) {
    const std::string tenant = tenant_id.empty() ? "" : absl::StrCat("tenant=", Escaped(tenant_id), "&");
    page["next"] =
        absl::StrCat("/debug/index?", tenant, "limit=", limit, "&after=", CursorAfter(partitions.back().name));
  }
  Json& rows = page["partitions"] = Json::array();
  for (const PartitionState& partition : partitions) {
    std::string replicas = ScopePath(partition.name);
    replicas.pop_back();
    rows.push_back({{"tenant", partition.name.tenant_id},
                    {"model", partition.name.model_id},
                    {"scheme", partition.name.hash_scheme},
                    {"adapter", partition.name.adapter_id},
                    {"prefixes", partition.prefixes},
                    {"scope_replicas", partition.scope_replicas},
                    {"replicas", std::move(replicas)}});
  }
  return page;
}

Json PolicyJson(const std::string& tenant_id, const PolicySet& set, const PolicyStore& store) {
  const CachePolicy& policy = set.PolicyFor(tenant_id);
  const std::string_view source = set.SourceOf(tenant_id);
  const std::optional<int64_t> quota = set.QuotaFor(tenant_id);
  return {{"tenant", tenant_id},
          {"source", source.empty() ? Json(nullptr) : Json(std::string(source))},
          {"eviction", policy.eviction == EvictionAlgorithm::kLfu ? "LFU" : "LRU"},
          {"evictionTTL", absl::FormatDuration(store.TtlOf(policy))},
          {"minimumPrefixTokens", policy.minimum_prefix_tokens},
          {"minimumMatchedTokens", policy.minimum_matched_tokens},
          {"routingFloorScore", policy.routing_floor_score},
          {"affinityRouting", policy.affinity_routing ? "Enabled" : "Disabled"},
          {"lookupTimeoutMs", policy.lookup_timeout_ms},
          {"enableChainMatching", policy.enable_chain_matching},
          {"requireChain", policy.require_chain},
          {"enableTenantHot", policy.enable_tenant_hot},
          {"maxIndexEntries", quota.has_value() ? Json(*quota) : Json(nullptr)}};
}

}  // namespace

void DebugPages::RecordPolicyLoad(const absl::Status& status) {
  MutexLock lock(&mutex_);
  if (status.ok()) {
    in_force_since_ = clock_.Now();
    refusal_.clear();
  } else {
    refused_at_ = clock_.Now();
    refusal_ = std::string(status.message());
  }
}

absl::StatusOr<std::string> DebugPages::Config(const HttpQuery& query) const {
  ASSIGN_OR_RETURN(const Parameters parameters, Parameters::Parse(query, {"offset", "limit"}));
  ASSIGN_OR_RETURN(const size_t offset, parameters.Offset());
  ASSIGN_OR_RETURN(const size_t limit, parameters.Limit());
  const std::vector<ResolvedSetting> settings = ResolvedSettings(options_);
  Json page;
  AddPlace(&page, "/debug/config?", offset, limit, settings.size());
  Json& rows = page["settings"] = Json::array();
  for (size_t i = offset; i < settings.size() && rows.size() < limit; ++i) {
    rows.push_back({{"key", settings[i].key}, {"value", settings[i].value}, {"origin", settings[i].origin}});
  }
  return Dump(page);
}

absl::StatusOr<std::string> DebugPages::Policies(const HttpQuery& query) const {
  ASSIGN_OR_RETURN(const Parameters parameters, Parameters::Parse(query, {"offset", "limit"}));
  ASSIGN_OR_RETURN(const size_t offset, parameters.Offset());
  ASSIGN_OR_RETURN(const size_t limit, parameters.Limit());
  const std::shared_ptr<const PolicySet> set = policies_.Current();
  const std::vector<std::string> tenants = set->Tenants();
  Json page = {{"path", options_.policy_path}};
  {
    MutexLock lock(&mutex_);
    page["in_force_since"] = TimeJson(in_force_since_);
    page["refused"] = refusal_.empty() ? Json(nullptr) : Json({{"at", TimeJson(refused_at_)}, {"problems", refusal_}});
  }
  AddPlace(&page, "/debug/policies?", offset, limit, tenants.size());
  Json& rows = page["tenants"] = Json::array();
  for (size_t i = offset; i < tenants.size() && rows.size() < limit; ++i) {
    rows.push_back(PolicyJson(tenants[i], *set, policies_));
  }
  return Dump(page);
}

absl::StatusOr<std::string> DebugPages::Index(const HttpQuery& query) const {
  ASSIGN_OR_RETURN(const Parameters parameters,
                   Parameters::Parse(query, {"tenant", "model", "scheme", "limit", "after"}));
  ASSIGN_OR_RETURN(const size_t limit, parameters.Limit());
  const PartitionName scope{parameters.Text("tenant"), parameters.Text("model"), parameters.Text("scheme"), ""};
  if (parameters.Has("model") || parameters.Has("scheme")) {
    if (scope.tenant_id.empty() || scope.model_id.empty() || scope.hash_scheme.empty()) {
      return absl::InvalidArgumentError("tenant, model and scheme name a scope together: none may be missing or empty");
    }
    return Dump(ReplicasPage(index_, scope, parameters.Text("after"), limit));
  }
  std::optional<PartitionName> after;
  if (parameters.Has("after")) {
    after = ReadCursor(parameters.Text("after"));
    if (!after.has_value()) return absl::InvalidArgumentError("after: must be what next of the page before has");
  }
  return Dump(PartitionsPage(index_, options_.index, scope.tenant_id, after, limit));
}

}  // namespace icache
