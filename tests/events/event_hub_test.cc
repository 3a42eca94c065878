#include "icache/events/event_hub.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/testing/fake_clock.h"

namespace icache::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventHubTest : public ::testing::Test {
 protected:
  static constexpr size_t kMaxQueued = 4;

  std::unique_ptr<EventSubscription> Subscribe(EventFilter filter = {}) {
    return hub_.Subscribe(std::move(filter), [this] { ++news_; });
  }

  static IndexChange Change(CacheEventType type, std::string_view replica, absl::Span<const BlockHash> hashes = {}) {
    return {.type = type,
            .tenant_id = "tenant",
            .model_id = "model",
            .replica_id = replica,
            .hash_scheme = "scheme",
            .adapter_id = {},
            .at = absl::FromUnixMicros(7),
            .hashes = hashes};
  }
  void Add(std::vector<uint64_t> numbers) {
    std::vector<BlockHash> hashes;
    for (const uint64_t number : numbers) hashes.emplace_back(number);
    hub_.OnChange(Change(CacheEventType::kPrefixAdded, "r", hashes));
  }

  // All events that wait, the number of a hash for each, or -n where n events have been lost.
  static std::vector<int64_t> Drain(EventSubscription* subscription) {
    std::vector<int64_t> numbers;
    HubEvent event;
    while (subscription->Next(&event)) {
      const auto number = static_cast<int64_t>(LoadBigEndian64(event.prefix_hash.data()));
      numbers.push_back(event.type == CacheEventType::kUnspecified ? -number : number);
    }
    return numbers;
  }

  FakeClock clock_;
  EventHub hub_{&clock_, kMaxQueued};
  int news_ = 0;
};

TEST_F(EventHubTest, ListensWhileSomebodyIsSubscribed) {
  EXPECT_FALSE(hub_.IsListening(CacheEventType::kPrefixAdded));
  auto first = Subscribe();
  auto second = Subscribe();
  first.reset();
  EXPECT_TRUE(hub_.IsListening(CacheEventType::kPrefixAdded));
  second.reset();
  EXPECT_FALSE(hub_.IsListening(CacheEventType::kPrefixAdded));
}

TEST_F(EventHubTest, ListensForWhatIsWantedAlone) {
  EventFilter filter;
  filter.types = {CacheEventType::kAllCleared};
  const auto clears = Subscribe(filter);
  EXPECT_TRUE(hub_.IsListening(CacheEventType::kAllCleared));
  EXPECT_FALSE(hub_.IsListening(CacheEventType::kPrefixAdded));
  const auto all = Subscribe();
  EXPECT_TRUE(hub_.IsListening(CacheEventType::kPrefixAdded));
}

TEST_F(EventHubTest, AnEventSaysAllThatTheChangeSays) {
  const auto subscription = Subscribe();
  const std::string wide = "a hash of another width";
  const BlockHash hash{std::string_view(wide)};
  IndexChange change = Change(CacheEventType::kPrefixEvicted, "r", absl::MakeConstSpan(&hash, 1));
  change.adapter_id = "lora";
  hub_.OnChange(change);

  HubEvent event;
  ASSERT_TRUE(subscription->Next(&event));
  EXPECT_EQ(event.type, CacheEventType::kPrefixEvicted);
  EXPECT_EQ(event.tenant_id, "tenant");
  EXPECT_EQ(event.model_id, "model");
  EXPECT_EQ(event.replica_id, "r");
  EXPECT_EQ(event.adapter_id, "lora");
  EXPECT_EQ(event.prefix_hash, wide);
  EXPECT_EQ(event.at, absl::FromUnixMicros(7));
  EXPECT_FALSE(subscription->Next(&event));
}

TEST_F(EventHubTest, AChangeOfAWholeReplicaIsOneEventWithoutHash) {
  const auto subscription = Subscribe();
  hub_.OnChange(Change(CacheEventType::kAllCleared, "r"));
  HubEvent event;
  ASSERT_TRUE(subscription->Next(&event));
  EXPECT_EQ(event.type, CacheEventType::kAllCleared);
  EXPECT_EQ(event.prefix_hash, "");
  EXPECT_FALSE(subscription->Next(&event));
}

