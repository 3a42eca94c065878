#include <gmock/gmock.h>

#include "icache/policy/cache_policy.h"

namespace icache {
namespace {

TEST(PolicySetTest, TenantsWithoutAPolicyHaveTheDefaults) {
  const PolicySet set;
  const CachePolicy& policy = set.PolicyFor("anyone");
  EXPECT_EQ(policy.eviction, EvictionAlgorithm::kLru);
  EXPECT_EQ(policy.eviction_ttl, std::nullopt);
  EXPECT_EQ(policy.minimum_prefix_tokens, 0);
  EXPECT_EQ(policy.minimum_matched_tokens, 64);
  EXPECT_EQ(policy.routing_floor_score, 0.1);
  EXPECT_TRUE(policy.affinity_routing);
  EXPECT_EQ(policy.lookup_timeout_ms, 0);
  EXPECT_TRUE(policy.enable_chain_matching);
  EXPECT_FALSE(policy.require_chain);
  EXPECT_TRUE(policy.enable_tenant_hot);
  EXPECT_EQ(set.QuotaFor("anyone"), std::nullopt);
}

TEST(PolicySetTest, EachTenantHasItsOwnPolicy) {
  PolicySet set;
  EXPECT_TRUE(set.AddPolicy("a", {.eviction_ttl = std::nullopt, .minimum_matched_tokens = 1}));
  EXPECT_TRUE(set.AddPolicy("b", {.eviction_ttl = std::nullopt, .minimum_matched_tokens = 2}));
  EXPECT_EQ(set.policy_count(), 2u);
  EXPECT_EQ(set.PolicyFor("a").minimum_matched_tokens, 1);
  EXPECT_EQ(set.PolicyFor("b").minimum_matched_tokens, 2);
  EXPECT_EQ(set.PolicyFor("A").minimum_matched_tokens, 64);
  EXPECT_EQ(set.PolicyFor("").minimum_matched_tokens, 64);
}

TEST(PolicySetTest, ASecondPolicyOfOneTenantChangesNothing) {
  PolicySet set;
  EXPECT_TRUE(set.AddPolicy("a", {.eviction_ttl = std::nullopt, .minimum_matched_tokens = 1}));
  EXPECT_FALSE(set.AddPolicy("a", {.eviction_ttl = std::nullopt, .minimum_matched_tokens = 2}));
  EXPECT_EQ(set.PolicyFor("a").minimum_matched_tokens, 1);
  EXPECT_EQ(set.policy_count(), 1u);
}

TEST(PolicySetTest, ASecondQuotaOfOneTenantChangesNothing) {
  PolicySet set;
  EXPECT_TRUE(set.AddTenant("a", 5));
  EXPECT_FALSE(set.AddTenant("a", 6));
  EXPECT_EQ(set.QuotaFor("a"), 5);
  EXPECT_TRUE(set.AddTenant("b", std::nullopt));
  EXPECT_FALSE(set.AddTenant("b", 6));
  EXPECT_EQ(set.QuotaFor("b"), std::nullopt);
  EXPECT_TRUE(set.AddTenant("c", 0));
  EXPECT_EQ(set.QuotaFor("c"), 0);
  EXPECT_EQ(set.tenant_count(), 3u);
}

TEST(PolicySetTest, PoliciesAndQuotasAreApart) {
  PolicySet set;
  set.AddTenant("a", 5);
  EXPECT_TRUE(set.AddPolicy("a", {}));
  EXPECT_EQ(set.policy_count(), 1u);
  EXPECT_EQ(set.tenant_count(), 1u);
}

TEST(PolicySetTest, TellsWhereAPolicyStands) {
  PolicySet set;
  set.AddPolicy("a", {}, "p.yaml:3:7");
  EXPECT_FALSE(set.AddPolicy("a", {}, "p.yaml:9:7"));
  EXPECT_EQ(set.SourceOf("a"), "p.yaml:3:7");
  EXPECT_EQ(set.SourceOf("b"), "");
}

TEST(PolicySetTest, NamesItsTenantsOnceAndInOrder) {
  PolicySet set;
  set.AddPolicy("b", {});
  set.AddPolicy("a", {});
  set.AddTenant("b", 5);
  set.AddTenant("c", std::nullopt);
  EXPECT_THAT(set.Tenants(), ::testing::ElementsAre("a", "b", "c"));
}

}  // namespace
}  // namespace icache
