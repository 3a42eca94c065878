// The real icache-bridge between a publisher's random life and the real icached, over real sockets.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>
#include <zmq.hpp>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bridge/engine_publisher.h"
#include "tests/config/temp_folder.h"
#include "tests/integration/icached_process.h"
#include "tests/integration/wire_client.h"
#include "tests/testing/observations.h"

namespace icache::testing {
namespace {

constexpr char kModel[] = "model";
constexpr char kTenant[] = "tenant";
constexpr char kReplica[] = "replica";
constexpr absl::Duration kPatience = absl::Seconds(60);

// Waits until `holds` does; false when it never does.
bool Eventually(const std::function<bool()>& holds) {
  const absl::Time give_up_at = absl::Now() + kPatience;
  while (!holds()) {
    if (absl::Now() > give_up_at) return false;
    absl::SleepFor(absl::Milliseconds(20));
  }
  return true;
}

// icached at an address of its own choice that survives it.
class Daemon {
 public:
  explicit Daemon(const std::string& ttl = "30m") : ttl_(ttl) {
    folder_.Write("policy.yaml", absl::StrCat("apiVersion: inferencecache.io/v1alpha1\nkind: CachePolicy\n"
                                              "metadata: {name: p, namespace: ",
                                              kTenant, "}\nspec: {evictionTTL: ", ttl,
                                              ", minimumMatchedTokens: 0, routingFloorScore: \"0\", "
                                              "affinityRouting: Disabled}\n"));
    Start();
  }

  void Start() {
    process_.reset();
    process_ = std::make_unique<IcachedProcess>(std::vector<std::string>{"--grpc-address", address(), "--policy-path",
                                                                         folder_ / "policy.yaml", "--max-entries", "0",
                                                                         "--sweep-interval", "100ms"});
    EXPECT_TRUE(process_->ready()) << process_->output();
    client_ = std::make_unique<WireClient>(address());
  }
  void Kill() { process_.reset(); }
  void Signal(int number) { process_->Signal(number); }

  std::string address() const { return "unix:" + folder_ / "grpc.sock"; }
  int http_port() const { return process_->http_port(); }
  WireClient& client() { return *client_; }

  size_t Prefixes() { return static_cast<size_t>(client_->GetState(kTenant, kModel).summary().total_prefixes()); }
  // What `replica` holds of it.
  std::optional<HeldContent> Find(const ContentKey& key, const std::string& replica = kReplica) {
    wire::LookupRouteRequest request;
    request.set_tenant_id(kTenant);
    request.set_model_id(kModel);
    request.set_hash_scheme("vllm");
    request.set_adapter_id(key.first);
    request.set_prefix_hash(BytesOf(key.second));
    const wire::LookupRouteResponse answer = client_->Lookup(request);
    for (const wire::ReplicaScore& row : answer.replica_scores()) {
      if (answer.reason_code() == "PREFIX_MATCH" && row.replica_id() == replica) {
        return HeldContent{row.tier() == wire::CACHE_TIER_T1, row.matched_tokens()};
      }
    }
    return std::nullopt;
  }

  // Waits until it holds as much as `expected`, and looks whether it is that: at all of it, or at a large sample.
  void ExpectHolds(const HeldContents& expected) {
    EXPECT_TRUE(Eventually([&] { return Prefixes() == expected.size(); }))
        << Prefixes() << " prefixes, expected " << expected.size();
    const size_t stride = 1 + expected.size() / 5000;
    size_t wrong = 0;
    size_t i = 0;
    for (const auto& [key, content] : expected) wrong += i++ % stride == 0 && Find(key) != content;
    EXPECT_EQ(wrong, 0) << "of " << expected.size();
  }

 private:
  const std::string ttl_;
  TempFolder folder_;
  std::unique_ptr<IcachedProcess> process_;
  std::unique_ptr<WireClient> client_;
};

class BridgeProcess : public ChildProcess {
 public:
  explicit BridgeProcess(std::vector<std::string> flags) : ChildProcess("icache-bridge", std::move(flags), "started") {
    EXPECT_TRUE(ready()) << output();
  }

