// HostileWireTest: a real icached that a test mistreats. Each test ends with a daemon that serves on and then goes with
// exit status 0.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/config/temp_folder.h"
#include "tests/daemon/daemon_testing.h"
#include "tests/integration/icached_process.h"
#include "tests/integration/wire_client.h"
#include "tests/telemetry/page_reader.h"

namespace icache::testing {

class HostileWireTest : public ::testing::Test {
 protected:
  // The answers of "tenant" tell what the index holds: no floor hides a match and no fallback adds a row. "exact"
  // ignores chains.
  static constexpr char kPolicies[] = R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: tenant, namespace: tenant}
spec: {minimumMatchedTokens: 0, routingFloorScore: "0", affinityRouting: Disabled}
---
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: exact, namespace: exact}
spec: {affinityRouting: Disabled, strategy: {enableChainMatching: false}}
---
apiVersion: inferencecache.io/v1alpha1
kind: CacheTenant
metadata: {name: quoted}
spec: {tenantID: "quota \"\\ \u202e\n", quota: {maxIndexEntries: 1}}
)";

  // Starts the daemon with `flags`.
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--policy-path", policies_.Write("policies.yaml", kPolicies)});
    icached_ = std::make_unique<IcachedProcess>(std::move(flags));
    ASSERT_TRUE(icached_->ready()) << icached_->output();
    client_ = std::make_unique<WireClient>(icached_->grpc_address());
    client_->Report({Update("r0", "known")});
  }

  void TearDown() override {
    if (client_ == nullptr) return;
    ExpectServes();
    EXPECT_THAT(Metrics().problems(), ::testing::IsEmpty());
    EXPECT_EQ(icached_->Terminate(), 0) << icached_->output();
  }

  // What was known from the start is still found.
  void ExpectServes() {
    const wire::LookupRouteResponse answer = client_->Lookup(Lookup("known"));
    EXPECT_EQ(answer.reason_code(), "PREFIX_MATCH");
    ASSERT_EQ(answer.replica_scores_size(), 1);
    EXPECT_EQ(answer.replica_scores(0).replica_id(), "r0");
    EXPECT_EQ(answer.replica_scores(0).matched_tokens(), 16);
    EXPECT_EQ(HttpGet(icached_->http_port(), "/healthz").status, 200);
  }

  PageReader Metrics() { return PageReader(HttpGet(icached_->http_port(), "/metrics").body); }
  double Metric(const std::string& name, const Labels& labels = {}) {
    return Metrics().Value(name, labels).value_or(-1);
  }
  double Dropped(const std::string& reason) {
    return Metric("inferencecache_ingest_dropped_total", {{"reason", reason}});
  }
  double Holdings() { return Metric("inferencecache_index_holdings"); }
  double IndexBytes() { return Metric("inferencecache_index_memory_bytes"); }

  // An update of "tenant" without prefixes.
  static wire::CacheStateUpdate Update(const std::string& replica) {
    wire::CacheStateUpdate update;
    update.set_replica_id(replica);
    update.set_model_id("model");
    update.set_tenant_id("tenant");
    update.set_hash_scheme("scheme");
    return update;
  }
  // The same with one block of 16 tokens.
  static wire::CacheStateUpdate Update(const std::string& replica, const std::string& hash) {
    wire::CacheStateUpdate update = Update(replica);
    wire::PrefixEntry* const entry = update.add_prefixes();
    entry->add_block_hashes(hash);
    entry->add_block_token_counts(16);
    return update;
  }

  // A lookup of "tenant" without input.
  static wire::LookupRouteRequest Lookup() {
    wire::LookupRouteRequest request;
    request.set_model_id("model");
    request.set_tenant_id("tenant");
    request.set_hash_scheme("scheme");
    return request;
  }
  // The same for one block of 16 tokens.
  static wire::LookupRouteRequest Lookup(const std::string& hash) {
    wire::LookupRouteRequest request = Lookup();
    request.add_block_hashes(hash);
    request.add_block_token_counts(16);
    return request;
  }

  const TempFolder policies_;
  std::unique_ptr<IcachedProcess> icached_;
  std::unique_ptr<WireClient> client_;
};

}  // namespace icache::testing
