// StreamCacheEvents and StreamMetrics, over a real connection.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "icache/base/block_hash.h"
#include "tests/rpc/rpc_fixture.h"

namespace icache::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

template <typename Message>
struct Observation {
  grpc::ClientContext context;
  std::unique_ptr<grpc::ClientReader<Message>> reader;

  Message Read() {
    Message message;
    EXPECT_TRUE(reader->Read(&message));
    return message;
  }
};

class EventStreamTest : public RpcFixture {
 protected:
  using Events = Observation<wire::CacheEvent>;

  // Returns once the server listens for it.
  std::unique_ptr<Events> Observe(const wire::StreamEventsRequest& request = {}) {
    auto events = std::make_unique<Events>();
    events->context.set_deadline(PatienceEnds());
    events->reader = stub_->StreamCacheEvents(&events->context, request);
    events->reader->WaitForInitialMetadata();
    return events;
  }

  void ReportAll(const std::vector<wire::CacheStateUpdate>& updates) {
    grpc::ClientContext context;
    wire::Ack ack;
    const auto stream = stub_->ReportCacheState(&context, &ack);
    for (const wire::CacheStateUpdate& update : updates) EXPECT_TRUE(stream->Write(update));
    stream->WritesDone();
    EXPECT_TRUE(stream->Finish().ok());
  }

  static std::string Text(const wire::CacheEvent& event) {
    return wire::CacheEvent::Type_Name(event.type()) + " " + event.tenant_id() + "/" + event.model_id() + "/" +
           event.replica_id() + (event.adapter_id().empty() ? "" : "+" + event.adapter_id()) + " " +
           event.prefix_hash();
  }
};

TEST_F(EventStreamTest, TellsAllChangesInTheirOrder) {
  StartServer();
  const auto events = Observe();
  wire::CacheStateUpdate chain = Update("r0", "a");
  chain.mutable_prefixes(0)->add_block_hashes("b");
  chain.mutable_prefixes(0)->add_block_token_counts(16);
  chain.mutable_prefixes(0)->set_adapter_id("lora");
  wire::CacheStateUpdate rest = Update("r0", "c");
  rest.add_evicted_hashes("a");  // of the base partition, where it is not
  rest.mutable_stats()->set_pressure(0.5);
  wire::CacheStateUpdate cleared = Update("r0", "d");
  cleared.set_clear(true);
  ReportAll({chain, rest, cleared});
  wire::CacheEvent evicted;
  evicted.set_type(wire::CacheEvent::PREFIX_EVICTED);
  evicted.set_replica_id("r0");
  evicted.set_model_id("model");
  evicted.set_tenant_id("tenant");
  evicted.set_prefix_hash("d");
  grpc::ClientContext context;
  wire::Ack ack;
  ASSERT_TRUE(stub_->PublishEvent(&context, evicted, &ack).ok());

  const int64_t now_us = absl::ToUnixMicros(clock_.Now());
  for (const char* const expected :
       {"PREFIX_ADDED tenant/model/r0+lora a", "PREFIX_ADDED tenant/model/r0+lora b", "PREFIX_ADDED tenant/model/r0 c",
        "REPLICA_UPDATED tenant/model/r0 ", "ALL_CLEARED tenant/model/r0 ", "PREFIX_ADDED tenant/model/r0 d",
        "PREFIX_EVICTED tenant/model/r0 d"}) {
    const wire::CacheEvent event = events->Read();
    EXPECT_EQ(Text(event), expected);
    EXPECT_EQ(event.timestamp_us(), now_us);
  }
}

TEST_F(EventStreamTest, TellsOfExpiry) {
  StartServer();
  const auto events = Observe();
  ReportAll({Update("r0", "a")});
  clock_.Advance(absl::Hours(1));
  index_.Sweep(clock_.Now());
  EXPECT_EQ(Text(events->Read()), "PREFIX_ADDED tenant/model/r0 a");
  const wire::CacheEvent event = events->Read();
  EXPECT_EQ(Text(event), "PREFIX_EVICTED tenant/model/r0 a");
  EXPECT_EQ(event.timestamp_us(), absl::ToUnixMicros(clock_.Now()));
}

TEST_F(EventStreamTest, FiltersByTypeTenantAndModel) {
  StartServer();
  wire::StreamEventsRequest request;
  request.add_types(wire::CacheEvent::PREFIX_EVICTED);
  request.add_types(wire::CacheEvent::REPLICA_UPDATED);
  request.set_tenant_id("tenant");
  request.set_model_id("model");
  const auto events = Observe(request);
  wire::CacheStateUpdate other_tenant = Update("r0", "a");
  other_tenant.set_tenant_id("other");
  other_tenant.mutable_stats()->set_pressure(0.5);
  wire::CacheStateUpdate other_model = Update("r0", "a");
  other_model.set_model_id("other");
  other_model.mutable_stats()->set_pressure(0.5);
  wire::CacheStateUpdate update = Update("r1", "a");
  update.mutable_stats()->set_pressure(0.5);
  ReportAll({other_tenant, other_model, update});
  EXPECT_EQ(Text(events->Read()), "REPLICA_UPDATED tenant/model/r1 ");
}