  std::string Metrics() const {
    httplib::Client client("127.0.0.1", http_port());
    const httplib::Result page = client.Get("/metrics");
    return page ? page->body : "";
  }
  // The sum of the samples of `series` whose labels hold `label`; -1 without one.
  double Metric(const std::string& series, const std::string& label = "") const {
    const std::string page = Metrics();
    double sum = -1;
    for (size_t at = 0; at < page.size();) {
      const std::string line = page.substr(at, page.find('\n', at) - at);
      at += line.size() + 1;
      if (line.rfind(series + "{", 0) != 0 || line.find(label) == std::string::npos) continue;
      sum = std::max(sum, 0.0) + std::stod(line.substr(line.rfind(' ')));
    }
    return sum;
  }
  bool IsReady() const {
    httplib::Client client("127.0.0.1", http_port());
    const httplib::Result answer = client.Get("/readyz");
    return answer && answer->status == 200;
  }
  std::string events_endpoint() const { return Logged("events"); }
};

std::vector<std::string> BridgeFlags(const EnginePublisher* publisher, const std::vector<const Daemon*>& daemons,
                                     std::vector<std::string> more = {}) {
  std::vector<std::string> flags = {
      "--model",        kModel,
      "--tenant",       kTenant,
      "--replica",      kReplica,
      "--adapter",      absl::StrCat(SimulatedEngine::kMappedLoraId, "=", SimulatedEngine::kMappedLora),
      "--http-address", "127.0.0.1:0"};
  if (publisher != nullptr) {
    flags.insert(flags.end(), {"--events", publisher->events()});
    if (publisher->replay().find('*') == std::string::npos)
      flags.insert(flags.end(), {"--replay", publisher->replay()});
  }
  for (const Daemon* daemon : daemons) flags.insert(flags.end(), {"--daemon", daemon->address()});
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

TEST(BridgeLifeTest, TheDaemonKnowsTheEnginesCacheAfterALongLife) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 1, .sends_root = true}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}));
  for (int i = 0; i < 10; ++i) {
    publisher.Live(10'000);
    if (i % 4 == 1) publisher.Restart();
  }
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_GT(bridge.Metric("inferencecache_bridge_dropped_blocks_total", "extra_keys"), 0);
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_malformed_total"), 0);
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_foreign_clears_total"), 0);
  EXPECT_TRUE(Eventually([&] { return bridge.IsReady(); }));
}

// A port of this host that is free, as is the next one.
int TwoFreePorts() {
  zmq::context_t context;
  while (true) {
    zmq::socket_t first(context, zmq::socket_type::pub);
    zmq::socket_t second(context, zmq::socket_type::pub);
    first.bind("tcp://127.0.0.1:*");
    const std::string endpoint = first.get(zmq::sockopt::last_endpoint);
    const int port = std::stoi(endpoint.substr(endpoint.rfind(':') + 1));
    try {
      second.bind(absl::StrCat("tcp://127.0.0.1:", port + 1));
      return port;
    } catch (const zmq::error_t&) {  // taken
    }
  }
}

TEST(BridgeLifeTest, EachRankIsAReplicaWithACacheOfItsOwn) {
  Daemon daemon;
  const int events = TwoFreePorts();
  const int replay = TwoFreePorts();
  std::vector<std::unique_ptr<EnginePublisher>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<EnginePublisher>(
        // The second leaves it to its port to say which it is.
        SimulatedEngineOptions{.seed = 20 + static_cast<uint64_t>(rank),
                               .clears = 0,
                               .rank = rank == 0 ? std::optional<int64_t>(rank) : std::nullopt},
        PublisherOptions{.loss = 0.01,
                         .events_at = absl::StrCat("tcp://127.0.0.1:", events + rank),
                         .replay_at = absl::StrCat("tcp://127.0.0.1:", replay + rank)}));
  }
  BridgeProcess bridge(BridgeFlags(ranks[0].get(), {&daemon}, {"--ranks", "2"}));
  std::set<ContentKey> ever_held;
  std::set<ContentKey> held;
  for (const auto& rank : ranks) {
    rank->Live(5'000);
    rank->Settle();
    for (const ContentKey& key : rank->engine().EverHeld()) ever_held.insert(key);
    for (const auto& [key, content] : rank->engine().Held()) held.insert(key);
  }
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() == held.size(); })) << daemon.Prefixes();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const HeldContents own = ranks[rank]->engine().Held();
    const std::string replica = absl::StrCat(kReplica, "@", rank);
    size_t wrong = 0;
    for (const ContentKey& key : ever_held) {
      const auto content = own.find(key);
      wrong += daemon.Find(key, replica) != (content == own.end() ? std::nullopt : std::optional(content->second));
    }
    EXPECT_EQ(wrong, 0) << replica << ", of " << ever_held.size();
  }
}

