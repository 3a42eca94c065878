#include "icache/config/policy_loader.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/config/temp_folder.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempFolder;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

constexpr std::string_view kFull = R"(apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: chat, namespace: team-a}
spec:
  eviction: LFU
  evictionTTL: 1h30m
  minimumPrefixTokens: 1
  minimumMatchedTokens: 2
  routingFloorScore: "0.3"
  affinityRouting: Disabled
  lookupTimeoutMs: 4
  strategy: {enableChainMatching: true, requireChain: true, enableTenantHot: false}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: team-a}
spec: {tenantID: team-a, quota: {maxIndexEntries: 500000}}
)";

// A policy of namespace t with `spec` below "spec:", which stands in line 4.
std::string PolicyWith(std::string_view spec) {
  return absl::StrCat(
      "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {name: p, namespace: t}\nspec:\n",
      std::string(spec));
}

std::string TenantWith(std::string_view spec) {
  return absl::StrCat("apiVersion: inferencecache.io/v1alpha1\nkind: CacheTenant\nmetadata: {name: t}\nspec:\n",
                      std::string(spec));
}

TEST(PolicyLoaderTest, ReadsEveryField) {
  const auto set = ParsePolicies(kFull, "p.yaml");
  ASSERT_THAT(set, IsOk());
  const CachePolicy& policy = (*set)->PolicyFor("team-a");
  EXPECT_EQ(policy.eviction, EvictionAlgorithm::kLfu);
  EXPECT_EQ(policy.eviction_ttl, absl::Minutes(90));
  EXPECT_EQ(policy.minimum_prefix_tokens, 1);
  EXPECT_EQ(policy.minimum_matched_tokens, 2);
  EXPECT_EQ(policy.routing_floor_score, 0.3);
  EXPECT_FALSE(policy.affinity_routing);
  EXPECT_EQ(policy.lookup_timeout_ms, 4);
  EXPECT_TRUE(policy.enable_chain_matching);
  EXPECT_TRUE(policy.require_chain);
  EXPECT_FALSE(policy.enable_tenant_hot);
  EXPECT_EQ((*set)->QuotaFor("team-a"), 500'000);
  EXPECT_EQ((*set)->policy_count(), 1u);
  EXPECT_EQ((*set)->tenant_count(), 1u);
}

TEST(PolicyLoaderTest, TellsWhereEachPolicyStands) {
  EXPECT_EQ(ParsePolicies(kFull, "p.yaml").value()->SourceOf("team-a"), "p.yaml:3:35");
}

TEST(PolicyLoaderTest, FieldsLeftOutHaveTheirDefaults) {
  for (const char* spec : {"", "  {}", "  strategy:\n", "  # all commented out\n"}) {
    const auto set = ParsePolicies(PolicyWith(spec), "p.yaml");
    ASSERT_THAT(set, IsOk()) << spec;
    const CachePolicy& policy = (*set)->PolicyFor("t");
    EXPECT_EQ((*set)->policy_count(), 1u);
    EXPECT_EQ(policy.eviction_ttl, std::nullopt);
    EXPECT_EQ(policy.minimum_matched_tokens, 64);
    EXPECT_EQ(policy.routing_floor_score, 0.1);
    EXPECT_TRUE(policy.affinity_routing);
  }
}

TEST(PolicyLoaderTest, AcceptsValuesAtTheirBounds) {
  for (const char* spec :
       {"  evictionTTL: 1ns\n", "  evictionTTL: \"30m\"\n", "  minimumPrefixTokens: 9223372036854775807\n",
        "  minimumMatchedTokens: 0\n", "  routingFloorScore: 0\n", "  routingFloorScore: \"0\"\n",
        "  routingFloorScore: 1e3\n", "  routingFloorScore: '1e3'\n", "  lookupTimeoutMs: -1\n",
        "  strategy: {enableChainMatching: false}\n", "  eviction: \"LRU\"\n"}) {
    EXPECT_THAT(ParsePolicies(PolicyWith(spec), "p.yaml"), IsOk()) << spec;
  }
}

TEST(PolicyLoaderTest, QuotaMayBeAbsentOrZero) {
  EXPECT_EQ(ParsePolicies(TenantWith("  tenantID: t\n"), "p").value()->QuotaFor("t"), std::nullopt);
  EXPECT_EQ(ParsePolicies(TenantWith("  {tenantID: t, quota: {}}\n"), "p").value()->tenant_count(), 1u);
  EXPECT_EQ(ParsePolicies(TenantWith("  {tenantID: t, quota: {maxIndexEntries: 0}}\n"), "p").value()->QuotaFor("t"), 0);
}

TEST(PolicyLoaderTest, IgnoresOtherMetadataAndStatus) {
  EXPECT_THAT(ParsePolicies(R"(apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata:
  name: chat
  namespace: team-a
  uid: 5
  labels: {a: b}
  annotations: {note: "x"}
status: {conditions: [{type: Ready, status: "True"}]}
spec: {}
)",
                            "p.yaml"),
              IsOk());
}

