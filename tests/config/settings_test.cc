#include "config/settings.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "config/config_file.h"
#include "icache/config/command_line.h"
#include "icache/config/file.h"
#include "icache/config/policy_loader.h"
#include "icache/config/yaml.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

const Setting& Find(std::string_view key) {
  for (const Setting& setting : Settings()) {
    if (setting.key == key) return setting;
  }
  ADD_FAILURE() << "no setting " << key;
  return Settings().front();
}

std::string ReadSource(const std::string& path) {
  return ReadFile(std::string(ICACHE_SOURCE_DIR) + "/" + path, 1 << 20).value();
}

// Every scalar and list key of a document, as "group.key". `models` has no settings of its own.
void CollectKeys(const YamlNode& node, const std::string& prefix, std::set<std::string>* keys) {
  for (const YamlNode::Field& field : node.fields) {
    const std::string key = prefix + std::string(field.key);
    if (field.value->kind == YamlNode::Kind::kMapping) {
      CollectKeys(*field.value, key + ".", keys);
      if (field.value->fields.empty()) keys->insert(key + ".<name>.block_size");
    } else {
      keys->insert(key);
    }
  }
}

TEST(SettingsTest, KeysAndFlagsAreUnique) {
  std::set<std::string_view> names;
  for (const Setting& setting : Settings()) {
    EXPECT_TRUE(names.insert(setting.key).second) << setting.key;
    EXPECT_TRUE(names.insert(setting.flag).second) << setting.flag;
    EXPECT_TRUE(absl::StartsWith(std::string(setting.flag), "--")) << setting.flag;
    EXPECT_FALSE(setting.help.empty()) << setting.key;
  }
}

TEST(SettingsTest, SlotsAreDistinct) {
  DaemonOptions options;
  std::set<const void*> slots;
  for (const Setting& setting : Settings()) {
    const void* slot = std::visit([](auto* pointer) -> const void* { return pointer; }, setting.slot(options));
    EXPECT_TRUE(slots.insert(slot).second) << setting.key;
  }
}

TEST(SettingsTest, DefaultsAreInBounds) {
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    const std::string value = ValueText(setting, defaults);
    if (value.empty()) continue;
    DaemonOptions options;
    ClearList(setting, &options);
    EXPECT_THAT(SetValue(setting, "", {value, Scalar::Style::kFlag}, &options), IsOk()) << setting.key;
    EXPECT_EQ(ValueText(setting, options), value) << setting.key;
  }
}

TEST(SettingsTest, BoundsBelongToTheRange) {
  struct Row {
    const char* key;
    const char* value;
    bool accepted;
  };
  for (const auto& [key, value, accepted] : {
           Row{"grpc.lookup_threads", "256", true},
           Row{"grpc.lookup_threads", "257", false},
           Row{"grpc.lookup_threads", "-1", false},
           Row{"grpc.ingest_threads", "0", false},
           Row{"grpc.keepalive_time", "999ms", false},
           Row{"grpc.keepalive_time", "576h", true},
           Row{"grpc.keepalive_time", "577h", false},
           Row{"grpc.max_connection_age", "0", true},
           Row{"policy.poll_interval", "10ms", true},
           Row{"policy.poll_interval", "9ms", false},
           Row{"policy.poll_interval", "501ms", false},
           Row{"engine.block_size", "0", false},
           Row{"engine.block_size", "2147483647", true},
           Row{"engine.block_size", "2147483648", false},
           Row{"engine.block_size", "4294967297", false},
           Row{"index.max_entries", "0", true},
           Row{"index.max_entries", "-1", false},
           Row{"index.max_entries", "9223372036854775807", true},
           Row{"index.shard_count", "1", true},
           Row{"index.shard_count", "1024", true},
           Row{"index.shard_count", "0", false},
           Row{"index.shard_count", "24", false},
           Row{"index.shard_count", "2048", false},
           Row{"index.default_ttl", "1ns", true},
           Row{"index.default_ttl", "0", false},
           Row{"index.default_ttl", "-1s", false},
           Row{"index.sweep_interval", "10ms", true},
           Row{"index.sweep_interval", "1ms", false},
           Row{"ranker.pressure_weight", "0", true},
           Row{"ranker.pressure_weight", "-0.1", false},
           Row{"ranker.pressure_weight", "1e999", false},
           Row{"ranker.pressure_weight", "inf", false},
           Row{"ranker.tenant_hot_max_age", "0", true},
           Row{"limits.max_chain_blocks", "-1", false},
           Row{"limits.max_message_bytes", "1023", false},
           Row{"limits.max_message_bytes", "1073741824", true},
           Row{"log.level", "warn", true},
           Row{"log.level", "WARN", false},
           Row{"log.format", "json", true},
           Row{"log.format", "", false},
           Row{"http.address", "unix:/run/x", false},
       }) {
    DaemonOptions options;
    const absl::Status status = SetValue(Find(key), "", {value, Scalar::Style::kFlag}, &options);
    EXPECT_EQ(status.ok(), accepted) << key << " " << value << " " << status;
    if (!accepted) {
      EXPECT_EQ(ValueText(Find(key), options), ValueText(Find(key), DaemonOptions())) << key;
    }
  }
}