TEST(BridgeLifeTest, AnEngineMayStartAnewWithOtherRanks) {
  Daemon daemon;
  const int events = TwoFreePorts();
  const int replay = TwoFreePorts();
  std::vector<std::unique_ptr<EnginePublisher>> ports(2);
  std::unique_ptr<BridgeProcess> bridge;
  for (const auto& ranks : {std::vector{2, 3}, std::vector{4, 5}, std::vector{5, 4}}) {
    size_t held = 0;
    for (size_t i = 0; i < ports.size(); ++i) {
      ports[i].reset();  // whose port is the next one's
      ports[i] = std::make_unique<EnginePublisher>(
          SimulatedEngineOptions{.seed = 30 + static_cast<uint64_t>(ranks[i]), .clears = 0, .rank = ranks[i]},
          PublisherOptions{.events_at = absl::StrCat("tcp://127.0.0.1:", events + i),
                           .replay_at = absl::StrCat("tcp://127.0.0.1:", replay + i)});
    }
    if (bridge == nullptr) {
      bridge = std::make_unique<BridgeProcess>(BridgeFlags(ports[0].get(), {&daemon}, {"--ranks", "2"}));
    }
    for (const auto& port : ports) {
      port->Live(500);
      port->Settle();
      held += port->engine().Held().size();
    }
    // Engines that have changed places hold as many prefixes as before, so their number alone tells too little.
    EXPECT_TRUE(Eventually([&] {
      size_t wrong = 0;
      for (size_t i = 0; i < ports.size(); ++i) {
        const std::string replica = absl::StrCat(kReplica, "@", ranks[i]);
        for (const auto& [key, content] : ports[i]->engine().Held()) wrong += daemon.Find(key, replica) != content;
      }
      return wrong == 0 && daemon.Prefixes() == held;
    })) << daemon.Prefixes()
        << " of " << held;
  }
}

TEST(BridgeLifeTest, RanksOfBeforeAreClearedAtADaemonThatWasCutOffMeanwhile) {
  Daemon daemon;
  const int events = TwoFreePorts();
  const int replay = TwoFreePorts();
  std::vector<std::unique_ptr<EnginePublisher>> ports(2);
  const auto open = [&](int first_rank) {
    for (int i = 0; i < 2; ++i) {
      ports[i].reset();
      ports[i] = std::make_unique<EnginePublisher>(
          SimulatedEngineOptions{
              .seed = 40 + static_cast<uint64_t>(first_rank + i), .clears = 0, .rank = first_rank + i},
          PublisherOptions{.events_at = absl::StrCat("tcp://127.0.0.1:", events + i),
                           .replay_at = absl::StrCat("tcp://127.0.0.1:", replay + i)});
    }
  };
  const auto live = [&](size_t blocks) {
    size_t held = 0;
    for (const auto& port : ports) {
      port->Live(blocks);
      port->Settle();
      held += port->engine().Held().size();
    }
    return held;
  };
  open(0);
  BridgeProcess bridge(BridgeFlags(ports[0].get(), {&daemon}, {"--ranks", "2", "--write-timeout", "1s"}));
  size_t held = live(500);
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() == held; })) << daemon.Prefixes() << " of " << held;
  daemon.Signal(SIGSTOP);
  EXPECT_TRUE(Eventually([&] {
    live(10'000);
    return bridge.Metric("inferencecache_bridge_daemon_stalls_total") > 0;
  }));
  open(2);
  held = live(500);
  EXPECT_TRUE(Eventually([&] {
    return bridge.Metric("inferencecache_bridge_live_blocks") == static_cast<double>(held);
  })) << bridge.output();
  daemon.Signal(SIGCONT);
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() == held; })) << daemon.Prefixes() << " of " << held;
}

TEST(BridgeLifeTest, ANewEngineThatIsIdleIsClearedOnEachRank) {
  Daemon daemon;
  const int events = TwoFreePorts();
  const int replay = TwoFreePorts();
  std::vector<std::unique_ptr<EnginePublisher>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    ranks.push_back(std::make_unique<EnginePublisher>(
        SimulatedEngineOptions{.seed = 26 + static_cast<uint64_t>(rank), .clears = 0, .rank = rank},
        PublisherOptions{.events_at = absl::StrCat("tcp://127.0.0.1:", events + rank),
                         .replay_at = absl::StrCat("tcp://127.0.0.1:", replay + rank)}));
  }
  auto bridge = std::make_unique<BridgeProcess>(BridgeFlags(ranks[0].get(), {&daemon}, {"--ranks", "2"}));
  size_t held = 0;
  for (const auto& rank : ranks) {
    rank->Live(500);
    rank->Settle();
    held += rank->engine().Held().size();
  }
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() == held; })) << daemon.Prefixes();
  bridge.reset();
  for (const auto& rank : ranks) rank->Restart();
  bridge = std::make_unique<BridgeProcess>(BridgeFlags(ranks[0].get(), {&daemon}, {"--ranks", "2"}));
  daemon.ExpectHolds({});
}