TEST_F(EventHubTest, EverySubscriberReadsAllEventsInOrder) {
  const auto first = Subscribe();
  Add({1, 2});
  const auto second = Subscribe();
  Add({3});
  EXPECT_THAT(Drain(first.get()), ElementsAre(1, 2, 3));
  EXPECT_THAT(Drain(second.get()), ElementsAre(3));
  EXPECT_THAT(Drain(first.get()), IsEmpty());
}

TEST_F(EventHubTest, FiltersByModelTenantAndType) {
  const auto all = Subscribe();
  const auto model = Subscribe({.model_id = "model", .tenant_id = "", .types = {}});
  const auto other_model = Subscribe({.model_id = "mode", .tenant_id = "", .types = {}});
  const auto tenant = Subscribe({.model_id = "", .tenant_id = "tenant", .types = {}});
  const auto other_tenant = Subscribe({.model_id = "model", .tenant_id = "other", .types = {}});
  const auto type = Subscribe({.model_id = "", .tenant_id = "", .types = {CacheEventType::kPrefixAdded}});
  const auto other_type = Subscribe({.model_id = "", .tenant_id = "", .types = {CacheEventType::kAllCleared}});
  Add({1});
  for (const auto& subscription : {all.get(), model.get(), tenant.get(), type.get()}) {
    EXPECT_THAT(Drain(subscription), ElementsAre(1));
  }
  for (const auto& subscription : {other_model.get(), other_tenant.get(), other_type.get()}) {
    EXPECT_THAT(Drain(subscription), IsEmpty());
  }
}

TEST_F(EventHubTest, WhoIsTooFarBehindLosesTheOldestAndIsToldHowMany) {
  const auto subscription = Subscribe();
  Add({1, 2});
  Add({3, 4, 5});
  EXPECT_EQ(hub_.lost(), 1);
  EXPECT_THAT(Drain(subscription.get()), ElementsAre(-1, 2, 3, 4, 5));
  Add({6, 7, 8});
  HubEvent event;
  ASSERT_TRUE(subscription->Next(&event));  // 6, and 7 and 8 are left
  Add({9, 10, 11});
  Add({12});
  EXPECT_EQ(hub_.lost(), 3);
  EXPECT_THAT(Drain(subscription.get()), ElementsAre(-2, 9, 10, 11, 12));
}

TEST_F(EventHubTest, AChangeLargerThanTheQueueLosesItsBeginning) {
  const auto subscription = Subscribe();
  Add({1, 2, 3, 4, 5, 6, 7});
  EXPECT_THAT(Drain(subscription.get()), ElementsAre(-3, 4, 5, 6, 7));
}

TEST_F(EventHubTest, TheLossOfOneIsNotThatOfOthers) {
  const auto slow = Subscribe();
  const auto quick = Subscribe();
  for (const uint64_t i : {1, 2, 3, 4, 5, 6}) {
    Add({i});
    EXPECT_THAT(Drain(quick.get()), ElementsAre(i));
  }
  EXPECT_THAT(Drain(slow.get()), ElementsAre(-2, 3, 4, 5, 6));
}

TEST_F(EventHubTest, NewsComeOnceUntilTheQueueHasBeenEmptied) {
  const auto subscription = Subscribe();
  Add({1});
  Add({2});
  EXPECT_EQ(news_, 1);
  HubEvent event;
  ASSERT_TRUE(subscription->Next(&event));
  Add({3});
  EXPECT_EQ(news_, 1);  // it was not empty
  EXPECT_TRUE(subscription->HasNext());
  Drain(subscription.get());
  EXPECT_FALSE(subscription->HasNext());
  Add({4});
  EXPECT_EQ(news_, 2);
}

TEST_F(EventHubTest, SubscribersComeAndGoWhileEventsFlow) {
  absl::Notification done;
  std::thread writer([&] {
    for (uint64_t i = 0; i < 20'000; ++i) Add({i, i + 1});
    done.Notify();
  });
  while (!done.HasBeenNotified()) {
    const auto subscription = hub_.Subscribe({}, [] {});
    Drain(subscription.get());
  }
  writer.join();
  EXPECT_FALSE(hub_.IsListening(CacheEventType::kPrefixAdded));
}

}  // namespace
}  // namespace icache::testing
