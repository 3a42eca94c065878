// A link and a daemon that speaks of clears as it is told to, over a real connection.
#include "bridge/daemon_link.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {
namespace {

namespace wire = ::inferencecache::v1alpha1;

constexpr ReplicaId kId = 7;
constexpr char kModel[] = "m";

bool Eventually(const std::function<bool()>& holds) {
  const absl::Time give_up_at = absl::Now() + absl::Seconds(60);
  while (!holds()) {
    if (absl::Now() > give_up_at) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

class FakeDaemon final : public wire::InferenceCache::Service {
 public:
  // `listens`: at once, else each stream of clears is never answered.
  explicit FakeDaemon(bool listens) : listens_(listens) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~FakeDaemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status ReportCacheState(grpc::ServerContext*, grpc::ServerReader<wire::CacheStateUpdate>* reader,
                                wire::Ack*) override {
    wire::CacheStateUpdate update;
    while (reader->Read(&update)) {
      const std::lock_guard lock(mutex_);
      models_.insert(update.model_id());
    }
    return grpc::Status::OK;
  }
  grpc::Status StreamCacheEvents(grpc::ServerContext* context, const wire::StreamEventsRequest*,
                                 grpc::ServerWriter<wire::CacheEvent>* writer) override {
    if (listens_) writer->SendInitialMetadata();
    std::unique_lock lock(mutex_);
    ++watches_;
    while (!context->IsCancelled()) {
      changed_.wait_for(lock, std::chrono::milliseconds(20));
      if (end_.has_value()) {
        const grpc::Status status = *std::exchange(end_, std::nullopt);
        return status;
      }
      for (; !events_.empty(); events_.pop_front()) writer->Write(events_.front());
    }
    return grpc::Status::OK;
  }

  // Ends a stream of clears.
  void End(const grpc::Status& status) {
    const std::lock_guard lock(mutex_);
    end_ = status;
    changed_.notify_all();
  }
  // Speaks of a clear of replica "r", or whatever `type` means.
  void Say(wire::CacheEvent::Type type, int64_t timestamp_us) {
    wire::CacheEvent event;
    event.set_type(type);
    event.set_model_id(kModel);
    event.set_tenant_id("t");
    event.set_replica_id("r");
    event.set_timestamp_us(timestamp_us);
    const std::lock_guard lock(mutex_);
    events_.push_back(event);
    changed_.notify_all();
  }

  const std::string& address() const { return address_; }
  int watches() {
    const std::lock_guard lock(mutex_);
    return watches_;
  }
  std::set<std::string> models() {
    const std::lock_guard lock(mutex_);
    return models_;
  }

 private:
  const bool listens_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::set<std::string> models_;  // under mutex_, as all behind it
  std::deque<wire::CacheEvent> events_;
  std::optional<grpc::Status> end_;
  int watches_ = 0;
};

class DaemonLinkTest : public ::testing::TestWithParam<grpc::StatusCode> {
 protected:
  static ReportOptions Options() {
    ReportOptions options;
    options.wire = WireChoice::kExtended;
    return options;
  }
  void Connect(FakeDaemon* daemon) {
    link_ = std::make_unique<DaemonLink>(daemon->address(), "", &options_, &logger_);
    ASSERT_TRUE(Eventually([&] { return link_->outbox()->stats().connected; }));
  }
  // Tells the daemon of a replica of `model`.
  void Tell(ReplicaId replica, const std::string& model) {
    auto update = std::make_shared<CacheStateUpdate>();
    update->set_replica_id("r");
    update->set_model_id(model);
    update->set_tenant_id("t");
    update->set_timestamp_us(1);
    link_->outbox()->Restart(replica, {{std::move(update), 1, absl::UnixEpoch()}});
  }
  bool IsOwed() { return link_->outbox()->NeedOf(kId) == Outbox::Need::kEverything; }

  const ReportOptions options_ = Options();
  NullLogger logger_;
  std::unique_ptr<DaemonLink> link_;
};

TEST_F(DaemonLinkTest, TheTimeOfAClearIsAFence) {
  FakeDaemon daemon(/*listens=*/true);
  Connect(&daemon);
  Tell(kId, kModel);
  ASSERT_TRUE(Eventually([&] { return daemon.models().contains(kModel); }));
  daemon.Say(wire::CacheEvent::ALL_CLEARED, 1000);
  EXPECT_TRUE(Eventually([&] { return IsOwed(); }));
  EXPECT_EQ(link_->outbox()->FenceOf(kId), absl::FromUnixMicros(1001));
  EXPECT_EQ(link_->counts().foreign_clears, 1);
}

TEST_F(DaemonLinkTest, BehindEventsThatAreMissingAllIsToldAnew) {
  FakeDaemon daemon(/*listens=*/true);
  Connect(&daemon);
  Tell(kId, kModel);
  ASSERT_TRUE(Eventually([&] { return daemon.models().contains(kModel); }));
  daemon.Say(wire::CacheEvent::TYPE_UNSPECIFIED, 1000);
  EXPECT_TRUE(Eventually([&] { return IsOwed(); }));
  EXPECT_EQ(link_->counts().foreign_clears, 0);
}

TEST_P(DaemonLinkTest, AStreamOfClearsThatEndsIsAskedForAgainAndAllIsToldAnew) {
  FakeDaemon daemon(/*listens=*/true);
  Connect(&daemon);
  Tell(kId, kModel);
  ASSERT_TRUE(Eventually([&] { return daemon.models().contains(kModel); }));
  daemon.End({GetParam(), "time is up"});
  EXPECT_TRUE(Eventually([&] { return IsOwed(); }));
  EXPECT_EQ(daemon.watches(), 2);
  EXPECT_EQ(link_->counts().connections, 1);
}

INSTANTIATE_TEST_SUITE_P(Codes, DaemonLinkTest,
                         ::testing::Values(grpc::StatusCode::OK, grpc::StatusCode::UNAVAILABLE,
                                           grpc::StatusCode::CANCELLED));

TEST_F(DaemonLinkTest, AStreamOfClearsThatNeverBeganAgainMakesNothingDue) {
  FakeDaemon daemon(/*listens=*/false);
  Connect(&daemon);
  Tell(kId, kModel);
  for (int ended = 1; ended <= 2; ++ended) {
    ASSERT_TRUE(Eventually([&] { return daemon.watches() == ended; }));
    daemon.End({grpc::StatusCode::UNAVAILABLE, "not yet"});
  }
  ASSERT_TRUE(Eventually([&] { return daemon.watches() == 3; }));
  EXPECT_TRUE(daemon.models().contains(kModel));
  EXPECT_FALSE(IsOwed());
}

TEST_F(DaemonLinkTest, ADaemonThatDoesNotSayThatItListensIsToldAllTheSame) {
  FakeDaemon daemon(/*listens=*/false);
  Connect(&daemon);
  for (ReplicaId replica = 0; replica < 40; ++replica) Tell(replica, absl::StrCat("m", replica));
  EXPECT_TRUE(Eventually([&] { return daemon.models().size() == 40; }));  // sooner than one patience for each
}

}  // namespace
}  // namespace icache