TEST(BridgeLifeTest, LostBatchesAreReplayed) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 2, .bytes_hashes = true}, {.loss = 0.01});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}));
  publisher.Live(100'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_GT(bridge.Metric("inferencecache_bridge_replayed_batches_total"), 0);
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_losses_total"), 0);
}

TEST(BridgeLifeTest, ABridgeThatIsKilledStartsWhereItWas) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 3, .clears = 0}, {.loss = 0.01});
  auto bridge = std::make_unique<BridgeProcess>(BridgeFlags(&publisher, {&daemon}));
  for (int i = 0; i < 2; ++i) {
    publisher.Live(50'000);
    bridge.reset();  // by SIGKILL
    publisher.Live(1'000);
    bridge = std::make_unique<BridgeProcess>(BridgeFlags(&publisher, {&daemon}));
  }
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, ADaemonThatIsKilledIsToldEverythingAnew) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 4, .clears = 0}, {.loss = 0.01});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}));
  for (int i = 0; i < 2; ++i) {
    publisher.Live(50'000);
    daemon.Kill();
    publisher.Live(1'000);
    daemon.Start();
  }
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_EQ(bridge.Terminate(), 0);
  EXPECT_NE(bridge.output().find("daemon_lost"), std::string::npos);
  EXPECT_EQ(bridge.output().find("CANCELLED"), std::string::npos);
}

TEST(BridgeLifeTest, WhatSomebodyElseClearsIsToldAnew) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 27}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}));
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_foreign_clears_total"), 0);
  wire::CacheEvent clear;
  clear.set_type(wire::CacheEvent::ALL_CLEARED);
  clear.set_replica_id(kReplica);
  clear.set_model_id(kModel);
  clear.set_tenant_id(kTenant);
  daemon.client().Publish(clear);
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_foreign_clears_total") == 1; }));
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_EQ(bridge.Terminate(), 0);
  EXPECT_NE(bridge.output().find("replica_cleared"), std::string::npos);
}

TEST(BridgeLifeTest, WhatExpiredWhileTheBridgeSleptIsToldAnew) {
  Daemon daemon("2s");
  EnginePublisher publisher({.seed = 28}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--ttl", "2s"}));
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  bridge.Signal(SIGSTOP);
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() == 0; }));
  bridge.Signal(SIGCONT);
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, ToBeToldToStopIsNoFaultOfADaemonsThatIsNotThere) {
  BridgeProcess bridge(BridgeFlags(nullptr, {}, {"--events", "tcp://127.0.0.1:1", "--daemon", "unix:/nowhere/s"}));
  EXPECT_EQ(bridge.Terminate(), 0);
  EXPECT_EQ(bridge.output().find("told to stop"), std::string::npos);
}

