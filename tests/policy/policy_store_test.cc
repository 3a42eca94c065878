#include "icache/policy/policy_store.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace icache {
namespace {

TEST(PolicyStoreTest, StartsWithTheEmptySet) {
  const PolicyStore store(absl::Minutes(30));
  ASSERT_NE(store.Current(), nullptr);
  EXPECT_EQ(store.Current()->policy_count(), 0u);
}

TEST(PolicyStoreTest, TenantsWithoutAPolicyHaveTheServersRules) {
  const PolicyStore store(absl::Minutes(7));
  const RetentionRules rules = store.For("anyone");
  EXPECT_EQ(rules.ttl, absl::Minutes(7));
  EXPECT_EQ(rules.algorithm, EvictionAlgorithm::kLru);
  EXPECT_EQ(rules.max_prefixes, std::nullopt);
}

TEST(PolicyStoreTest, APolicyWithoutTtlHasTheServers) {
  const PolicyStore store(absl::Minutes(7));
  EXPECT_EQ(store.TtlOf({}), absl::Minutes(7));
  EXPECT_EQ(store.TtlOf({.eviction_ttl = absl::Seconds(1)}), absl::Seconds(1));
}

TEST(PolicyStoreTest, RulesComeFromPolicyAndQuota) {
  PolicyStore store(absl::Minutes(30));
  PolicySet set;
  set.AddPolicy("a", {.eviction = EvictionAlgorithm::kLfu, .eviction_ttl = absl::Hours(1)});
  set.AddTenant("a", 0);
  set.AddTenant("quota only", 9);
  store.Publish(std::make_shared<const PolicySet>(std::move(set)));
  const RetentionRules rules = store.For("a");
  EXPECT_EQ(rules.ttl, absl::Hours(1));
  EXPECT_EQ(rules.algorithm, EvictionAlgorithm::kLfu);
  EXPECT_EQ(rules.max_prefixes, 0);
  EXPECT_EQ(store.For("quota only").ttl, absl::Minutes(30));
  EXPECT_EQ(store.For("quota only").max_prefixes, 9);
}

TEST(PolicyStoreTest, VersionRisesWithEveryPublish) {
  PolicyStore store(absl::Minutes(30));
  uint64_t last = store.Version();
  for (int i = 0; i < 3; ++i) {
    store.Publish(std::make_shared<const PolicySet>());
    EXPECT_GT(store.Version(), last);
    last = store.Version();
  }
}

TEST(PolicyStoreTest, AReaderSeesEveryPublish) {
  PolicyStore store(absl::Minutes(30));
  Published<PolicySet>::Reader reader;
  EXPECT_EQ(reader.Current(store.sets())->QuotaFor("a"), std::nullopt);
  for (const int64_t quota : {1, 2}) {
    PolicySet set;
    set.AddTenant("a", quota);
    store.Publish(std::make_shared<const PolicySet>(std::move(set)));
    EXPECT_EQ(reader.Current(store.sets())->QuotaFor("a"), quota);
  }
}

TEST(PolicyStoreTest, ASnapshotOutlivesThePublishThatReplacesIt) {
  PolicyStore store(absl::Minutes(30));
  PolicySet set;
  set.AddPolicy("a", {.eviction_ttl = std::nullopt, .minimum_prefix_tokens = 5});
  store.Publish(std::make_shared<const PolicySet>(std::move(set)));
  const std::shared_ptr<const PolicySet> snapshot = store.Current();
  store.Publish(std::make_shared<const PolicySet>());
  EXPECT_EQ(snapshot->PolicyFor("a").minimum_prefix_tokens, 5);
  EXPECT_EQ(store.Current()->PolicyFor("a").minimum_prefix_tokens, 0);
}

}  // namespace
}  // namespace icache
