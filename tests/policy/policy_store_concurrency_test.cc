#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "icache/policy/policy_store.h"

namespace icache {
namespace {

// A set whose policy and quota of tenant "a" both say `generation`.
std::shared_ptr<const PolicySet> MakeSet(int64_t generation) {
  PolicySet set;
  set.AddPolicy("a", {.eviction_ttl = absl::Seconds(generation)});
  set.AddTenant("a", generation);
  return std::make_shared<const PolicySet>(std::move(set));
}

TEST(PolicyStoreConcurrencyTest, EveryAnswerIsOfOneSet) {
  PolicyStore store(absl::Minutes(30));
  store.Publish(MakeSet(1));
  std::atomic<bool> done = false;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      uint64_t last_version = 0;
      int64_t last_generation = 0, last_read = 0;
      Published<PolicySet>::Reader reader;
      while (!done.load()) {
        const RetentionRules rules = store.For("a");
        EXPECT_EQ(absl::ToInt64Seconds(rules.ttl), rules.max_prefixes);
        EXPECT_GE(rules.max_prefixes.value_or(0), last_generation);
        last_generation = rules.max_prefixes.value_or(0);
        const PolicySet& set = *reader.Current(store.sets());
        EXPECT_EQ(absl::ToInt64Seconds(store.TtlOf(set.PolicyFor("a"))), set.QuotaFor("a"));
        EXPECT_GE(set.QuotaFor("a").value_or(0), last_read);
        last_read = set.QuotaFor("a").value_or(0);
        const uint64_t version = store.Version();
        EXPECT_GE(version, last_version);
        last_version = version;
      }
    });
  }
  for (int64_t generation = 2; generation <= 2000; ++generation) store.Publish(MakeSet(generation));
  done.store(true);
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(store.For("a").max_prefixes, 2000);
  EXPECT_EQ(store.Version(), 2000u);
}

}  // namespace
}  // namespace icache