TEST_F(EventStreamTest, WhoDoesNotReadIsToldHowManyItHasLost) {
  StartServer();
  const auto slow = Observe();
  constexpr int kUpdates = 3'000, kBlocks = 50;
  std::vector<wire::CacheStateUpdate> updates(kUpdates);
  uint64_t number = 0;
  for (wire::CacheStateUpdate& update : updates) {
    update = Update("r0", "");
    update.clear_prefixes();
    wire::PrefixEntry* const entry = update.add_prefixes();
    for (int i = 0; i < kBlocks; ++i) entry->add_block_hashes_u64(number++);
    entry->set_tokens_per_block(16);
  }
  ReportAll(updates);

  uint64_t next = 0, lost = 0;
  while (next < number) {
    const wire::CacheEvent event = slow->Read();
    ASSERT_EQ(event.prefix_hash().size(), 8);
    const uint64_t value = LoadBigEndian64(event.prefix_hash().data());
    if (event.type() == wire::CacheEvent::TYPE_UNSPECIFIED) {
      EXPECT_GT(event.timestamp_us(), 0);
      lost += value;
      next += value;
    } else {
      ASSERT_EQ(value, next);
      ++next;
    }
  }
  EXPECT_EQ(static_cast<uint64_t>(events_.lost()), lost);
}

TEST_F(EventStreamTest, NobodyIsListenedForOnceTheyHaveLeft) {
  StartServer();
  const auto events = Observe();
  EXPECT_TRUE(events_.IsListening(CacheEventType::kPrefixAdded));
  server_->Shutdown(absl::InfiniteDuration());
  EXPECT_FALSE(events_.IsListening(CacheEventType::kPrefixAdded));
  EXPECT_EQ(events->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

class MetricStreamTest : public RpcFixture {
 protected:
  using Metrics = Observation<wire::Metric>;

  MetricStreamTest() {
    samples_ = std::make_shared<std::vector<MetricSample>>(std::vector<MetricSample>{
        {.family = "up", .name = "up", .type = "gauge", .labels = {}, .value = 1},
        {.family = "calls", .name = "calls", .type = "counter", .labels = {{"model", "m"}, {"code", "c"}}, .value = 7},
        {.family = "lag", .name = "lag_bucket", .type = "histogram", .labels = {{"le", "+Inf"}}, .value = 3},
        {.family = "lag", .name = "lag_sum", .type = "histogram", .labels = {}, .value = 0.5},
        {.family = "lag", .name = "lag_count", .type = "histogram", .labels = {}, .value = 3}});
  }

  std::unique_ptr<Metrics> Observe(const std::vector<std::string>& names) {
    wire::StreamMetricsRequest request;
    for (const std::string& name : names) request.add_names(name);
    auto metrics = std::make_unique<Metrics>();
    metrics->context.set_deadline(PatienceEnds());
    metrics->reader = stub_->StreamMetrics(&metrics->context, request);
    return metrics;
  }
};

TEST_F(MetricStreamTest, TellsAllSeriesRoundByRound) {
  StartServer();
  const auto metrics = Observe({});
  for (int round = 0; round < 2; ++round) {
    for (const MetricSample& sample : *samples_) {
      const wire::Metric metric = metrics->Read();
      EXPECT_EQ(metric.name(), sample.name);
      EXPECT_EQ(metric.type(), sample.type);
      EXPECT_EQ(metric.value(), sample.value);
      EXPECT_EQ(metric.timestamp_us(), absl::ToUnixMicros(clock_.Now()));
      EXPECT_EQ(metric.labels().size(), sample.labels.size());
      for (const auto& [name, value] : sample.labels) EXPECT_EQ(metric.labels().at(name), value);
    }
  }
}

TEST_F(MetricStreamTest, TellsTheSeriesThatAreNamed) {
  StartServer();
  const auto metrics = Observe({"lag", "calls", "nothing"});
  std::vector<std::string> names;
  for (int i = 0; i < 5; ++i) names.push_back(metrics->Read().name());
  EXPECT_THAT(names, ElementsAre("calls", "lag_bucket", "lag_sum", "lag_count", "calls"));
  EXPECT_EQ(Observe({"lag_sum"})->Read().value(), 0.5);
}

TEST_F(MetricStreamTest, EndsWithTheServerBetweenTwoRounds) {
  StartServer();
  const auto metrics = Observe({"up"});
  metrics->Read();
  server_->Shutdown(absl::InfiniteDuration());
  wire::Metric metric;
  while (metrics->reader->Read(&metric)) {
  }
  EXPECT_EQ(metrics->reader->Finish().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(MetricStreamTest, OfNothingIsStillOpen) {
  StartServer();
  const auto metrics = Observe({"nothing"});
  metrics->reader->WaitForInitialMetadata();
  metrics->context.TryCancel();
  EXPECT_EQ(metrics->reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
}

}  // namespace
}  // namespace icache::testing