TEST(BridgeLifeTest, ADaemonThatHangsDelaysNoOther) {
  Daemon daemon;
  Daemon hanging;
  EnginePublisher publisher({.seed = 5, .clears = 0}, {});
  BridgeProcess bridge(
      BridgeFlags(&publisher, {&daemon, &hanging}, {"--write-timeout", "1s", "--max-queued-blocks", "5000"}));
  publisher.Live(10'000);
  hanging.ExpectHolds(publisher.engine().Held());
  hanging.Signal(SIGSTOP);
  publisher.Live(90'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_daemon_stalls_total", "") > 0; }));
  EXPECT_LE(bridge.Metric("inferencecache_bridge_queued_blocks"), 5000 + 4096);
  hanging.Signal(SIGCONT);
  hanging.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, WithoutReplayNothingWrongIsClaimedForLongerThanATtl) {
  Daemon daemon("5s");
  EnginePublisher publisher({.seed = 6, .clears = 0}, {.replay = false, .loss = 0.01});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--ttl", "5s"}));
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_engine_connected") == 1; }));
  publisher.Live(20'000);
  publisher.Settle();
  const HeldContents held = publisher.engine().Held();
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_losses_total") > 0; }));
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_lease_lapsed") == 0; }));
  size_t wrong = 0;
  size_t right = 0;
  for (const ContentKey& key : publisher.engine().EverHeld()) {
    const bool claimed = daemon.Find(key).has_value();
    wrong += claimed && !held.contains(key);
    right += claimed && held.contains(key);
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(right, 0);
  EXPECT_GT(bridge.Metric("inferencecache_bridge_dropped_blocks_total", "unknown_parent"), 0);
}

TEST(BridgeLifeTest, WhatAnEarlierBridgeToldLivesOnForOneTtl) {
  Daemon daemon;  // whose own TTL is long
  EnginePublisher publisher({.seed = 18, .clears = 0}, {.replay = false});
  const std::vector<std::string> flags = BridgeFlags(&publisher, {&daemon}, {"--ttl", "2s"});
  const auto connected = [](const BridgeProcess& bridge) {
    return Eventually([&] { return bridge.Metric("inferencecache_bridge_engine_connected") == 1; });
  };
  auto bridge = std::make_unique<BridgeProcess>(flags);
  ASSERT_TRUE(connected(*bridge));
  publisher.Live(2'000);
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() > 200; }));
  bridge = std::make_unique<BridgeProcess>(flags);
  ASSERT_TRUE(connected(*bridge));
  publisher.Live(100);
  EXPECT_TRUE(Eventually([&] { return bridge->Metric("inferencecache_bridge_lease_lapsed") == 1; }));
  EXPECT_GT(daemon.Prefixes(), 200);
  EXPECT_TRUE(Eventually([&] { return bridge->Metric("inferencecache_bridge_lease_lapsed") == 0; }));
  EXPECT_TRUE(Eventually(
      [&] { return static_cast<double>(daemon.Prefixes()) == bridge->Metric("inferencecache_bridge_live_blocks"); }));
}

TEST(BridgeLifeTest, LeasesHoldUpWhatIsNeverNamedAgain) {
  Daemon daemon("2s");
  EnginePublisher publisher({.seed = 7, .clears = 0}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--ttl", "2s"}));
  publisher.Live(1'000);
  publisher.Settle();
  const HeldContents held = publisher.engine().Held();
  daemon.ExpectHolds(held);
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_leases_total") >= 5; }));
  daemon.ExpectHolds(held);
}

TEST(BridgeLifeTest, TheBaseWireSaysTheSame) {
  Daemon daemon("2s");
  EnginePublisher publisher({.seed = 8}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--wire", "base", "--ttl", "2s"}));
  publisher.Live(5'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_daemon_base_wire"), 1);
  // Told again in place of leases.
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_leases_total") >= 5; }));
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, ABridgeMayBindWhereTheEngineConnects) {
  Daemon daemon;
  BridgeProcess bridge(BridgeFlags(nullptr, {&daemon}, {"--events", "tcp://*:0"}));
  const std::string endpoint = bridge.events_endpoint();
  EnginePublisher publisher({.seed = 9},
                            {.replay = false, .connect_to = "tcp://127.0.0.1" + endpoint.substr(endpoint.rfind(':'))});
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_engine_connected") == 1; }));
  publisher.Live(1'000);
  EXPECT_TRUE(Eventually([&] { return daemon.Prefixes() > 0; }));
}

TEST(BridgeLifeTest, AProbeOfABoundPortIsNoEngineThatGoes) {
  Daemon daemon;
  BridgeProcess bridge(BridgeFlags(nullptr, {&daemon}, {"--events", "tcp://*:0"}));
  const std::string endpoint = bridge.events_endpoint();
  const std::string port = endpoint.substr(endpoint.rfind(':') + 1);
  EnginePublisher publisher({.seed = 19, .clears = 0}, {.replay = false, .connect_to = "tcp://127.0.0.1:" + port});
  EXPECT_TRUE(Eventually([&] {
    publisher.Live(1);
    return bridge.Metric("inferencecache_bridge_batches_total") > 0;
  }));
  const double losses = bridge.Metric("inferencecache_bridge_losses_total");  // of what came before it listened
  for (const char* greeting : {"", "GET / HTTP/1.1\r\n\r\n"}) {
    const int probe = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::stoi(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(probe, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(send(probe, greeting, strlen(greeting), 0), strlen(greeting));
    shutdown(probe, SHUT_WR);
    char answer[256];
    while (recv(probe, answer, sizeof(answer), 0) > 0) {  // until the bridge is done with it
    }
    close(probe);
  }
  // What comes behind them is seen behind them.
  const double batches = bridge.Metric("inferencecache_bridge_batches_total");
  publisher.Live(100);
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_batches_total") > batches; }));
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_engine_connected"), 1);
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_losses_total"), losses);
}

TEST(BridgeLifeTest, AnEngineMayHaveAnIpv6Address) {
  zmq::context_t context;
  zmq::socket_t publisher(context, zmq::socket_type::pub);
  publisher.set(zmq::sockopt::ipv6, true);
  try {
    publisher.bind("tcp://[::1]:*");
  } catch (const zmq::error_t&) {
    GTEST_SKIP() << "this host has no IPv6";
  }
  Daemon daemon;
  BridgeProcess bridge(BridgeFlags(nullptr, {&daemon}, {"--events", publisher.get(zmq::sockopt::last_endpoint)}));
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_engine_connected") == 1; }));
}

TEST(BridgeLifeTest, TheLastOfTheMostRanksIsAskedForAReplay) {
  zmq::context_t context;
  zmq::socket_t last(context, zmq::socket_type::router);
  last.bind("tcp://127.0.0.77:*");  // nobody else's
  const std::string endpoint = last.get(zmq::sockopt::last_endpoint);
  const std::string first =
      absl::StrCat("tcp://127.0.0.77:", std::stoi(endpoint.substr(endpoint.rfind(':') + 1)) - 255);
  Daemon daemon;
  const std::string elsewhere = absl::StrCat("tcp://127.0.0.78", first.substr(first.rfind(':')));
  BridgeProcess bridge(BridgeFlags(nullptr, {&daemon}, {"--events", elsewhere, "--replay", first, "--ranks", "256"}));
  zmq::pollitem_t item = {last.handle(), 0, ZMQ_POLLIN, 0};
  EXPECT_EQ(zmq::poll(&item, 1, absl::ToChronoMilliseconds(kPatience)), 1);
}

TEST(BridgeLifeTest, ABridgeThatIsToldSoClearsWhenItEnds) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 10}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--clear-on-exit"}));
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  EXPECT_EQ(bridge.Terminate(), 0);
  EXPECT_EQ(daemon.Prefixes(), 0);
}

TEST(BridgeLifeTest, ADaemonWhoseQueueHasOverflownIsClearedAtTheEnd) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 23}, {});
  BridgeProcess bridge(
      BridgeFlags(&publisher, {&daemon}, {"--clear-on-exit", "--max-queued-blocks", "1000", "--write-timeout", "1h"}));
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  daemon.Signal(SIGSTOP);
  EXPECT_TRUE(Eventually([&] {
    publisher.Live(10'000);
    return bridge.Metric("inferencecache_bridge_queue_overflows_total") > 0;
  }));
  bridge.Signal(SIGTERM);
  daemon.Signal(SIGCONT);
  EXPECT_EQ(bridge.Terminate(), 0);
  EXPECT_EQ(daemon.Prefixes(), 0);
}

TEST(BridgeLifeTest, WhatIsLeftIsSentAtTheEnd) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 11}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--batch-interval", "10s", "--batch-blocks", "1000000"}));
  EXPECT_TRUE(Eventually([&] { return bridge.IsReady(); }));
  publisher.Live(500);
  publisher.Settle();
  EXPECT_TRUE(Eventually([&] {
    return bridge.Metric("inferencecache_bridge_live_blocks") == static_cast<double>(publisher.engine().Held().size());
  }));
  EXPECT_EQ(bridge.Terminate(), 0);
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, AnEngineThatIsGoneIsClearedAndMayComeBack) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 12}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon}, {"--stats-interval", "100ms"}));
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
  publisher.Die();
  daemon.ExpectHolds({});
  EXPECT_EQ(bridge.Metric("inferencecache_bridge_engine_gone_total"), 1);
  publisher.Restart();
  publisher.Live(1'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, StatsComeFromTheEnginesMetrics) {
  Daemon daemon;
  httplib::Server metrics;
  metrics.Get("/metrics", [](const httplib::Request&, httplib::Response& response) {
    response.set_content(
        "vllm:num_requests_running{model_name=\"model\"} 6\nvllm:num_requests_waiting{model_name=\"model\"} 2\n"
        "vllm:kv_cache_usage_perc{model_name=\"model\"} 0.5\n",
        "text/plain");
  });
  const int port = metrics.bind_to_any_port("127.0.0.1");
  std::thread server([&] { metrics.listen_after_bind(); });
  EnginePublisher publisher({.seed = 13}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {&daemon},
                                   {"--metrics-url", absl::StrCat("http://127.0.0.1:", port, "/metrics"),
                                    "--stats-interval", "100ms", "--max-concurrency", "16", "--cache-bytes", "1000"}));
  wire::ReplicaStats stats;
  EXPECT_TRUE(Eventually([&] {
    const wire::GetCacheStateResponse state = daemon.client().GetState(kTenant, kModel);
    if (state.replicas().empty()) return false;
    stats = state.replicas(0);
    return true;
  }));
  EXPECT_EQ(stats.replica_id(), kReplica);
  EXPECT_FLOAT_EQ(stats.pressure(), 0.5);
  EXPECT_EQ(stats.cache_memory_bytes(), 500);
  metrics.stop();
  server.join();
}

