#include "daemon/debug_pages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "icache/index/sharded_index.h"
#include "icache/policy/policy_store.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::FakeClock;
using ::icache::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr char kNoUtf8[] = "t\xFF";

class DebugPagesTest : public ::testing::Test {
 protected:
  DebugPagesTest() {
    index_ = *CreateShardedIndex(options_.index, &policies_);
    pages_.emplace(&options_, &policies_, index_.get(), &clock_);
    pages_->RecordPolicyLoad(absl::OkStatus());
  }

  void Hold(const std::string& tenant, const std::string& model, const std::string& replica,
            const std::string& adapter = "", std::optional<StatsReport> stats = std::nullopt) {
    PrefixReport report;
    report.prefix_hash = "hash";
    report.token_count = 16;
    StateUpdate update;
    update.tenant_id = tenant;
    update.model_id = model;
    update.hash_scheme = "vllm";
    update.replica_id = replica;
    update.adapter_id = adapter;
    update.prefixes = absl::MakeConstSpan(&report, 1);
    update.stats = stats;
    ASSERT_TRUE(index_->ApplyUpdate(update, clock_.Now()).applied);
  }

  Json Config(const HttpQuery& query = {}) { return Json::parse(*pages_->Config(query)); }
  Json Policies(const HttpQuery& query = {}) { return Json::parse(*pages_->Policies(query)); }
  Json Index(const HttpQuery& query = {}) { return Json::parse(*pages_->Index(query)); }

