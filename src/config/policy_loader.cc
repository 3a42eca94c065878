#include "icache/config/policy_loader.h"

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "config/policy_bounds.h"
#include "icache/base/status_macros.h"
#include "icache/base/string_map.h"
#include "icache/config/problems.h"
#include "icache/config/scalar.h"
#include "icache/config/yaml.h"

namespace icache {
namespace {

constexpr std::string_view kApiVersion = "inferencecache.io/v1alpha1";
constexpr std::string_view kPolicyKind = "CachePolicy";
constexpr std::string_view kTenantKind = "CacheTenant";

absl::StatusOr<EvictionAlgorithm> ReadEviction(const Scalar& scalar) {
  if (scalar.text == "LRU") return EvictionAlgorithm::kLru;
  if (scalar.text == "LFU") return EvictionAlgorithm::kLfu;
  return absl::InvalidArgumentError(absl::StrCat("must be LRU or LFU, got ", Quoted(scalar.text)));
}

absl::StatusOr<bool> ReadAffinity(const Scalar& scalar) {
  if (scalar.text == "Enabled") return true;
  if (scalar.text == "Disabled") return false;
  return absl::InvalidArgumentError(absl::StrCat("must be Enabled or Disabled, got ", Quoted(scalar.text)));
}

const YamlNode* FindField(const YamlNode& node, std::string_view key) {
  for (const YamlNode::Field& field : node.fields) {
    if (field.key == key) return field.value;
  }
  return nullptr;
}

// Reads one document, a manifest of either kind, and remembers where its fields stand.
class ManifestReader {
 public:
  explicit ManifestReader(const FileProblems& problems) : problems_(problems) {}

  // Takes the value of a field; `path` is the field's own, as "spec.quota".
  using TakeField = absl::FunctionRef<void(const YamlNode& value, const std::string& path)>;
  struct KnownField {
    std::string_view name;
    TakeField take;
  };
  enum class OtherFields { kRefuse, kIgnore };

  // Hands each field of the mapping `node` to its reader. Null counts as a mapping without fields.
  void ReadFields(const YamlNode& node, const std::string& path, std::initializer_list<KnownField> known,
                  OtherFields others = OtherFields::kRefuse) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMapping) {
      problems_.Add(node.place, path, absl::StrCat("must be a mapping, got ", KindName(node.kind)));
      return;
    }
    for (const YamlNode::Field& field : node.fields) {
      const std::string field_path = absl::StrCat(path, path.empty() ? "" : ".", Printable(field.key));
      const KnownField* found = nullptr;
      for (const KnownField& candidate : known) {
        if (candidate.name == field.key) found = &candidate;
      }
      if (found != nullptr) {
        found->take(*field.value, field_path);
      } else if (others == OtherFields::kRefuse) {
        problems_.Add(field.place, field_path, "unknown field");
      }
    }
  }

  // A reader of one value, which `target` gets when `read` accepts it.
  template <typename Target, typename Value>
  auto Into(Target* target, absl::StatusOr<Value> (*read)(const Scalar&)) {
    return [this, target, read](const YamlNode& node, const std::string& path) {
      places_[path] = node.place;
      const absl::StatusOr<Scalar> scalar = ScalarOf(node);
      absl::StatusOr<Value> value = scalar.ok() ? read(*scalar) : scalar.status();
      if (value.ok()) {
        *target = *std::move(value);
      } else {
        problems_.Add(node.place, path, std::string(value.status().message()));
      }
    };
  }

  // Hands out what every manifest has; `apiVersion` and `kind` are for the caller to judge.
  void ReadManifest(const YamlNode& document, TakeField read_metadata, TakeField read_spec) {
    const auto ignore = [](const YamlNode&, const std::string&) {};
    ReadFields(document, "",
               {{"apiVersion", ignore},
                {"kind", ignore},
                {"metadata", read_metadata},
                {"spec", read_spec},
                {"status", ignore}});
  }

  // Where the field at `path` stands, if the manifest has it.
  std::optional<Place> PlaceOf(std::string_view path) const {
    const auto found = places_.find(path);
    return found == places_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  const FileProblems& problems_;
  StringMap<Place> places_;
};

// Adds up the manifests of all files.
class PolicySetBuilder {
 public:
  void AddFile(std::string_view text, std::string_view path) {
    const FileProblems problems(path, &problems_);
    ReadYaml(text, problems, [&](const YamlNode& document) { AddManifest(document, problems); });
  }

  absl::StatusOr<std::shared_ptr<const PolicySet>> Build() && {
    RETURN_IF_ERROR(problems_.ToStatus());
    return std::make_shared<const PolicySet>(std::move(set_));
  }

 private:
  void AddManifest(const YamlNode& document, const FileProblems& problems) {
    if (document.kind == YamlNode::Kind::kNull) return;
    if (document.kind != YamlNode::Kind::kMapping) {
      problems.Add(document.place, "", absl::StrCat("must be a mapping, got ", KindName(document.kind)));
      return;
    }
    CheckWord(document, "apiVersion", {kApiVersion}, problems);
    const std::string_view kind = CheckWord(document, "kind", {kPolicyKind, kTenantKind}, problems);
    if (kind == kPolicyKind) AddPolicy(document, problems);
    if (kind == kTenantKind) AddTenant(document, problems);
  }