TEST(BridgeLifeTest, WithoutAModelItRefusesToStart) {
  ChildProcess bridge("icache-bridge", {"--events", "tcp://127.0.0.1:5557", "--daemon", "127.0.0.1:9090"}, "started");
  EXPECT_FALSE(bridge.ready());
  EXPECT_NE(bridge.output().find("model: is required"), std::string::npos);
  EXPECT_EQ(bridge.Terminate(), 2);
}

TEST(BridgeLifeTest, AnEngineThatPublishesRubbishHarmsNoOther) {
  Daemon daemon;
  EnginePublisher publisher({.seed = 14}, {});
  zmq::context_t context;
  zmq::socket_t rubbish(context, zmq::socket_type::pub);
  rubbish.bind("tcp://127.0.0.1:*");
  TempFolder folder;
  const std::string config =
      folder.Write("bridge.yaml", absl::StrCat("engines:\n  - {events: \"", publisher.events(), "\", replay: \"",
                                               publisher.replay(), "\"}\n  - {replica: other, events: \"",
                                               rubbish.get(zmq::sockopt::last_endpoint), "\"}\n"));
  std::vector<std::string> flags = BridgeFlags(nullptr, {&daemon}, {"--config", config});
  BridgeProcess bridge(flags);
  std::mt19937_64 random(1);
  const auto bytes = [&](size_t size) {
    std::string text(size, '\0');
    for (char& c : text) c = static_cast<char>(random());
    return text;
  };
  EXPECT_TRUE(Eventually([&] {
    for (int i = 0; i < 10; ++i) {
      const size_t frames = 1 + random() % 4;
      for (size_t f = 1; f < frames; ++f) rubbish.send(zmq::buffer(bytes(8)), zmq::send_flags::sndmore);
      rubbish.send(zmq::buffer(bytes(random() % 100)), zmq::send_flags::none);
    }
    return bridge.Metric("inferencecache_bridge_malformed_total", "what=\"batch\"") > 100 &&
           bridge.Metric("inferencecache_bridge_malformed_total", "what=\"message\"") > 100;
  }));
  publisher.Live(5'000);
  publisher.Settle();
  daemon.ExpectHolds(publisher.engine().Held());
}

TEST(BridgeLifeTest, ANameReachesTheDaemonsBehindIt) {
  IcachedProcess daemon({});
  const std::string port = daemon.grpc_address().substr(daemon.grpc_address().rfind(':'));
  EnginePublisher publisher({.seed = 15, .clears = 0}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {}, {"--daemon", "dns:localhost" + port}));
  publisher.Live(500);
  WireClient client(daemon.grpc_address());
  EXPECT_TRUE(Eventually([&] { return client.GetState(kTenant, kModel).summary().total_prefixes() > 0; }));
}