TEST(PolicyLoaderTest, EmptyTextIsAnEmptySet) {
  for (const char* text : {"", "# nothing\n", "---\n", "---\n---\n", "\n\n"}) {
    const auto set = ParsePolicies(text, "p.yaml");
    ASSERT_THAT(set, IsOk()) << text;
    EXPECT_EQ((*set)->policy_count(), 0u);
  }
}

TEST(PolicyLoaderTest, RefusesSpecsWithPlaceAndField) {
  struct Row {
    const char* spec;
    const char* message;
  };
  for (const auto& [spec, message] : {
           Row{"  ttl: 5m\n", "p.yaml:5:3: spec.ttl: unknown field"},
           Row{"  strategy: {chain: true}\n", "p.yaml:5:14: spec.strategy.chain: unknown field"},
           Row{"  []\n", "p.yaml:5:3: spec: must be a mapping, got a list"},
           Row{"  strategy: fast\n", "p.yaml:5:13: spec.strategy: must be a mapping, got a single value"},
           Row{"  eviction: FIFO\n", "p.yaml:5:13: spec.eviction: must be LRU or LFU, got \"FIFO\""},
           Row{"  eviction: lru\n", "p.yaml:5:13: spec.eviction: must be LRU or LFU, got \"lru\""},
           Row{"  eviction:\n", "spec.eviction: must be a single value, got null"},
           Row{"  eviction: {}\n", "p.yaml:5:13: spec.eviction: must be a single value, got a mapping"},
           Row{"  evictionTTL: 0s\n", "p.yaml:5:16: spec.evictionTTL: must be > 0, got 0"},
           Row{"  evictionTTL: -5s\n", "p.yaml:5:16: spec.evictionTTL: must be > 0, got -5s"},
           Row{"  evictionTTL: 30\n", "p.yaml:5:16: spec.evictionTTL: must be a duration"},
           Row{"  evictionTTL: 1d\n", "p.yaml:5:16: spec.evictionTTL: must be a duration"},
           Row{"  evictionTTL: inf\n", "p.yaml:5:16: spec.evictionTTL: must be a duration"},
           Row{"  minimumPrefixTokens: -1\n", "p.yaml:5:24: spec.minimumPrefixTokens: must be >= 0, got -1"},
           Row{"  minimumPrefixTokens: \"5\"\n", "p.yaml:5:24: spec.minimumPrefixTokens: must be an integer"},
           Row{"  minimumPrefixTokens: 5.0\n", "p.yaml:5:24: spec.minimumPrefixTokens: must be an integer"},
           Row{"  minimumPrefixTokens: 9223372036854775808\n",
               "spec.minimumPrefixTokens: must be an integer of at most"},
           Row{"  minimumMatchedTokens: -1\n", "p.yaml:5:25: spec.minimumMatchedTokens: must be >= 0, got -1"},
           Row{"  minimumMatchedTokens: true\n", "p.yaml:5:25: spec.minimumMatchedTokens: must be an integer"},
           Row{"  routingFloorScore: -0.1\n", "spec.routingFloorScore: must be finite and >= 0, got -0.1"},
           Row{"  routingFloorScore: \"-1\"\n", "spec.routingFloorScore: must be finite and >= 0, got -1"},
           Row{"  routingFloorScore: 1e999\n", "spec.routingFloorScore: must be finite and >= 0, got inf"},
           Row{"  routingFloorScore: \"nan\"\n", "p.yaml:5:22: spec.routingFloorScore: must be a number"},
           Row{"  routingFloorScore: .inf\n", "p.yaml:5:22: spec.routingFloorScore: must be a number"},
           Row{"  routingFloorScore: high\n", "p.yaml:5:22: spec.routingFloorScore: must be a number"},
           Row{"  routingFloorScore: \"\"\n", "p.yaml:5:22: spec.routingFloorScore: must be a number"},
           Row{"  affinityRouting: true\n", "spec.affinityRouting: must be Enabled or Disabled, got \"true\""},
           Row{"  lookupTimeoutMs: 2ms\n", "p.yaml:5:20: spec.lookupTimeoutMs: must be an integer"},
           Row{"  strategy: {enableTenantHot: yes}\n",
               "p.yaml:5:31: spec.strategy.enableTenantHot: must be true or false"},
           Row{"  strategy: {enableTenantHot: \"true\"}\n", "spec.strategy.enableTenantHot: must be true or false"},
           Row{"  strategy: {requireChain: 1}\n", "spec.strategy.requireChain: must be true or false"},
           Row{"  strategy:\n    requireChain: true\n    enableChainMatching: false\n",
               "p.yaml:6:19: spec.strategy.requireChain: needs enableChainMatching: true"},
           Row{"  eviction: LRU\n  eviction: LFU\n", "p.yaml:6:3: spec.eviction: is here twice, first in line 5"},
       }) {
    EXPECT_THAT(ParsePolicies(PolicyWith(spec), "p.yaml"), StatusIs(kBad, HasSubstr(message))) << spec;
  }
}