TEST(SettingsTest, MessagesNameBoundAndValue) {
  DaemonOptions options;
  const auto set = [&](const char* key, const char* value) {
    return SetValue(Find(key), "", {value, Scalar::Style::kFlag}, &options);
  };
  EXPECT_THAT(set("grpc.ingest_threads", "65"), StatusIs(kBad, "must be 1 to 64, got 65"));
  EXPECT_THAT(set("index.max_entries", "-1"), StatusIs(kBad, "must be >= 0, got -1"));
  EXPECT_THAT(set("index.default_ttl", "0s"), StatusIs(kBad, "must be > 0, got 0"));
  EXPECT_THAT(set("policy.poll_interval", "2s"), StatusIs(kBad, "must be 10ms to 500ms, got 2s"));
  EXPECT_THAT(set("index.shard_count", "3"), StatusIs(kBad, "must be a power of two, 1 to 1024, got 3"));
  EXPECT_THAT(set("log.level", "loud"), StatusIs(kBad, "must be one of debug, info, warn, error, got \"loud\""));
}

TEST(SettingsTest, ListsAndNamesAreBounded) {
  DaemonOptions options;
  const Setting& addresses = Find("grpc.address");
  for (size_t i = options.grpc_addresses.size(); i < kMaxListItems; ++i) {
    EXPECT_THAT(SetValue(addresses, "", {"localhost:0", Scalar::Style::kFlag}, &options), IsOk());
  }
  EXPECT_THAT(SetValue(addresses, "", {"localhost:0", Scalar::Style::kFlag}, &options),
              StatusIs(kBad, "takes at most 16 values"));

  const Setting& models = Find("models.<name>.block_size");
  EXPECT_THAT(SetValue(models, "", {"16"}, &options), StatusIs(kBad, "needs a name of 1 to 512 bytes"));
  EXPECT_THAT(SetValue(models, std::string(513, 'm'), {"16"}, &options), StatusIs(kBad));
  for (size_t i = 0; i < kMaxNamedItems; ++i) {
    ASSERT_THAT(SetValue(models, std::to_string(i), {"16"}, &options), IsOk());
  }
  EXPECT_THAT(SetValue(models, "0", {"32"}, &options), IsOk());
  EXPECT_THAT(SetValue(models, "one more", {"16"}, &options), StatusIs(kBad, "takes at most 10000 names"));
}

TEST(SettingsTest, SampleFileSaysTheDefaults) {
  const std::string text = ReadSource("config/icached.yaml");
  // Every slot starts at another value than its default, where the file has a way to set it back.
  DaemonOptions options;
  Origins origins;
  Problems problems;
  ApplyConfigText(text, "icached.yaml", &options, &origins, &problems);
  ASSERT_THAT(problems.ToStatus(), IsOk());
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    EXPECT_EQ(ValueText(setting, options), ValueText(setting, defaults)) << setting.key;
  }
}

TEST(SettingsTest, SampleFileHasEverySetting) {
  const std::string text = ReadSource("config/icached.yaml");
  std::set<std::string> keys;
  Problems problems;
  ReadYaml(text, FileProblems("icached.yaml", &problems),
           [&](const YamlNode& document) { CollectKeys(document, "", &keys); });
  std::set<std::string> expected;
  for (const Setting& setting : Settings()) expected.emplace(setting.key);
  EXPECT_EQ(keys, expected);
}

TEST(SettingsTest, SampleFileNamesRangeAndDefaultOfEverySetting) {
  // The comment right above a key, up to the last line that is none.
  const std::string text = ReadSource("config/icached.yaml");
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    if (IsNamed(setting)) continue;
    const std::string leaf(setting.key.substr(setting.key.rfind('.') + 1));
    const std::string value = ValueText(setting, defaults);
    bool found = false;
    std::string comment;
    for (const std::string& line : lines) {
      const std::string stripped(absl::StripAsciiWhitespace(line));
      if (absl::StartsWith(stripped, "#")) {
        comment += stripped.substr(1);
        continue;
      }
      if (absl::StartsWith(stripped, leaf + ":")) {
        found = found || absl::StrContains(comment, "Default " + (value.empty() ? "\"\"" : value));
      }
      comment.clear();
    }
    EXPECT_TRUE(found) << setting.key << ": the sample's comment does not name the default " << value;
  }
}

TEST(SettingsTest, DocumentHasTheTable) {
  std::vector<std::string> expected;
  const DaemonOptions defaults;
  for (const Setting& setting : Settings()) {
    const std::string value = ValueText(setting, defaults);
    expected.push_back(absl::StrFormat("| `%s` | `%s %s` | %s | %s | %s | %s |", setting.key, setting.flag,
                                       setting.value_name, setting.help, setting.unit.empty() ? "–" : setting.unit,
                                       RangeText(setting), value.empty() ? "none" : "`" + value + "`"));
  }
  std::vector<std::string> actual;
  for (absl::string_view line : absl::StrSplit(ReadSource("docs/configuration.md"), '\n')) {
    if (absl::StrContains(line, "` | `--")) actual.emplace_back(line);
  }
  EXPECT_EQ(actual, expected);
}

TEST(SettingsTest, SamplePoliciesLoad) {
  const auto set = LoadPolicies(std::string(ICACHE_SOURCE_DIR) + "/config/policies");
  ASSERT_THAT(set, IsOk());
  EXPECT_EQ((*set)->policy_count(), 7u);
  EXPECT_EQ((*set)->QuotaFor("team-trial"), 10'000);
  EXPECT_EQ((*set)->PolicyFor("team-batch").eviction, EvictionAlgorithm::kLfu);
  EXPECT_TRUE((*set)->PolicyFor("team-gateway").require_chain);
}

}  // namespace
}  // namespace icache
