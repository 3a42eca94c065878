// Clients that misbehave below the messages: they ping too much, die, never read, or speak something else.
#include <atomic>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/hostile_wire_fixture.h"
#include "tests/integration/raw_http2.h"

namespace icache::testing {
namespace {

class HostileConnectionTest : public HostileWireTest {
 protected:
  int grpc_port() const {
    const std::string address = icached_->grpc_address();
    return std::stoi(address.substr(address.rfind(':') + 1));
  }
  int http_port() const { return icached_->http_port(); }
  // Not asked over HTTP, which takes a descriptor or two for the asking.
  size_t OpenFds() { return icached_->FdCount(); }

  static Frame Ping() { return {.type = FrameType::kPing, .payload = "12345678"}; }
};

std::string RandomBytes(std::mt19937* random, size_t size) {
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>((*random)());
  return bytes;
}

// ---------------------------------------------------------------------------------------------- pings and idleness

TEST_F(HostileConnectionTest, PingsAtTheShortestAllowedIntervalWithoutCallsAreAnswered) {
  Start({"--grpc-min-ping-interval", "100ms"});
  RawHttp2 pinger(grpc_port());
  for (int i = 0; i < 20; ++i) {
    ASSERT_TRUE(pinger.Send(Ping()));
    ASSERT_TRUE(pinger.Await(FrameType::kPing, kAck).has_value()) << "sent away at ping " << i;
    // The interval counts from when the server has taken the last one. Nothing is due meanwhile, least of all GOAWAY.
    const auto next = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    while (std::chrono::steady_clock::now() < next) {
      const std::optional<Frame> frame = pinger.Receive(std::chrono::milliseconds(101));
      ASSERT_TRUE(!frame.has_value() || frame->type != FrameType::kGoAway);
    }
  }
}

TEST_F(HostileConnectionTest, PingsWithoutPauseAreSentAway) {
  Start();
  RawHttp2 pinger(grpc_port());
  for (int i = 0; i < 100; ++i) pinger.Send(Ping());
  EXPECT_TRUE(pinger.Await(FrameType::kGoAway, 0).has_value());
  ExpectServes();
}

TEST_F(HostileConnectionTest, IdleReportStreamStaysOpenAndWorks) {
  Start({"--grpc-keepalive-time", "1s", "--grpc-keepalive-timeout", "20s", "--sweep-interval", "10ms"});
  grpc::ClientContext context;
  wire::Ack ack;
  const auto stream = client_->stub()->ReportCacheState(&context, &ack);
  ASSERT_TRUE(stream->Write(Update("r1", "before")));
  for (int i = 0; i < 2; ++i) {
    RawHttp2 clock(grpc_port());  // the server pings it when it has been idle for a second
    ASSERT_TRUE(clock.Await(FrameType::kPing, 0).has_value());
  }
  ASSERT_TRUE(stream->Write(Update("r1", "after")));
  stream->WritesDone();
  ASSERT_TRUE(stream->Finish().ok());
  EXPECT_TRUE(ack.accepted());
  EXPECT_EQ(client_->Lookup(Lookup("before")).reason_code(), "PREFIX_MATCH");
  EXPECT_EQ(client_->Lookup(Lookup("after")).reason_code(), "PREFIX_MATCH");
}

TEST_F(HostileConnectionTest, RunningOutOfFileDescriptorsIsOutlived) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "an address-sanitized daemon does not live without descriptors";
#endif
  Start();
  icached_->LimitFds(icached_->FdCount() + 36);
  {
    std::vector<std::unique_ptr<RawHttp2>> crowd;
    for (int i = 0; i < 64; ++i) crowd.push_back(std::make_unique<RawHttp2>(grpc_port()));
    EXPECT_TRUE(icached_->WaitForOutput("connections_wait listener=grpc"));
    EXPECT_EQ(client_->Lookup(Lookup("hash")).reason_code(), "NO_HINT");  // who is in is served
    EXPECT_EQ(HttpGet(icached_->http_port(), "/healthz").status, 200);    // and probes find descriptors
    std::vector<std::unique_ptr<RawConnection>> http_crowd;
    for (int i = 0; i < 16; ++i) http_crowd.push_back(std::make_unique<RawConnection>(icached_->http_port()));
    EXPECT_TRUE(icached_->WaitForOutput("connections_wait listener=http"));
  }
  const PageReader page(HttpGet(icached_->http_port(), "/metrics").body);
  for (const char* const listener : {"grpc", "http"}) {
    EXPECT_GE(page.Value("inferencecache_accept_failures_total", {{"listener", listener}}).value_or(0), 1) << listener;
  }
  WireClient newcomer(icached_->grpc_address());
  EXPECT_EQ(newcomer.Lookup(Lookup("hash")).reason_code(), "NO_HINT");
  ExpectServes();
}

// ---------------------------------------------------------------------------------------------- clients that die

TEST_F(HostileConnectionTest, ClientsThatDieMidStreamLeaveWhatTheyReportedAndNothingElse) {
  Start();
  const size_t open_fds = OpenFds();
  const std::string method = MethodName("ReportCacheState");
  for (int i = 0; i < 50; ++i) {
    RawHttp2 dying(grpc_port());
    RawConnection& connection = dying.connection();
    const std::string whole = EncodeMessage(1, Update("r1", std::to_string(i)).SerializeAsString(), false);
    ASSERT_TRUE(connection.Send(EncodeCall(1, method) + whole));
    connection.Send(std::string_view(whole).substr(0, i));  // and the beginning of another
    ASSERT_TRUE(Eventually([&] { return client_->Lookup(Lookup(std::to_string(i))).reason_code() == "PREFIX_MATCH"; }))
        << i;
    if (i % 2 == 0) connection.Reset();
  }
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
  EXPECT_EQ(Holdings(), 51);
}

TEST_F(HostileConnectionTest, CutMessagesAndResetStreamsHarmNoOtherStreamOfTheConnection) {
  Start();
  RawHttp2 client(grpc_port());
  RawConnection& connection = client.connection();
  const std::string method = MethodName("ReportCacheState");
  connection.Send(EncodeCall(1, method));
  // A message that says 1,000 bytes and has 3, and then the half-close.
  connection.Send(EncodeFrame({.type = FrameType::kData,
                               .flags = kEndStream,
                               .stream = 1,
                               .payload = std::string("\0\0\0\x03\xe8", 5) + "abc"}));
  connection.Send(EncodeCall(3, method));
  connection.Send(EncodeFrame({.type = FrameType::kResetStream, .stream = 3, .payload = std::string(4, '\0')}));
  connection.Send(EncodeCall(5, method) + EncodeMessage(5, Update("r1", "hash").SerializeAsString(), true));
  EXPECT_TRUE(Eventually([&] { return client_->Lookup(Lookup("hash")).reason_code() == "PREFIX_MATCH"; }));
}

TEST_F(HostileConnectionTest, ClientsThatNeverReadHoldNobodyUp) {
  Start();
  std::vector<wire::CacheStateUpdate> updates;
  for (int i = 0; i < 500; ++i) updates.push_back(Update("replica-" + std::to_string(i), "wide"));
  client_->Report(updates);
  const size_t open_fds = OpenFds();
  const std::string request = Lookup("wide").SerializeAsString();
  std::vector<std::unique_ptr<RawHttp2>> deaf;
  for (int i = 0; i < 10; ++i) {
    deaf.push_back(std::make_unique<RawHttp2>(grpc_port()));
    // Answers of 500 rows each, together far more than the connection's window takes.
    for (uint32_t stream = 1; stream < 200; stream += 2) {
      deaf.back()->connection().Send(EncodeCall(stream, MethodName("LookupRoute")) +
                                     EncodeMessage(stream, request, true));
    }
    ExpectServes();
  }
  for (const auto& client : deaf) client->connection().Reset();
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
}

TEST_F(HostileConnectionTest, AnswersThatNobodyReadsAreGivenUpOldestFirstBeyondABound) {
  Start({"--limits-max-unsent-bytes", "1048576"});
  std::vector<wire::CacheStateUpdate> updates;
  for (int i = 0; i < 500; ++i) updates.push_back(Update("replica-" + std::to_string(i), "wide"));
  client_->Report(updates);
  const std::string request = Lookup("wide").SerializeAsString();
  for (const std::string method : {"LookupRoute", "LookupRouteStream"}) {
    RawHttp2 deaf(grpc_port());
    constexpr uint32_t kCalls = 200;  // several kilobytes each, and as much again that gRPC holds for a call
    for (uint32_t call = 0; call < kCalls; ++call) {
      deaf.connection().Send(EncodeCall(2 * call + 1, MethodName(method)) +
                             EncodeMessage(2 * call + 1, request, method == "LookupRoute"));
    }
    for (uint32_t given_up = 0; given_up < kCalls / 2; ++given_up) {
      ASSERT_TRUE(deaf.Await(FrameType::kResetStream, 0).has_value()) << method << ", " << given_up;
    }
    ExpectServes();
  }
}

TEST_F(HostileConnectionTest, ObserversThatComeAndGoLeaveNothing) {
  Start();
  const size_t open_fds = OpenFds();
  for (int i = 0; i < 50; ++i) {
    RawHttp2 observer(grpc_port());
    for (uint32_t stream = 1; stream < 40; stream += 2) {
      observer.connection().Send(EncodeCall(stream, MethodName("StreamMetrics")) + EncodeMessage(stream, "", true));
    }
    if (i % 2 == 0) observer.connection().Reset();
  }
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
}

// ---------------------------------------------------------------------------------------------- garbage

TEST_F(HostileConnectionTest, GarbageOnTheGrpcPortHarmsNobody) {
  Start();
  const size_t open_fds = OpenFds();
  std::mt19937 random(1);
  const std::string hello = std::string(kHttp2Preface) + EncodeFrame({.type = FrameType::kSettings});
  const std::string call = hello + EncodeCall(1, MethodName("LookupRoute"));
  std::vector<std::string> garbage = {
      "",
      "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'x'),  // TLS
      std::string(kHttp2Preface.substr(0, 10)),
      std::string(kHttp2Preface) + std::string(100'000, '\0'),
      std::string(kHttp2Preface) + "\xff\xff\xff",                                             // a frame of 16 MB
      std::string(kHttp2Preface) + EncodeFrame(Ping()),                                        // no SETTINGS
      hello + EncodeFrame({.type = FrameType::kSettings, .stream = 1}),                        // on a stream
      hello + EncodeFrame({.type = FrameType::kSettings, .payload = "odd"}),                   // not of 6 bytes
      hello + EncodeFrame({.type = FrameType::kPing, .payload = "odd"}),                       // not of 8 bytes
      hello + EncodeFrame({.type = FrameType::kContinuation, .stream = 1, .payload = "x"}),    // of nothing
      hello + EncodeFrame({.type = FrameType::kData, .stream = 1, .payload = "x"}),            // before HEADERS
      hello + EncodeFrame({.type = FrameType::kData, .stream = 0, .payload = "x"}),            // on no stream
      hello + EncodeFrame({.type = FrameType::kHeaders, .flags = kEndHeaders, .stream = 2}),   // an even stream
      hello + EncodeFrame({.type = FrameType::kPushPromise, .stream = 1, .payload = "xxxx"}),  // of a client
      hello + EncodeFrame({.type = FrameType::kWindowUpdate, .payload = "\x7f\xff\xff\xff"}),  // too wide
      hello + EncodeFrame({.type = FrameType::kWindowUpdate, .payload = std::string(4, '\0')}),
      hello + EncodeFrame({.type = static_cast<FrameType>(200), .stream = 9, .payload = "unknown"}),
      // Header blocks that HPACK cannot read: an index that nothing has, and a number without an end.
      hello + EncodeFrame({.type = FrameType::kHeaders, .flags = kEndHeaders, .stream = 1, .payload = "\xff\xff\x7f"}),
      hello +
          EncodeFrame(
              {.type = FrameType::kHeaders, .flags = kEndHeaders, .stream = 1, .payload = std::string(100, '\xff')}),
      call + EncodeFrame({.type = FrameType::kHeaders, .stream = 3, .payload = "never continued"}),
      call + EncodeFrame({.type = FrameType::kData, .flags = kEndStream, .stream = 1}),  // no message
      call + EncodeFrame({.type = FrameType::kData,                                      // one of 4 GB
                          .stream = 1,
                          .payload = std::string("\0\xff\xff\xff\xff", 5)}),
      call + EncodeFrame({.type = FrameType::kData,  // an unknown packing
                          .flags = kEndStream,
                          .stream = 1,
                          .payload = std::string("\x07\0\0\0\1x", 6)}),
  };
  for (size_t size = 1; size < 100'000; size *= 3) {
    garbage.push_back(RandomBytes(&random, size));
    garbage.push_back(hello + RandomBytes(&random, size));
    garbage.push_back(call + RandomBytes(&random, size));
  }
  for (const std::string& bytes : garbage) {
    RawConnection connection(grpc_port());
    connection.Send(bytes);  // it may hang up in the middle
    connection.CloseSending();
    ExpectServes();
  }
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
}

TEST_F(HostileConnectionTest, EndlessHeadersHoldNobodyUp) {
  Start();
  const size_t open_fds = OpenFds();
  RawHttp2 client(grpc_port());
  // One header field after another, in a block that never ends.
  const std::string field = std::string("\0\x01x\x7d", 4) + std::string(125, 'v');
  std::string block;
  while (block.size() < 16'000) block += field;
  client.Send({.type = FrameType::kHeaders, .stream = 1, .payload = block});
  for (int i = 0; i < 500; ++i) {
    if (!client.Send({.type = FrameType::kContinuation, .stream = 1, .payload = block})) break;
    if (i % 50 == 0) ExpectServes();
  }
  client.connection().Reset();
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
}

TEST_F(HostileConnectionTest, GarbageOnTheHttpPortHarmsNobody) {
  Start();
  const size_t open_fds = OpenFds();
  std::mt19937 random(2);
  const std::string get = "GET /metrics HTTP/1.1\r\n";
  std::vector<std::string> garbage = {
      "",
      "\r\n\r\n",
      "GET",
      "GET /metrics",
      "GET /metrics HTTP/9.9\r\n\r\n",
      "GET  HTTP/1.1\r\n\r\n",
      "GET /../../etc/passwd HTTP/1.1\r\n\r\n",
      "POST /metrics HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "POST /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
      "GET /" + std::string(1 << 20, 'a') + " HTTP/1.1\r\n\r\n",
      get + "X: " + std::string(1 << 20, 'x') + "\r\n\r\n",
      get + std::string(1 << 20, '\n'),
      get + "no colon\r\n: no name\r\n\r\n",
      get,  // and no more
      std::string("GET /\0metrics HTTP/1.1\r\n\r\n", 25),
      std::string(kHttp2Preface),
      std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11),
  };
  for (size_t size = 1; size < 1'000'000; size *= 4) garbage.push_back(RandomBytes(&random, size));
  for (const std::string& bytes : garbage) {
    RawConnection connection(http_port());
    connection.Send(bytes);  // it may hang up in the middle
    connection.CloseSending();
    const std::string answer = connection.ReceiveAll();
    EXPECT_TRUE(answer.empty() || answer.rfind("HTTP/1.", 0) == 0) << answer.substr(0, 100);
    ExpectServes();
  }
  EXPECT_TRUE(Eventually([&] { return OpenFds() <= open_fds; }));
}

TEST_F(HostileConnectionTest, ScrapersThatNeverSpeakOrReadHoldNobodyUp) {
  Start();
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 40; ++i) {
    idle.push_back(std::make_unique<RawConnection>(http_port()));
    if (i % 2 == 0) idle.back()->Send("GET /metrics HTTP/1.1\r\n\r\n");
  }
  EXPECT_EQ(HttpGet(http_port(), "/healthz").status, 200);
}

// ---------------------------------------------------------------------------------------------- floods of clears

TEST_F(HostileConnectionTest, ClearsOfAnEmptyReplicaBesideLookupsGrowNothing) {
  Start();
  const double bytes = IndexBytes();
  std::atomic<bool> cleared = false;
  std::thread clearing([&] {
    WireClient client(icached_->grpc_address());
    wire::CacheStateUpdate clear = Update("nobody");
    clear.set_clear(true);
    std::vector<wire::CacheStateUpdate> clears;
    for (int i = 0; i < 10'000; ++i) {
      clear.set_timestamp_us(i % 2 == 0 ? 0 : absl::ToUnixMicros(absl::Now()));
      clears.push_back(clear);
    }
    client.Report(clears);
    cleared = true;
  });
  while (!cleared) ASSERT_EQ(client_->Lookup(Lookup("known")).reason_code(), "PREFIX_MATCH");
  clearing.join();
  EXPECT_EQ(IndexBytes(), bytes);
  // Nor did they leave a fence.
  wire::CacheStateUpdate earlier = Update("nobody", "hash");
  earlier.set_timestamp_us(absl::ToUnixMicros(absl::Now() - absl::Minutes(1)));
  client_->Report({earlier});
  EXPECT_EQ(Dropped("fenced"), 0);
  EXPECT_EQ(client_->Lookup(Lookup("hash")).reason_code(), "PREFIX_MATCH");
}

}  // namespace
}  // namespace icache::testing