TEST(PolicyLoaderTest, RefusesTenantsWithPlaceAndField) {
  struct Row {
    const char* spec;
    const char* message;
  };
  for (const auto& [spec, message] : {
           Row{"", "p.yaml:1:1: spec.tenantID: must not be empty"},
           Row{"  tenantID: \"\"\n", "p.yaml:5:13: spec.tenantID: must not be empty"},
           Row{"  tenantID: 5\n", "p.yaml:5:13: spec.tenantID: must be a string, got 5"},
           Row{"  tenantId: t\n", "p.yaml:5:3: spec.tenantId: unknown field"},
           Row{"  {tenantID: t, quota: 5}\n", "p.yaml:5:24: spec.quota: must be a mapping, got a single value"},
           Row{"  {tenantID: t, quota: {max: 5}}\n", "p.yaml:5:25: spec.quota.max: unknown field"},
           Row{"  {tenantID: t, quota: {maxIndexEntries: -1}}\n",
               "p.yaml:5:42: spec.quota.maxIndexEntries: must be >= 0, got -1"},
           Row{"  {tenantID: t, quota: {maxIndexEntries: \"1\"}}\n",
               "p.yaml:5:42: spec.quota.maxIndexEntries: must be an integer"},
       }) {
    EXPECT_THAT(ParsePolicies(TenantWith(spec), "p.yaml"), StatusIs(kBad, HasSubstr(message))) << spec;
  }
}

TEST(PolicyLoaderTest, RefusesWhatIsNoManifest) {
  struct Row {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : {
           Row{"- a\n", "p.yaml:1:1: must be a mapping, got a list"},
           Row{"text\n", "p.yaml:1:1: must be a mapping, got a single value"},
           Row{"kind: CachePolicy\n", "p.yaml:1:1: apiVersion: must be inferencecache.io/v1alpha1, is missing"},
           Row{"apiVersion: inferencecache.io/v1\nkind: CachePolicy\n",
               "p.yaml:1:13: apiVersion: must be inferencecache.io/v1alpha1, got \"inferencecache.io/v1\""},
           Row{"apiVersion: inferencecache.io/v1alpha1\n",
               "p.yaml:1:1: kind: must be CachePolicy or CacheTenant, is missing"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: Deployment\n",
               "p.yaml:2:7: kind: must be CachePolicy or CacheTenant, got \"Deployment\""},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: [CachePolicy]\n",
               "p.yaml:2:7: kind: must be CachePolicy or CacheTenant, got a list"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nspec: {}\n",
               "p.yaml:1:1: metadata.namespace: must not be empty"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: ''}\n",
               "p.yaml:3:23: metadata.namespace: must not be empty"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: 7}\n",
               "p.yaml:3:23: metadata.namespace: must be a string, got 7"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: x\n",
               "p.yaml:3:11: metadata: must be a mapping, got a single value"},
           Row{"apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: t}\ndata: 1\n",
               "p.yaml:4:1: data: unknown field"},
           Row{"a: [\n", "p.yaml:1:4: not valid YAML"},
       }) {
    EXPECT_THAT(ParsePolicies(text, "p.yaml"), StatusIs(kBad, HasSubstr(message))) << text;
  }
}

