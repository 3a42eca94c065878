#include "ctl/state_verbs.h"

#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "ctl/client.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

using Align = Table::Align;

absl::Status RequireModel(const Settings& settings) {
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::tenant));
  return RequireSetting(settings, &Settings::model);
}

std::string StateText(const wire::GetCacheStateResponse& state, const Style& style) {
  std::string text = fmt::format("prefixes {}, of them hot {}\n", WithCommas(state.summary().total_prefixes()),
                                 WithCommas(state.summary().hot_prefixes()));
  if (state.replicas().empty()) return text;
  Table table({{"REPLICA"},
               {"HIT RATE", Align::kRight},
               {"PRESSURE", Align::kRight},
               {"KV CACHE", Align::kRight},
               {"T2 HIT/ASKED", Align::kRight},
               {"CLIENT"}});
  for (const wire::ReplicaStats& row : state.replicas()) {
    table.AddRow({Visible(row.replica_id()), fmt::format("{:.3f}", row.hit_rate()),
                  fmt::format("{:.3f}", row.pressure()),
                  row.cache_memory_bytes() > 0 ? BytesText(static_cast<double>(row.cache_memory_bytes())) : "-",
                  row.t2_query_tokens() > 0
                      ? fmt::format("{}/{}", WithCommas(row.t2_hit_tokens()), WithCommas(row.t2_query_tokens()))
                      : "-",
                  row.client_version().empty() ? "-" : Visible(row.client_version())});
  }
  return text + "\n" + table.Render(style);
}

std::string Ago(int64_t now_us, int64_t then_us) {
  return then_us == 0 ? "-" : AgeText(absl::Microseconds(std::max<int64_t>(now_us - then_us, 0)));
}

std::string ReplicasText(const ops::ExplainRouteResponse& explanation, const Style& style) {
  const ops::Scope& scope = explanation.scope();
  const int64_t now_us = explanation.daemon().time_us();
  std::string text =
      fmt::format("{} present; {}\n", WithCommas(scope.replicas_present()),
                  scope.last_observation_us() == 0
                      ? std::string("no update of the model has come")
                      : fmt::format("the model's last update came {} ago", Ago(now_us, scope.last_observation_us())));
  if (scope.replicas().empty()) return text;
  Table table({{"REPLICA"}, {"LEASE", Align::kRight}, {"STATS", Align::kRight}, {"SEEN", Align::kRight}});
  for (const ops::Replica& row : scope.replicas()) {
    table.AddRow({Visible(row.replica_id()), Ago(now_us, row.lease_us()), Ago(now_us, row.stats_reported_us()),
                  Ago(now_us, row.last_seen_us())});
  }
  text += "\n" + table.Render(style);
  const int64_t omitted = scope.replicas_present() - scope.replicas_size();
  if (omitted > 0) text += fmt::format("and {} more\n", WithCommas(omitted));
  return text;
}

}  // namespace

absl::StatusOr<bool> RunState(const Settings& settings) {
  RETURN_IF_ERROR(RequireModel(settings));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const wire::GetCacheStateResponse state, client->CacheState(settings.tenant, settings.model));
  RETURN_IF_ERROR(Print(settings.Output(), ToJson(state), [&](const Style& style) { return StateText(state, style); }));
  return state.summary().total_prefixes() > 0 || !state.replicas().empty();
}

absl::StatusOr<bool> RunReplicas(const Settings& settings) {
  RETURN_IF_ERROR(RequireModel(settings));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  wire::LookupRouteRequest request;
  request.set_tenant_id(settings.tenant);
  request.set_model_id(settings.model);
  request.set_hash_scheme(settings.scheme);
  request.set_adapter_id(settings.adapter);
  ASSIGN_OR_RETURN(const ops::ExplainRouteResponse explanation, client->Explain(request));
  nlohmann::ordered_json document = ToJson(explanation.scope());
  document["time_us"] = explanation.daemon().time_us();
  RETURN_IF_ERROR(
      Print(settings.Output(), document, [&](const Style& style) { return ReplicasText(explanation, style); }));
  return explanation.scope().replicas_present() > 0;
}

}  // namespace icache