  // The query behind a link, as the HTTP server would hand it on.
  static HttpQuery QueryOf(const std::string& link) {
    HttpQuery query;
    std::string rest = link.substr(link.find('?') + 1);
    while (!rest.empty()) {
      std::string part = rest.substr(0, rest.find('&'));
      rest.erase(0, part.size() + 1);
      const size_t equals = part.find('=');
      query.emplace_back(part.substr(0, equals), Unescaped(part.substr(equals + 1)));
    }
    return query;
  }
  static std::string Unescaped(const std::string& text) {
    std::string bytes;
    for (size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '%') {
        bytes += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        bytes += text[i];
      }
    }
    return bytes;
  }

  FakeClock clock_{absl::FromUnixSeconds(1'700'000'000)};
  DaemonOptions options_;
  PolicyStore policies_{absl::Minutes(30)};
  std::unique_ptr<PrefixIndex> index_;
  std::optional<DebugPages> pages_;
};

TEST_F(DebugPagesTest, ConfigHasEverySettingWithWhereItsValueComesFrom) {
  options_.index.max_entries = 5;
  options_.origins["index.max_entries"] = "icached.yaml:3:5: index.max_entries";
  bool found = false;
  const Json page = Config();
  for (const Json& row : page["settings"]) {
    if (row["key"] != "index.max_entries") {
      EXPECT_EQ(row["origin"], "default");
      continue;
    }
    found = true;
    EXPECT_EQ(row["value"], "5");
    EXPECT_EQ(row["origin"], "icached.yaml:3:5: index.max_entries");
  }
  EXPECT_TRUE(found);
  EXPECT_EQ(page["total"], page["settings"].size());
}

TEST_F(DebugPagesTest, SettingOfSeveralNamesHasARowForEach) {
  const size_t before = Config()["settings"].size();
  options_.router.block_size_by_model["llama"] = 32;
  options_.router.block_size_by_model[kNoUtf8] = 64;
  const Json page = Config();
  EXPECT_EQ(page["settings"].size(), before + 2);
  EXPECT_THAT(page.dump(), HasSubstr("models.llama.block_size"));
}

TEST_F(DebugPagesTest, NextLeadsThroughAllPagesOnce) {
  std::vector<std::string> keys;
  Json page = Config({{"limit", "7"}});
  for (;; page = Config(QueryOf(page["next"]))) {
    EXPECT_LE(page["settings"].size(), 7u);
    for (const Json& row : page["settings"]) keys.push_back(row["key"]);
    if (page["next"].is_null()) break;
  }
  std::vector<std::string> all;
  const Json whole = Config();
  for (const Json& row : whole["settings"]) all.push_back(row["key"]);
  EXPECT_EQ(keys, all);
}

TEST_F(DebugPagesTest, OffsetBehindTheEndIsAnEmptyPage) {
  const Json page = Config({{"offset", "1000000"}});
  EXPECT_TRUE(page["settings"].empty());
  EXPECT_TRUE(page["next"].is_null());
}

TEST_F(DebugPagesTest, BadQueryIsRefusedInClearWords) {
  const struct {
    HttpQuery query;
    const char* why;
  } kBad[] = {
      {{{"limit", "0"}}, "limit: must be a number from 1 to 1000, got \"0\""},
      {{{"limit", "1001"}}, "limit: must be a number from 1 to 1000, got \"1001\""},
      {{{"limit", "-1"}}, "limit: must be"},
      {{{"limit", ""}}, "limit: must be"},
      {{{"limit", "1e3"}}, "limit: must be"},
      {{{"offset", "99999999999999999999"}}, "offset: must be"},
      {{{"offset", "x\n"}}, "offset: must be a number from 0 to 1099511627776, got \"x\\n\""},
      {{{"limit", "1"}, {"limit", "1"}}, "limit: given more than once"},
      {{{"x", "1"}}, "unknown parameter \"x\""},
  };
  for (const auto& [query, why] : kBad) {
    EXPECT_THAT(pages_->Config(query).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
    EXPECT_THAT(pages_->Policies(query).status(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why)));
  }
  for (const HttpQuery& query :
       std::vector<HttpQuery>{{{"limit", "0"}},
                              {{"model", "m"}},
                              {{"tenant", "t"}, {"model", "m"}},
                              {{"offset", "1"}},
                              {{"after", ""}},
                              {{"after", "a.b.c"}},
                              {{"after", "!.b.c.d"}},
                              {{"tenant", "t"}, {"scheme", "s"}, {"model", ""}},
                              {{"tenant", "t"}, {"model", "m"}, {"scheme", "s"}, {"offset", "1"}}}) {
    EXPECT_THAT(pages_->Index(query).status(), StatusIs(absl::StatusCode::kInvalidArgument, Not("")));
  }
}

TEST_F(DebugPagesTest, PoliciesSayWhatIsInForceAndWhereItStands) {
  auto set = std::make_shared<PolicySet>();
  set->AddPolicy("team-a", {.eviction = EvictionAlgorithm::kLfu, .minimum_matched_tokens = 7}, "p.yaml:1:1");
  set->AddTenant("team-b", 1000);
  policies_.Publish(std::move(set));
  clock_.Advance(absl::Seconds(5));
  pages_->RecordPolicyLoad(absl::OkStatus());
  const Json page = Policies();
  EXPECT_EQ(page["in_force_since"], "2023-11-14T22:13:25.000000Z");
  EXPECT_TRUE(page["refused"].is_null());
  ASSERT_EQ(page["tenants"].size(), 2u);
  EXPECT_EQ(page["tenants"][0]["tenant"], "team-a");
  EXPECT_EQ(page["tenants"][0]["source"], "p.yaml:1:1");
  EXPECT_EQ(page["tenants"][0]["eviction"], "LFU");
  EXPECT_EQ(page["tenants"][0]["evictionTTL"], "30m");
  EXPECT_EQ(page["tenants"][0]["minimumMatchedTokens"], 7);
  EXPECT_TRUE(page["tenants"][1]["source"].is_null());
  EXPECT_EQ(page["tenants"][1]["maxIndexEntries"], 1000);
}

TEST_F(DebugPagesTest, RefusedPoliciesAreToldUntilOnesAreAccepted) {
  clock_.Advance(absl::Seconds(5));
  pages_->RecordPolicyLoad(absl::InvalidArgumentError("p.yaml:1:1: bad \xFF"));
  Json page = Policies();
  EXPECT_EQ(page["in_force_since"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(page["refused"]["at"], "2023-11-14T22:13:25.000000Z");
  EXPECT_EQ(page["refused"]["problems"], "p.yaml:1:1: bad \xEF\xBF\xBD");
  pages_->RecordPolicyLoad(absl::OkStatus());
  EXPECT_TRUE(Policies()["refused"].is_null());
}

TEST_F(DebugPagesTest, IndexListsPartitionsInOrderPageByPage) {
  Hold("t2", "m", "r0");
  Hold("t1", "m", "r0", "lora");
  Hold("t1", "m", "r1");
  Hold("t1", "a", "r0");
  std::vector<std::string> names;
  Json page = Index({{"limit", "1"}});
  for (;; page = Index(QueryOf(page["next"]))) {
    ASSERT_EQ(page["partitions"].size(), 1u);
    const Json& row = page["partitions"][0];
    names.push_back(row["tenant"].get<std::string>() + "/" + row["model"].get<std::string>() + "/" +
                    row["adapter"].get<std::string>() + "=" + std::to_string(row["scope_replicas"].get<int>()));
    if (page["next"].is_null()) break;
  }
  EXPECT_THAT(names, ElementsAre("t1/a/=1", "t1/m/=2", "t1/m/lora=2", "t2/m/=1"));
  EXPECT_EQ(page["entries"], 4);
  EXPECT_EQ(page["max_entries"], 1'000'000);
  EXPECT_GT(page["memory_bytes"], 0);
}

TEST_F(DebugPagesTest, IndexOfOneTenantHasItsPartitionsAlone) {
  Hold("t1", "m", "r0");
  Hold("t2", "a", "r0");
  Hold("t2", "b", "r0");
  Hold("t3", "m", "r0");
  const Json first = Index({{"tenant", "t2"}, {"limit", "1"}});
  ASSERT_EQ(first["partitions"].size(), 1u);
  EXPECT_EQ(first["partitions"][0]["model"], "a");
  const Json second = Index(QueryOf(first["next"]));
  ASSERT_EQ(second["partitions"].size(), 1u);
  EXPECT_EQ(second["partitions"][0]["model"], "b");
  EXPECT_TRUE(second["next"].is_null());
  EXPECT_TRUE(Index({{"tenant", "nobody"}})["partitions"].empty());
}

TEST_F(DebugPagesTest, ReplicasOfAScopeShowEntriesAgesAndStats) {
  Hold("t", "m", "r0");
  clock_.Advance(absl::Seconds(5));
  StatsReport stats;
  stats.hit_rate = 0.5;
  stats.client_version = "v1 \xFF";
  Hold("t", "m", "r0", "lora", stats);
  Hold("t", "m", "r1");
  const Json page = Index({{"tenant", "t"}, {"model", "m"}, {"scheme", "vllm"}, {"limit", "1"}});
  EXPECT_EQ(page["total"], 2);
  ASSERT_EQ(page["replicas"].size(), 1u);
  const Json& replica = page["replicas"][0];
  EXPECT_EQ(replica["replica"], "r0");
  EXPECT_EQ(replica["entries"], 2);
  EXPECT_EQ(replica["partitions"], 2);
  EXPECT_EQ(replica["oldest_seen"], "2023-11-14T22:13:20.000000Z");
  EXPECT_EQ(replica["newest_seen"], "2023-11-14T22:13:25.000000Z");
  EXPECT_TRUE(replica["lease"].is_null());
  EXPECT_EQ(replica["stats"]["hit_rate"], 0.5);
  EXPECT_EQ(replica["stats"]["client_version"], "v1 \xEF\xBF\xBD");
  const Json next = Index(QueryOf(page["next"]));
  ASSERT_EQ(next["replicas"].size(), 1u);
  EXPECT_EQ(next["replicas"][0]["replica"], "r1");
  EXPECT_TRUE(next["replicas"][0]["stats"].is_null());
  EXPECT_TRUE(next["next"].is_null());
}

TEST_F(DebugPagesTest, ReplicasThatComeAndGoNeitherHideNorDoubleOthers) {
  for (const char* replica : {"b", "d", kNoUtf8}) Hold("t", "m", replica);
  const HttpQuery scope = {{"tenant", "t"}, {"model", "m"}, {"scheme", "vllm"}, {"limit", "1"}};
  Json page = Index(scope);
  EXPECT_EQ(page["replicas"][0]["replica"], "b");
  Hold("t", "m", "a");
  page = Index(QueryOf(page["next"]));
  EXPECT_EQ(page["replicas"][0]["replica"], "d");
  CacheEvent gone;
  gone.type = CacheEventType::kAllCleared;
  gone.tenant_id = "t";
  gone.model_id = "m";
  gone.replica_id = "b";
  index_->ApplyEvent(gone, clock_.Now());
  page = Index(QueryOf(page["next"]));
  EXPECT_EQ(page["replicas"][0]["replica"], "t\xEF\xBF\xBD");
  EXPECT_TRUE(page["next"].is_null());
}

TEST_F(DebugPagesTest, UnknownScopeHasNoReplicas) {
  const Json page = Index({{"tenant", "t"}, {"model", "m"}, {"scheme", "vllm"}});
  EXPECT_EQ(page["total"], 0);
  EXPECT_TRUE(page["replicas"].empty());
}

TEST_F(DebugPagesTest, LinksCarryNamesByteForByte) {
  const std::string odd("a&b=c%\xFF\0/", 9);
  Hold(odd, odd, "r0");
  Hold("z", "m", "r0");
  const Json page = Index({{"limit", "1"}});
  const Json scope = Index(QueryOf(page["partitions"][0]["replicas"]));
  EXPECT_EQ(scope["total"], 1);
  EXPECT_EQ(Index(QueryOf(page["next"]))["partitions"][0]["tenant"], "z");
}

}  // namespace
}  // namespace icache