TEST(PolicyLoaderTest, ANamespaceThatCannotBeReadIsReportedOnce) {
  const auto set = ParsePolicies(
      "apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\nmetadata: {namespace: [t]}\n", "p.yaml");
  EXPECT_THAT(set, StatusIs(kBad, "p.yaml:3:23: metadata.namespace: must be a single value, got a list"));
}

TEST(PolicyLoaderTest, RefusesTwoPoliciesOfOneNamespaceAcrossFiles) {
  const TextFile a = {"a.yaml", PolicyWith("")};
  const TextFile b = {"b.yaml", PolicyWith("")};
  EXPECT_THAT(ParsePolicies({a, b}),
              StatusIs(kBad, "b.yaml:3:32: metadata.namespace: \"t\" has a policy already, at a.yaml:3:32"));
}

TEST(PolicyLoaderTest, RefusesTwoQuotasOfOneTenant) {
  const std::string tenant = TenantWith("  tenantID: t\n");
  EXPECT_THAT(ParsePolicies(tenant + "---\n" + tenant, "p.yaml"),
              StatusIs(kBad, "p.yaml:11:13: spec.tenantID: \"t\" has a quota already, at p.yaml:5:13"));
}

TEST(PolicyLoaderTest, GathersTheProblemsOfAllDocumentsAndFiles) {
  const TextFile a = {"a.yaml", absl::StrCat(PolicyWith("  eviction: X\n"), "---\n", "kind: Y\n")};
  const TextFile b = {"b.yaml", "{"};
  const TextFile c = {"c.yaml", TenantWith("  quota: []\n")};
  const auto set = ParsePolicies({a, b, c});
  for (const char* message :
       {"a.yaml:5:13: spec.eviction", "\na.yaml:7:1: apiVersion", "\na.yaml:7:7: kind", "\nb.yaml:1:1: not valid YAML",
        "\nc.yaml:5:10: spec.quota", "\nc.yaml:1:1: spec.tenantID"}) {
    EXPECT_THAT(set, StatusIs(kBad, HasSubstr(message)));
  }
}

TEST(PolicyLoaderTest, LoadsOneFile) {
  const TempFolder folder;
  const auto set = LoadPolicies(folder.Write("any-name.txt", kFull));
  ASSERT_THAT(set, IsOk());
  EXPECT_EQ((*set)->policy_count(), 1u);
}

TEST(PolicyLoaderTest, NoPathIsAnEmptySet) { EXPECT_EQ(LoadPolicies("").value()->policy_count(), 0u); }

TEST(PolicyLoaderTest, LoadsTheYamlFilesOfAFolder) {
  const TempFolder folder;
  folder.Write("b.yml", absl::StrReplaceAll(PolicyWith(""), {{"namespace: t", "namespace: b"}}));
  folder.Write("a.yaml", PolicyWith(""));
  folder.Write("README.md", "not yaml: [");
  folder.Write("yaml", "not yaml: [");
  folder.Write(".hidden.yaml", "not yaml: [");
  folder.Write("..data/c.yaml", "not yaml: [");
  folder.Write("below/d.yaml", "not yaml: [");
  const auto set = LoadPolicies(folder.path());
  ASSERT_THAT(set, IsOk());
  EXPECT_EQ((*set)->policy_count(), 2u);
}

TEST(PolicyLoaderTest, AnEmptyFolderIsAnEmptySet) {
  const TempFolder folder;
  ASSERT_THAT(LoadPolicies(folder.path()), IsOk());
}

TEST(PolicyLoaderTest, ReadsAFolderInNameOrder) {
  const TempFolder folder;
  for (const char* name : {"c.yaml", "a.yml", "B.yaml", "b.yaml"}) folder.Write(name, name);
  const auto files = ReadFileSet({folder.path()}, Folders::kRead);
  ASSERT_THAT(files, IsOk());
  std::vector<std::string> texts;
  for (const TextFile& file : *files) texts.push_back(file.text);
  EXPECT_THAT(texts, ::testing::ElementsAre("B.yaml", "a.yml", "b.yaml", "c.yaml"));
}

