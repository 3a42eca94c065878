#include "config/config_file.h"

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "config/settings.h"
#include "icache/config/file.h"
#include "icache/config/yaml.h"

namespace icache {
namespace {

constexpr size_t kMaxConfigBytes = 4 << 20;
constexpr std::string_view kAnyName = "<name>";

std::string Join(const std::string& path, std::string_view part) {
  return absl::StrCat(path, path.empty() ? "" : ".", std::string(part));
}

const Setting* FindSetting(const std::string& key) {
  for (const Setting& setting : Settings()) {
    if (setting.key == key) return &setting;
  }
  return nullptr;
}

// Whether keys stand below `key`.
bool IsGroup(const std::string& key) {
  const std::string prefix = key + ".";
  for (const Setting& setting : Settings()) {
    if (setting.key.substr(0, prefix.size()) == prefix) return true;
  }
  return false;
}

class ConfigReader {
 public:
  ConfigReader(const FileProblems& problems, DaemonOptions* options, Origins* origins)
      : problems_(problems), options_(options), origins_(origins) {}

  // `key` is the group's key in the table of settings; `path` is how the file spells it, and `name` what stands in
  // place of "<name>".
  void ReadGroup(const YamlNode& node, const std::string& key, const std::string& path, std::string_view name) {
    if (node.kind == YamlNode::Kind::kNull) return;
    if (node.kind != YamlNode::Kind::kMapping) {
      problems_.Add(node.place, path, absl::StrCat("must be a mapping, got ", KindName(node.kind)));
      return;
    }
    for (const YamlNode::Field& field : node.fields) {
      // Keys nest, so one that is written with dots ("grpc.address: …") is unknown.
      const bool dotted = field.key.find('.') != std::string_view::npos;
      const std::string field_key = Join(key, field.key);
      const std::string field_path = Join(path, Printable(field.key));
      const Setting* setting = dotted ? nullptr : FindSetting(field_key);
      if (setting != nullptr) {
        ReadSetting(*setting, *field.value, field_path, name);
      } else if (IsGroup(Join(key, kAnyName))) {
        ReadGroup(*field.value, Join(key, kAnyName), field_path, field.key);
      } else if (!dotted && IsGroup(field_key)) {
        ReadGroup(*field.value, field_key, field_path, name);
      } else {
        problems_.Add(field.place, field_path, "unknown key");
      }
    }
  }

 private:
  void ReadSetting(const Setting& setting, const YamlNode& node, const std::string& path, std::string_view name) {
    (*origins_)[KeyText(setting, name)] = absl::StrCat(problems_.At(node.place), ": ", path);
    ClearList(setting, options_);
    if (!IsList(setting) || node.kind != YamlNode::Kind::kSequence) {
      ReadValue(setting, node, path, name);
      return;
    }
    if (node.items.empty()) problems_.Add(node.place, path, "must have at least one value");
    for (size_t i = 0; i < node.items.size(); ++i) {
      ReadValue(setting, *node.items[i], absl::StrCat(path, "[", i, "]"), name);
    }
  }

  void ReadValue(const Setting& setting, const YamlNode& node, const std::string& path, std::string_view name) {
    const absl::StatusOr<Scalar> scalar = ScalarOf(node);
    const absl::Status set = scalar.ok() ? SetValue(setting, name, *scalar, options_) : scalar.status();
    if (!set.ok()) problems_.Add(node.place, path, std::string(set.message()));
  }

  const FileProblems& problems_;
  DaemonOptions* const options_;
  Origins* const origins_;
};

}  // namespace

void ApplyConfigText(std::string_view text, std::string_view file, DaemonOptions* options, Origins* origins,
                     Problems* problems) {
  const FileProblems file_problems(file, problems);
  ConfigReader reader(file_problems, options, origins);
  int documents = 0;
  ReadYaml(text, file_problems, [&](const YamlNode& document) {
    if (++documents == 2) file_problems.Add(document.place, "", "must be the only document of the file");
    if (documents == 1) reader.ReadGroup(document, "", "", "");
  });
}

void ApplyConfigFile(const std::string& path, DaemonOptions* options, Origins* origins, Problems* problems) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxConfigBytes);
  if (!text.ok()) {
    problems->Add(absl::StrCat(path, ": ", text.status().message()));
    return;
  }
  ApplyConfigText(*text, path, options, origins, problems);
}

}  // namespace icache