  // The text of a required field that must be one of `words`; "", reported, when it is not.
  static std::string_view CheckWord(const YamlNode& document, std::string_view field,
                                    std::initializer_list<std::string_view> words, const FileProblems& problems) {
    const YamlNode* node = FindField(document, field);
    std::string expected;
    for (const std::string_view word : words) {
      if (node != nullptr && ScalarOf(*node).ok() && node->text == word) return word;
      absl::StrAppend(&expected, expected.empty() ? "must be " : " or ", std::string(word));
    }
    if (node == nullptr) {
      problems.Add(document.place, field, absl::StrCat(expected, ", is missing"));
    } else {
      const bool is_scalar = node->kind == YamlNode::Kind::kScalar;
      problems.Add(node->place, field,
                   absl::StrCat(expected, ", got ", is_scalar ? Quoted(node->text) : KindName(node->kind)));
    }
    return "";
  }

  void AddPolicy(const YamlNode& document, const FileProblems& problems) {
    ManifestReader reader(problems);
    std::string name;  // read for its type alone
    std::optional<std::string> tenant_id;
    CachePolicy policy;
    const auto read_metadata = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path,
                        {{"name", reader.Into(&name, ReadString)}, {"namespace", reader.Into(&tenant_id, ReadString)}},
                        ManifestReader::OtherFields::kIgnore);
    };
    const auto read_strategy = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path,
                        {{"enableChainMatching", reader.Into(&policy.enable_chain_matching, ReadBoolean)},
                         {"requireChain", reader.Into(&policy.require_chain, ReadBoolean)},
                         {"enableTenantHot", reader.Into(&policy.enable_tenant_hot, ReadBoolean)}});
    };
    const auto read_spec = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path,
                        {{"eviction", reader.Into(&policy.eviction, ReadEviction)},
                         {"evictionTTL", reader.Into(&policy.eviction_ttl, ReadDuration)},
                         {"minimumPrefixTokens", reader.Into(&policy.minimum_prefix_tokens, ReadInteger)},
                         {"minimumMatchedTokens", reader.Into(&policy.minimum_matched_tokens, ReadInteger)},
                         {"routingFloorScore", reader.Into(&policy.routing_floor_score, ReadNumberOrString)},
                         {"affinityRouting", reader.Into(&policy.affinity_routing, ReadAffinity)},
                         {"lookupTimeoutMs", reader.Into(&policy.lookup_timeout_ms, ReadInteger)},
                         {"strategy", read_strategy}});
    };
    reader.ReadManifest(document, read_metadata, read_spec);
    ReportBounds(CheckPolicy(policy), document, reader, problems);
    if (ClaimTenant(tenant_id, "metadata.namespace", "a policy", document, reader, problems, &policy_places_)) {
      set_.AddPolicy(*tenant_id, policy, policy_places_.find(*tenant_id)->second);
    }
  }

  void AddTenant(const YamlNode& document, const FileProblems& problems) {
    ManifestReader reader(problems);
    std::string name;  // read for its type alone
    std::optional<std::string> tenant_id;
    std::optional<int64_t> max_prefixes;
    const auto read_metadata = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path, {{"name", reader.Into(&name, ReadString)}}, ManifestReader::OtherFields::kIgnore);
    };
    const auto read_quota = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path, {{"maxIndexEntries", reader.Into(&max_prefixes, ReadInteger)}});
    };
    const auto read_spec = [&](const YamlNode& node, const std::string& path) {
      reader.ReadFields(node, path, {{"tenantID", reader.Into(&tenant_id, ReadString)}, {"quota", read_quota}});
    };
    reader.ReadManifest(document, read_metadata, read_spec);
    ReportBounds(CheckQuota(max_prefixes), document, reader, problems);
    if (ClaimTenant(tenant_id, "spec.tenantID", "a quota", document, reader, problems, &tenant_places_)) {
      set_.AddTenant(*tenant_id, max_prefixes);
    }
  }

  static void ReportBounds(const std::vector<BoundsProblem>& found, const YamlNode& document,
                           const ManifestReader& reader, const FileProblems& problems) {
    for (const BoundsProblem& problem : found) {
      problems.Add(reader.PlaceOf(problem.field).value_or(document.place), problem.field, problem.message);
    }
  }

  // Whether `tenant_id`, which stands at `field`, is a name that no manifest before has claimed. Reports it when not;
  // a field that could not be read has been reported already.
  static bool ClaimTenant(const std::optional<std::string>& tenant_id, std::string_view field, const char* what,
                          const YamlNode& document, const ManifestReader& reader, const FileProblems& problems,
                          StringMap<std::string>* places) {
    const std::optional<Place> place = reader.PlaceOf(field);
    if (place.has_value() && !tenant_id.has_value()) return false;
    if (!tenant_id.has_value() || tenant_id->empty()) {
      problems.Add(place.value_or(document.place), field, "must not be empty");
      return false;
    }
    const auto [first, added] = places->try_emplace(*tenant_id, problems.At(*place));
    if (!added) {
      problems.Add(*place, field, absl::StrCat(Quoted(*tenant_id), " has ", what, " already, at ", first->second));
    }
    return added;
  }

  PolicySet set_;
  StringMap<std::string> policy_places_;  // by tenant: where its policy stands
  StringMap<std::string> tenant_places_;  // likewise its quota
  Problems problems_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(absl::Span<const TextFile> files) {
  PolicySetBuilder builder;
  for (const TextFile& file : files) builder.AddFile(file.text, file.path);
  return std::move(builder).Build();
}

absl::StatusOr<std::shared_ptr<const PolicySet>> ParsePolicies(std::string_view text, std::string_view file_name) {
  PolicySetBuilder builder;
  builder.AddFile(text, file_name);
  return std::move(builder).Build();
}

absl::StatusOr<std::shared_ptr<const PolicySet>> LoadPolicies(const std::string& path) {
  ASSIGN_OR_RETURN(const std::vector<TextFile> files, ReadFileSet({path}, Folders::kRead));
  return ParsePolicies(files);
}

}  // namespace icache