TEST(PolicyLoaderTest, RefusesPathsThatCannotBeRead) {
  const TempFolder folder;
  EXPECT_THAT(LoadPolicies(folder / "missing"),
              StatusIs(kBad, (folder / "missing") + ": cannot be read: No such file or directory"));
  std::filesystem::create_symlink("nowhere", folder / "dangling.yaml");
  EXPECT_THAT(LoadPolicies(folder.path()), StatusIs(kBad, HasSubstr("dangling.yaml: cannot be read")));
}

TEST(PolicyLoaderTest, NeverWaitsForAPipe) {
  const TempFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe.yaml").c_str(), 0600), 0);
  EXPECT_THAT(LoadPolicies(folder.path()), StatusIs(kBad, HasSubstr("pipe.yaml: is not a regular file")));
  EXPECT_THAT(LoadPolicies(folder / "pipe.yaml"), StatusIs(kBad, HasSubstr("is not a regular file")));
}

TEST(PolicyLoaderTest, BoundsTheBytesOfAllFilesTogether) {
  const TempFolder folder;
  folder.Write("a.yaml", std::string(kMaxFileSetBytes - 2, '\n'));
  folder.Write("b.yaml", "#\n");
  EXPECT_THAT(ReadFileSet({folder.path()}, Folders::kRead), IsOk());
  folder.Write("b.yaml", "# \n");
  EXPECT_THAT(ReadFileSet({folder.path()}, Folders::kRead),
              StatusIs(kBad, HasSubstr("b.yaml: brings the files to more than")));
}

TEST(PolicyLoaderTest, BoundsTheNumberOfFiles) {
  const TempFolder folder;
  folder.Write("first.yaml", "");
  for (size_t i = 1; i < kMaxFolderFiles; ++i) {
    std::filesystem::create_hard_link(folder / "first.yaml", folder / absl::StrCat(i, ".yaml"));
  }
  EXPECT_THAT(LoadPolicies(folder.path()), IsOk());
  folder.Write("one-more.yaml", "");
  EXPECT_THAT(LoadPolicies(folder.path()), StatusIs(kBad, HasSubstr("has more than 10000 files")));
}

// Whatever the bytes, an answer comes back; and a text that was only cut or flipped is never taken in part: it is
// refused, or it is a set of its own.
TEST(PolicyLoaderTest, SurvivesCorruptText) {
  std::mt19937 random(7);
  const std::string pieces[] = {"[",      "]",    "{",    "}",   "- ",   "? ", ": ",          "&a ",   "*a ",
                                "!!str ", "|\n",  ">-\n", "'",   "\"",   "\t", "%YAML 1.2\n", "---\n", "...\n",
                                "#",      "\x04", "\xff", "\\x", "<<: ", "\r", "@",           "`"};
  for (int round = 0; round < 3'000; ++round) {
    std::string text(kFull);
    const int changes = 1 + static_cast<int>(random() % 6);
    for (int i = 0; i < changes && !text.empty(); ++i) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.resize(at);
          break;
        case 2:
          text.insert(at, pieces[random() % std::size(pieces)]);
          break;
        default:
          text.erase(at, 1 + random() % 40);
          break;
      }
    }
    const auto set = ParsePolicies(text, "p.yaml");
    if (!set.ok()) {
      EXPECT_THAT(set, StatusIs(kBad, HasSubstr("p.yaml:")));
    }
  }
}

TEST(PolicyLoaderTest, SurvivesRandomPieces) {
  std::mt19937 random(8);
  const std::string pieces[] = {"[",          "]",
                                "{",          "}",
                                "- ",         "? ",
                                ": ",         "&a ",
                                "*a ",        "!t ",
                                "|",          ">",
                                "'",          "\"",
                                "\t",         "\n",
                                "---\n",      "...\n",
                                "# ",         "a",
                                "spec",       "kind: CachePolicy",
                                "  ",         ", ",
                                "<<: ",       "~",
                                "%TAG ! x\n", "apiVersion: inferencecache.io/v1alpha1\n"};
  for (int round = 0; round < 3'000; ++round) {
    std::string text;
    const int count = static_cast<int>(random() % 60);
    for (int i = 0; i < count; ++i) text += pieces[random() % std::size(pieces)];
    (void)ParsePolicies(text, "p.yaml");
  }
}

}  // namespace
}  // namespace icache