// A daemon of before the extension fields: without reflection, and it would not know what to do with them.
class OldDaemon final : public wire::InferenceCache::Service {
 public:
  explicit OldDaemon(const std::shared_ptr<grpc::ServerCredentials>& credentials) {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~OldDaemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status ReportCacheState(grpc::ServerContext* context, grpc::ServerReader<wire::CacheStateUpdate>* reader,
                                wire::Ack* ack) override {
    if (refuses_) {
      ++refusals_;
      return {grpc::StatusCode::UNAUTHENTICATED, "who are you"};
    }
    wire::CacheStateUpdate update;
    while (reader->Read(&update)) {
      const std::lock_guard lock(mutex_);
      Note(*context);
      extended_ |= update.clear() || update.retains_all() || update.evicted_hashes_u64_size() > 0;
      for (const wire::PrefixEntry& entry : update.prefixes()) {
        extended_ |= entry.block_hashes_u64_size() > 0;
        for (const std::string& hash : entry.block_hashes()) held_.emplace(entry.adapter_id(), hash);
      }
    }
    ack->set_accepted(true);
    return grpc::Status::OK;
  }
  grpc::Status PublishEvent(grpc::ServerContext* context, const wire::CacheEvent* event, wire::Ack* ack) override {
    while (hangs_ && !context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
    const std::lock_guard lock(mutex_);
    Note(*context);
    if (event->type() == wire::CacheEvent::ALL_CLEARED) held_.clear();
    if (event->type() == wire::CacheEvent::PREFIX_EVICTED) {
      std::erase_if(held_, [&](const auto& key) {  // without an adapter, under all of them
        return key.second == event->prefix_hash() && (event->adapter_id().empty() || key.first == event->adapter_id());
      });
    }
    ack->set_accepted(true);
    return grpc::Status::OK;
  }

  // From now on no event is answered.
  void Hang() { hangs_ = true; }
  // Whether who reports is unknown.
  void Refuse(bool refuses) { refuses_ = refuses; }
  int refusals() const { return refusals_; }

  const std::string& address() const { return address_; }
  bool Holds(const HeldContents& expected) {
    const std::lock_guard lock(mutex_);
    std::set<std::pair<std::string, std::string>> keys;
    for (const auto& [key, content] : expected) keys.emplace(key.first, BytesOf(key.second));
    return held_ == keys;
  }
  bool saw_extensions() {
    const std::lock_guard lock(mutex_);
    return extended_;
  }
  std::string authorization() {
    const std::lock_guard lock(mutex_);
    return authorization_;
  }

 private:
  void Note(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("authorization");
    if (found != context.client_metadata().end()) authorization_.assign(found->second.data(), found->second.size());
  }

  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::atomic<bool> hangs_ = false;
  std::atomic<bool> refuses_ = false;
  std::atomic<int> refusals_ = 0;
  std::mutex mutex_;  // guards the rest
  std::set<std::pair<std::string, std::string>> held_;
  bool extended_ = false;
  std::string authorization_;
};

TEST(BridgeLifeTest, AnOlderDaemonGetsTheBaseWire) {
  OldDaemon daemon(grpc::InsecureServerCredentials());
  EnginePublisher publisher({.seed = 16}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {}, {"--daemon", daemon.address()}));
  publisher.Live(2'000);
  publisher.Settle();
  EXPECT_TRUE(Eventually([&] { return daemon.Holds(publisher.engine().Held()); }));
  EXPECT_FALSE(daemon.saw_extensions());
}

TEST(BridgeLifeTest, AnOlderDaemonThatHangsDelaysTheEndByTheGraceAlone) {
  OldDaemon daemon(grpc::InsecureServerCredentials());
  EnginePublisher publisher({.seed = 24}, {});
  BridgeProcess bridge(BridgeFlags(&publisher, {}, {"--daemon", daemon.address(), "--write-timeout", "1h"}));
  publisher.Live(500);
  publisher.Settle();
  EXPECT_TRUE(Eventually([&] { return daemon.Holds(publisher.engine().Held()); }));
  daemon.Hang();
  publisher.Restart();
  publisher.Live(500);
  EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_engine_restarts_total") > 0; }));
  EXPECT_EQ(bridge.Terminate(), 0);  // and not in an hour
}

TEST(BridgeLifeTest, ADaemonThatRefusesIsNotConnected) {
  for (const char* wire : {"base", "extended"}) {
    OldDaemon daemon(grpc::InsecureServerCredentials());
    daemon.Refuse(true);
    EnginePublisher publisher({.seed = 25}, {});
    BridgeProcess bridge(BridgeFlags(&publisher, {}, {"--daemon", daemon.address(), "--wire", wire}));
    EXPECT_TRUE(Eventually([&] { return daemon.refusals() > 2; }));
    EXPECT_EQ(bridge.Metric("inferencecache_bridge_daemon_connections_total"), 0);
    daemon.Refuse(false);
    EXPECT_TRUE(Eventually([&] { return bridge.Metric("inferencecache_bridge_daemon_connected") == 1; }));
    EXPECT_EQ(bridge.Terminate(), 0);
    EXPECT_NE(bridge.output().find("daemon_refuses"), std::string::npos);
    EXPECT_NE(bridge.output().find("who are you"), std::string::npos);
  }
}

TEST(BridgeLifeTest, TlsAndTokenAreUsed) {
  TempFolder folder;
  ASSERT_EQ(system(absl::StrCat("openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=daemon.test -addext "
                                "subjectAltName=DNS:daemon.test -keyout ",
                                folder / "key.pem", " -out ", folder / "cert.pem", " 2>/dev/null")
                       .c_str()),
            0);
  const auto read = [&](const char* name) {
    std::ifstream file(folder / name);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({read("key.pem"), read("cert.pem")});
  OldDaemon daemon(grpc::SslServerCredentials(tls));
  EnginePublisher publisher({.seed = 17}, {});
  BridgeProcess bridge(
      BridgeFlags(&publisher, {},
                  {"--daemon", daemon.address(), "--tls", "--tls-ca-file", folder / "cert.pem", "--tls-server-name",
                   "daemon.test", "--token-file", folder.Write("token", "secret-1\n")}));
  publisher.Live(500);
  publisher.Settle();
  EXPECT_TRUE(Eventually([&] { return daemon.Holds(publisher.engine().Held()); }));
  EXPECT_EQ(daemon.authorization(), "Bearer secret-1");
}

}  // namespace
}  // namespace icache::testing
