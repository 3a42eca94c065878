#include "ctl/policy_verbs.h"

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "ctl/client.h"
#include "ctl/message_json.h"
#include "ctl/output.h"
#include "ctl/policy_view.h"
#include "ctl/table.h"
#include "ctl/text.h"
#include "icache/base/status_macros.h"
#include "icache/config/policy_loader.h"

namespace icache {
namespace {

using nlohmann::ordered_json;

// The policy that lookups of `tenant` follow in the daemon. Asking nothing tells it: explaining never fails.
absl::StatusOr<ops::Policy> PolicyInForce(const Client& client, const std::string& tenant) {
  wire::LookupRouteRequest request;
  request.set_tenant_id(tenant);
  ASSIGN_OR_RETURN(const ops::ExplainRouteResponse explanation, client.Explain(request));
  return explanation.policy();
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Which fields differ, by tenant.
struct Difference {
  std::string tenant;
  std::string field;
  std::string old_value;
  std::string new_value;
};

void Compare(const std::string& tenant, const ops::Policy& old_policy, const ops::Policy& new_policy,
             std::vector<Difference>* differences) {
  const std::vector<PolicyField> before = FieldsOf(old_policy);
  const std::vector<PolicyField> after = FieldsOf(new_policy);
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i].second != after[i].second) {
      differences->push_back({tenant, before[i].first, before[i].second, after[i].second});
    }
  }
}

std::vector<Difference> DiffSets(const PolicySet& before, const PolicySet& after) {
  std::set<std::string> tenants;
  for (const PolicySet* set : {&before, &after}) {
    for (const std::string& tenant : set->Tenants()) tenants.insert(tenant);
  }
  std::vector<Difference> differences;
  for (const std::string& tenant : tenants) {
    Compare(tenant, PolicyIn(before, tenant), PolicyIn(after, tenant), &differences);
  }
  return differences;
}

absl::StatusOr<std::vector<Difference>> DiffWithDaemon(const Settings& settings, const PolicySet& after) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  // No manifest can name the tenant "", so it has the daemon's defaults.
  ASSIGN_OR_RETURN(const ops::Policy defaults, PolicyInForce(*client, ""));
  std::vector<Difference> differences;
  for (const std::string& tenant : after.Tenants()) {
    ASSIGN_OR_RETURN(const ops::Policy in_force, PolicyInForce(*client, tenant));
    ops::Policy wanted = PolicyIn(after, tenant);
    if (wanted.eviction_ttl_us() == 0) wanted.set_eviction_ttl_us(defaults.eviction_ttl_us());
    Compare(tenant, in_force, wanted, &differences);
  }
  return differences;
}

}  // namespace

absl::StatusOr<bool> RunPoliciesShow(const Settings& settings) {
  RETURN_IF_ERROR(RequireSetting(settings, &Settings::tenant));
  ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Client::Create(settings));
  ASSIGN_OR_RETURN(const ops::Policy policy, PolicyInForce(*client, settings.tenant));
  const auto render = [&](const Style& style) {
    std::string text =
        policy.source().empty()
            ? fmt::format("{} has the defaults: no manifest names it\n\n", Visible(settings.tenant))
            : fmt::format("{} has the policy at {}\n\n", Visible(settings.tenant), Visible(policy.source()));
    Table table({{"FIELD"}, {"VALUE"}});
    for (const auto& [field, value] : FieldsOf(policy)) table.AddRow({field, value});
    return text + table.Render(style);
  };
  RETURN_IF_ERROR(Print(settings.Output(), ToJson(policy), render));
  return true;
}

absl::StatusOr<bool> RunPoliciesValidate(const Settings& settings, const std::vector<std::string>& paths) {
  ordered_json document = ordered_json::array();
  bool all_valid = true;
  for (const std::string& path : paths) {
    const auto set = LoadPolicies(path);
    ordered_json result = {{"path", path}, {"valid", set.ok()}};
    result["policies"] = set.ok() ? (*set)->policy_count() : 0;
    result["quotas"] = set.ok() ? (*set)->tenant_count() : 0;
    result["problems"] = set.ok() ? std::vector<std::string>() : LinesOf(std::string(set.status().message()));
    document.push_back(std::move(result));
    all_valid = all_valid && set.ok();
  }
  const auto render = [&](const Style& style) {
    std::string text;
    for (const ordered_json& result : document) {
      const std::string path = Visible(result["path"].get<std::string>());
      if (result["valid"].get<bool>()) {
        text += fmt::format("{}: {}: policies {}, quotas {}\n", path, Painted("valid", Tone::kGood, style),
                            result["policies"].get<size_t>(), result["quotas"].get<size_t>());
        continue;
      }
      text += fmt::format("{}: {}\n", path, Painted("refused", Tone::kBad, style));
      for (const ordered_json& problem : result["problems"]) text += "  " + problem.get<std::string>() + "\n";
    }
    return text;
  };
  RETURN_IF_ERROR(Print(settings.Output(), document, render));
  return all_valid;
}

absl::StatusOr<bool> RunPoliciesDiff(const Settings& settings, const std::vector<std::string>& paths) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const PolicySet> after, LoadPolicies(paths.back()));
  absl::StatusOr<std::vector<Difference>> differences;
  if (paths.size() == 1) {
    differences = DiffWithDaemon(settings, *after);
  } else {
    ASSIGN_OR_RETURN(const std::shared_ptr<const PolicySet> before, LoadPolicies(paths.front()));
    differences = DiffSets(*before, *after);
  }
  RETURN_IF_ERROR(differences.status());
  ordered_json document = ordered_json::array();
  Table table({{"TENANT"}, {"FIELD"}, {"OLD"}, {"NEW"}});
  for (const Difference& each : *differences) {
    document.push_back(
        {{"tenant", each.tenant}, {"field", each.field}, {"old", each.old_value}, {"new", each.new_value}});
    table.AddRow({Visible(each.tenant), each.field, {each.old_value, Tone::kBad}, {each.new_value, Tone::kGood}});
  }
  RETURN_IF_ERROR(Print(settings.Output(), document, [&](const Style& style) {
    return table.empty() ? std::string("no difference\n") : table.Render(style);
  }));
  return differences->empty();
}

}  // namespace icache
