#include "icache/config/access_loader.h"

#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "icache/base/status_macros.h"
#include "icache/config/problems.h"
#include "icache/config/scalar.h"
#include "icache/config/yaml.h"

namespace icache {
namespace {

constexpr char kFields[] = "name, roles, tenants, tokens and certificate_names";

// Whether `token` may stand in a header: visible ASCII without spaces.
bool IsHeaderText(std::string_view token) {
  for (const char c : token) {
    if (c <= ' ' || c > '~') return false;
  }
  return true;
}

// Adds up the grants of all files.
class AccessBuilder {
 public:
  explicit AccessBuilder(ClientCertificates certificates) : certificates_(certificates) {}

  void AddFile(const TextFile& file) {
    // What the YAML parser has to say may quote the text; where it says so may be told.
    Problems unquotable;
    const FileProblems problems(file.path, &problems_);
    bool is_empty = true;
    ReadYaml(file.text, FileProblems(file.path, &unquotable), [&](const YamlNode& document) {
      if (document.kind == YamlNode::Kind::kNull) return;
      is_empty = false;
      AddGrant(document, problems);
    });
    if (unquotable.count() == 0) {
      // More likely cut off, as on a full disk, than meant to lock everybody out.
      if (is_empty) problems_.Add(absl::StrCat(file.path, ": holds no grant"));
      return;
    }
    const absl::Status status = unquotable.ToStatus();
    for (const absl::string_view line : absl::StrSplit(status.message(), '\n')) {
      const size_t end_of_line_number = line.find(':', file.path.size() + 1);
      const size_t end_of_place = line.find(':', end_of_line_number + 1);
      problems_.Add(absl::StrCat(line.substr(0, end_of_place), ": is no well-formed YAML"));
    }
  }

  absl::StatusOr<std::shared_ptr<const AccessRules>> Build() && {
    RETURN_IF_ERROR(problems_.ToStatus());
    return std::make_shared<const AccessRules>(std::move(rules_));
  }

 private:
  // Takes one text of a list, and says what is wrong with it; "" = nothing.
  using TakeText = absl::FunctionRef<std::string(const std::string& text)>;

  void AddGrant(const YamlNode& document, const FileProblems& problems) {
    if (document.kind != YamlNode::Kind::kMapping) {
      problems.Add(document.place, "", absl::StrCat("must be a mapping with the fields ", kFields));
      return;
    }
    Grant grant;
    std::vector<std::pair<std::string, Place>> tokens;
    std::vector<std::pair<std::string, Place>> certificate_names;
    const auto check_length = [](const std::string& text) -> std::string {
      if (!text.empty() && text.size() <= kMaxGrantNameBytes) return "";
      return absl::StrCat("must have 1 to ", kMaxGrantNameBytes, " bytes");
    };
    for (const YamlNode::Field& field : document.fields) {
      if (field.key == "name") {
        ReadText(*field.value, "name", problems, [&](const std::string& text) {
          grant.name = text;
          return check_length(text);
        });
      } else if (field.key == "roles") {
        ReadList(*field.value, "roles", problems, [&](const std::string& text) { return AddRole(text, &grant); });
      } else if (field.key == "tenants") {
        ReadList(*field.value, "tenants", problems, [&](const std::string& text) {
          grant.tenants.push_back(text);
          return check_length(text);
        });
      } else if (field.key == "tokens") {
        ReadList(*field.value, "tokens", problems, [&](const std::string& text) -> std::string {
          tokens.emplace_back(text, field.place);
          if (text.size() >= kMinTokenBytes && text.size() <= kMaxTokenBytes && IsHeaderText(text)) return "";
          return absl::StrCat("must be of ", kMinTokenBytes, " to ", kMaxTokenBytes,
                              " visible ASCII characters without spaces");
        });
      } else if (field.key == "certificate_names") {
        if (certificates_ == ClientCertificates::kNotAskedFor) {
          problems.Add(field.place, "certificate_names",
                       "nobody can show one: set grpc.tls_client_ca_file (or http.tls_client_ca_file)");
        }
        ReadList(*field.value, "certificate_names", problems, [&](const std::string& text) {
          certificate_names.emplace_back(text, field.place);
          return check_length(text);
        });
      } else {
        problems.Add(field.place, "", absl::StrCat("unknown field; there are ", kFields));
      }
    }
    if (grant.name.empty()) problems.Add(document.place, "name", "must not be empty");
    if (grant.roles == std::array<bool, kRoleCount>{}) problems.Add(document.place, "roles", "must have one at least");
    if (tokens.empty() && certificate_names.empty()) {
      problems.Add(document.place, "", "needs tokens or certificate_names");
    }
    const size_t number = rules_.AddGrant(std::move(grant));
    for (const auto& [token, place] : tokens) {
      if (!rules_.AddToken(token, number)) problems.Add(place, "tokens", "one of them is granted something already");
    }
    for (const auto& [name, place] : certificate_names) {
      if (rules_.AddCertificateName(name, number)) continue;
      problems.Add(place, "certificate_names", "one of them is granted something already");
    }
  }

  static std::string AddRole(const std::string& text, Grant* grant) {
    for (const Role role : {Role::kLookup, Role::kObserve, Role::kAdmin}) {
      if (text != RoleName(role)) continue;
      grant->roles[static_cast<size_t>(role)] = true;
      return "";
    }
    return "must be lookup, observe or admin";
  }

  static void ReadText(const YamlNode& node, const char* key, const FileProblems& problems, TakeText take) {
    const absl::StatusOr<Scalar> scalar = ScalarOf(node);
    const absl::StatusOr<std::string> text = scalar.ok() ? ReadString(*scalar) : scalar.status();
    // Not the reader's own message, which quotes the value.
    const std::string problem =
        text.ok() ? take(*text) : "must be a string; if it looks like something else, in quotes";
    if (!problem.empty()) problems.Add(node.place, key, problem);
  }

  // A list that is there must have something in it: an empty one of tenants would mean all.
  static void ReadList(const YamlNode& node, const char* key, const FileProblems& problems, TakeText take) {
    if (node.kind != YamlNode::Kind::kSequence || node.items.empty()) {
      problems.Add(node.place, key, "must be a list of one or more strings");
      return;
    }
    for (const YamlNode* const item : node.items) ReadText(*item, key, problems, take);
  }

  const ClientCertificates certificates_;
  AccessRules rules_;
  Problems problems_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const AccessRules>> ParseAccess(absl::Span<const TextFile> files,
                                                               ClientCertificates certificates) {
  AccessBuilder builder(certificates);
  for (const TextFile& file : files) builder.AddFile(file);
  return std::move(builder).Build();
}

absl::StatusOr<std::shared_ptr<const AccessRules>> LoadAccess(const std::string& path,
                                                              ClientCertificates certificates) {
  if (path.empty()) return nullptr;
  ASSIGN_OR_RETURN(const std::vector<TextFile> files, ReadFileSet({path}, Folders::kRead));
  return ParseAccess(files, certificates);
}

}  // namespace icache
