#include "icache/http/http_server.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "icache/net/listening_sockets.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Loopback addresses: to a server they are two clients.
constexpr uint32_t kOneAddress = INADDR_LOOPBACK;
constexpr uint32_t kOtherAddress = INADDR_LOOPBACK + 1;

// A connection that sends just what it is told to.
class RawClient {
 public:
  explicit RawClient(int port, uint32_t from = kOneAddress) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(from);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawClient() {
    if (fd_ >= 0) close(fd_);
  }

  // False once the server has closed the connection.
  bool Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t size = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
      if (size <= 0) return false;
      text.remove_prefix(static_cast<size_t>(size));
    }
    return true;
  }
  // Ends the connection with no more than a RST.
  void Reset() {
    const linger at_once = {.l_onoff = 1, .l_linger = 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
    close(std::exchange(fd_, -1));
  }
  void FinishSending() { shutdown(fd_, SHUT_WR); }

  // Waits for at least one byte; "" when the server has closed the connection.
  std::string ReadSome() {
    char buffer[4096];
    const ssize_t size = recv(fd_, buffer, sizeof(buffer), 0);
    return std::string(buffer, size > 0 ? static_cast<size_t>(size) : 0);
  }
  // Waits until the server closes the connection.
  std::string ReadAll() {
    std::string text;
    for (std::string piece; !(piece = ReadSome()).empty();) text += piece;
    return text;
  }

 private:
  int fd_;
};

constexpr char kHealthRequest[] = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
constexpr char kMetricsRequest[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class CutCounter final : public ConnectionObserver {
 public:
  void OnAcceptFailed(int /*error*/) override {}
  void OnHandshakeFailed(std::string_view /*client_address*/, std::string_view /*why*/) override {}
  void OnCompressedRequest() override {}
  void OnCut(Cut why) override { ++cuts_[static_cast<size_t>(why)]; }

  int cuts(Cut why) const { return cuts_[static_cast<size_t>(why)]; }

 private:
  std::array<std::atomic<int>, 2> cuts_ = {};
};

// Sets how many files this process may have open until the end.
class FileLimit {
 public:
  explicit FileLimit(rlim_t limit) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit lowered = {.rlim_cur = limit, .rlim_max = before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &lowered), 0);
  }
  FileLimit(const FileLimit&) = delete;
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_;
};

class HttpServerTest : public ::testing::Test {
 protected:
  // Clients of a test are slow only when the test says so.
  static HttpServerOptions Patient() {
    HttpServerOptions options;
    options.address = "127.0.0.1:0";
    options.idle_timeout = absl::Hours(1);
    options.request_timeout = absl::Hours(1);
    options.answer_timeout = absl::Hours(1);
    return options;
  }

  // As short as a time-out can be.
  static HttpServerOptions Impatient() {
    HttpServerOptions options = Patient();
    options.idle_timeout = absl::Seconds(1);
    return options;
  }

  void Start(const HttpServerOptions& options = Patient()) {
    HttpHandlers handlers = {.ready = [this] { return ready_; },
                             .metrics =
                                 [this] {
                                   ++scrapes_;
                                   return page_;
                                 }};
    handlers.pages["/debug/query"] = [](const HttpQuery& query) -> absl::StatusOr<std::string> {
      std::string body;
      for (const auto& [name, value] : query) body += name + "=" + value + ";";
      if (body == "bad=;") return absl::InvalidArgumentError("bad:\nno");
      return body;
    };
    handlers.connection_observer = &observer_;
    auto server = HttpServer::Start(options, std::move(handlers));
    ASSERT_THAT(server, IsOk());
    server_ = *std::move(server);
  }

  int port() const { return server_->port(); }
  httplib::Client Client() const { return httplib::Client("127.0.0.1", port()); }
  // The answer to a request, of which the server may refuse to read the rest.
  std::string Ask(std::string_view request, uint32_t from = kOneAddress) const {
    RawClient client(port(), from);
    client.Send(request);
    return client.ReadAll();
  }

  // Not changed while the server runs.
  absl::Status ready_ = absl::OkStatus();
  std::string page_ = "# HELP up 1\nup 1\n";
  std::atomic<int> scrapes_ = 0;
  CutCounter observer_;
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTest, IdentityThatTheLibraryCannotUseIsRefused) {
  EXPECT_THAT(
      CheckHttpIdentity({.certificate_chain = "none", .private_key = "none", .client_ca = "", .expires_at = {}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("GnuTLS refuses it: ")));
}

TEST_F(HttpServerTest, HealthzIsOk) {
  Start();
  const auto answer = Client().Get("/healthz");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "ok\n");
}

TEST_F(HttpServerTest, ReadyzIsOkWhileLookupsAreServed) {
  Start();
  const auto answer = Client().Get("/readyz");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->body, "ok\n");
}

TEST_F(HttpServerTest, ReadyzSaysWhyNotInOneLine) {
  ready_ = absl::UnavailableError("draining:\r\n2 calls left");
  Start();
  const auto answer = Client().Get("/readyz");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body, "draining:  2 calls left\n");
  EXPECT_EQ(Client().Get("/healthz")->status, 200);
}

TEST_F(HttpServerTest, MetricsIsThePageInPrometheusText) {
  Start();
  const auto answer = Client().Get("/metrics");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(answer->body, page_);
}

TEST_F(HttpServerTest, LargePageArrivesWhole) {
  page_ = std::string(20 << 20, 'x');
  Start();
  const auto answer = Client().Get("/metrics");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->body, page_);
}

TEST_F(HttpServerTest, HeadHasTheHeadersAndNoBody) {
  Start();
  for (const char* path : {"/healthz", "/readyz", "/metrics"}) {
    const std::string answer = Ask("HEAD " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_THAT(answer, AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\n"))) << path;
  }
  EXPECT_THAT(Ask("HEAD /metrics HTTP/1.1\r\n\r\n"), HasSubstr("Content-Length: " + std::to_string(page_.size())));
}

TEST_F(HttpServerTest, QueryIsIgnored) {
  Start();
  EXPECT_EQ(Client().Get("/metrics?format=text")->body, page_);
}

TEST_F(HttpServerTest, OtherPathsAreNotFound) {
  Start();
  for (const char* path : {"/", "/metrics/", "/healthzz", "/../metrics", "//metrics"}) {
    EXPECT_EQ(Client().Get(path)->status, 404) << path;
  }
  EXPECT_EQ(Client().Post("/nothing")->status, 404);
}

TEST_F(HttpServerTest, OtherMethodsAreNotAllowed) {
  Start();
  const auto answer = Client().Post("/metrics", "body", "text/plain");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 405);
  EXPECT_EQ(answer->get_header_value("Allow"), "GET, HEAD");
  EXPECT_EQ(Client().Delete("/healthz")->status, 405);
  EXPECT_THAT(Ask("get /healthz HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
}

TEST_F(HttpServerTest, PageIsJsonThatNobodyKeeps) {
  Start();
  const auto answer = Client().Get("/debug/query?limit=5&name=a%26b%00c");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 200);
  EXPECT_EQ(answer->get_header_value("Content-Type"), "application/json");
  EXPECT_EQ(answer->get_header_value("Cache-Control"), "no-store");
  EXPECT_EQ(answer->body, std::string("limit=5;name=a&b\0c;", 19));
}

TEST_F(HttpServerTest, PageThatIsAskedBadlyIsABadRequest) {
  Start();
  const auto answer = Client().Get("/debug/query?bad");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 400);
  EXPECT_EQ(answer->body, "bad: no\n");
}

TEST_F(HttpServerTest, PagesAreOnlyRead) {
  Start();
  EXPECT_THAT(Ask("HEAD /debug/query?a=b HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), HasSubstr("Content-Length: 4\r\n"), EndsWith("\r\n\r\n")));
  EXPECT_EQ(Client().Post("/debug/query", "body", "text/plain")->status, 405);
}

TEST_F(HttpServerTest, WhatIsNoRequestIsNotServed) {
  Start(Impatient());
  const std::string requests[] = {
      "\r\n\r\n",
      "GET\r\n\r\n",
      "GET /healthz\r\n\r\n",
      "GET  HTTP/1.1\r\n\r\n",
      " /healthz HTTP/1.1\r\n\r\n",
      "GET /a b HTTP/1.1\r\n\r\n",
      "GET healthz HTTP/1.1\r\n\r\n",
      "GET /healthz HTTP/2.0\r\n\r\n",
      "GET /healthz HTTP/1.1 \r\n\r\n",
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      std::string("\x16\x03\x01\0\r\n\r\n", 8),
  };
  for (const std::string& request : requests) {
    EXPECT_THAT(Ask(request), AnyOf(IsEmpty(), StartsWith("HTTP/1.1 4"), StartsWith("HTTP/1.1 505 "))) << request;
  }
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ConnectionIsClosedAfterItsFirstAnswer) {
  Start();
  const std::string answer = Ask(std::string(kHealthRequest) + kHealthRequest);
  EXPECT_THAT(answer, AllOf(HasSubstr("Connection: close\r\n"), EndsWith("\r\n\r\nok\n")));
  EXPECT_EQ(answer.find("HTTP/1.1", 1), std::string::npos);
}

TEST_F(HttpServerTest, RequestThatComesByteByByteIsAnswered) {
  Start();
  RawClient client(port());
  for (const char c : std::string(kHealthRequest)) ASSERT_TRUE(client.Send({&c, 1}));
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, RequestIsAnsweredToAClientThatHasFinishedSending) {
  Start();
  RawClient client(port());
  ASSERT_TRUE(client.Send(kHealthRequest));
  client.FinishSending();
  EXPECT_THAT(client.ReadAll(), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ConnectionThatEndsBeforeItsRequestIsClosedInTime) {
  Start(Impatient());
  RawClient client(port());
  ASSERT_TRUE(client.Send("GET /healthz HT"));
  client.FinishSending();
  EXPECT_THAT(client.ReadAll(), IsEmpty());
}

TEST_F(HttpServerTest, RequestHeadOverTheBoundIsRefusedAndItsAnswerArrives) {
  Start();
  const auto padded = [](size_t bytes) {
    return "GET /healthz HTTP/1.1\r\nA: " + std::string(bytes, 'x') + "\r\n\r\n";
  };
  EXPECT_THAT(Ask(padded(8 << 10)), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(padded(16 << 10)), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask(padded(1 << 20)), StartsWith("HTTP/1.1 431 "));
  EXPECT_THAT(Ask("GET /" + std::string(100'000, 'x')), StartsWith("HTTP/1.1 414 "));
}

TEST_F(HttpServerTest, TargetOverABoundIsRefusedAndItsAnswerArrives) {
  Start();
  const auto with_parameters = [](size_t count) {
    std::string target = "/healthz?a";
    for (size_t i = 1; i < count; ++i) target += i % 2 == 0 ? "&" : "&b=c";
    return "GET " + target + " HTTP/1.1\r\n\r\n";
  };
  EXPECT_THAT(Ask(with_parameters(64)), StartsWith("HTTP/1.1 200 "));
  for (const size_t count : {65u, 240u, 300u, 1000u, 2000u, 10'000u}) {
    EXPECT_THAT(Ask(with_parameters(count)), StartsWith("HTTP/1.1 414 ")) << count;
  }
  EXPECT_THAT(Ask("GET /" + std::string(8191, 'x') + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404 "));
  for (const size_t bytes : {8192u, 10'000u, 15'000u, 100'000u}) {
    EXPECT_THAT(Ask("GET /" + std::string(bytes, 'x') + " HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 414 ")) << bytes;
  }
}

TEST_F(HttpServerTest, BodyIsNotWaitedFor) {
  Start();
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n"), StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("POST /metrics HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody"),
              StartsWith("HTTP/1.1 405 "));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\nContent-Length: 4\r\n\r\nbo"), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask("GET /healthz HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n"),
              StartsWith("HTTP/1.1 413 "));
}

TEST_F(HttpServerTest, HandlerThatThrowsCostsItsRequestAlone) {
  auto server = HttpServer::Start(Patient(), {.ready = [] { return absl::OkStatus(); },
                                              .metrics = []() -> std::string { throw std::runtime_error("broken"); }});
  ASSERT_THAT(server, IsOk());
  server_ = *std::move(server);
  EXPECT_THAT(Ask(kMetricsRequest), IsEmpty());
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClientsThatDoNotAskHoldUpNobody) {
  Start();
  std::vector<RawClient> idle;
  for (int i = 0; i < 50; ++i) {
    idle.emplace_back(port());
    ASSERT_TRUE(idle.back().Send("GET /met"));
  }
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClientsThatDoNotReadHoldUpNobody) {
  page_ = std::string(8 << 20, 'x');  // more than socket buffers take
  Start();
  std::vector<RawClient> deaf;
  for (int i = 0; i < 20; ++i) {
    deaf.emplace_back(port());
    ASSERT_TRUE(deaf.back().Send(kMetricsRequest));
  }
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kMetricsRequest), EndsWith(page_));
}

TEST_F(HttpServerTest, AddressThatWastesItsShareIsServedAndLosesItsOldest) {
  HttpServerOptions options = Patient();
  options.max_connections_per_address = 4;
  Start(options);
  std::vector<RawClient> idle;
  for (int i = 0; i < 4; ++i) idle.emplace_back(port(), kOtherAddress);
  RawClient other(port());
  EXPECT_THAT(Ask(kHealthRequest, kOtherAddress), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(idle[0].ReadAll(), IsEmpty());
  for (RawClient* client : {&idle[1], &idle[3], &other}) {
    client->Send(kHealthRequest);
    EXPECT_THAT(client->ReadAll(), StartsWith("HTTP/1.1 200 "));
  }
}

TEST_F(HttpServerTest, AddressThatWastesItsShareCostsNobodyElseWhenAllIsFull) {
  HttpServerOptions options = Patient();
  options.max_connections = 4;
  options.max_connections_per_address = 3;
  options.least_stay = absl::ZeroDuration();
  Start(options);
  RawClient oldest(port());
  std::vector<RawClient> idle;
  for (int i = 0; i < 3; ++i) idle.emplace_back(port(), kOtherAddress);
  EXPECT_THAT(Ask(kHealthRequest, kOtherAddress), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(idle[0].ReadAll(), IsEmpty());
  oldest.Send(kHealthRequest);
  EXPECT_THAT(oldest.ReadAll(), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(observer_.cuts(Cut::kRoom), 1);
}

TEST_F(HttpServerTest, WhoHasAskedIsClosedLastForWantOfRoom) {
  page_ = std::string(8 << 20, 'x');  // more than socket buffers take
  HttpServerOptions options = Patient();
  options.max_connections_per_address = 2;
  options.least_stay = absl::Hours(1);
  Start(options);
  RawClient asked(port());
  ASSERT_TRUE(asked.Send(kMetricsRequest));
  ASSERT_THAT(asked.ReadSome(), StartsWith("HTTP/1.1 200 "));
  RawClient idle(port());
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(idle.ReadAll(), IsEmpty());
  EXPECT_THAT(asked.ReadAll(), EndsWith("x"));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(Ask(kMetricsRequest), EndsWith(page_));
}

TEST_F(HttpServerTest, ClientsThatHaveGoneInTheMiddleOfARequestTakeNoRoom) {
  HttpServerOptions options = Patient();
  options.max_connections = 2;
  options.least_stay = absl::Hours(1);
  Start(options);
  for (int i = 0; i < 20; ++i) {
    RawClient gone(port());
    ASSERT_TRUE(gone.Send("GET /healthz HTTP/1.1\r\n"));
  }
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(observer_.cuts(Cut::kRoom), 0);
}

TEST_F(HttpServerTest, ConnectionOverTheBoundIsServedOnceIdleOnesAreClosed) {
  HttpServerOptions options = Impatient();
  options.max_connections = 4;
  Start(options);
  std::vector<RawClient> idle;
  for (int i = 0; i < 10; ++i) idle.emplace_back(port());
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, MoreConnectionsAtOnceThanTheBoundAreAllServed) {
  constexpr int kThreads = 8;
  constexpr int kRequests = 50;
  HttpServerOptions options = Patient();
  options.max_connections = 4;
  Start(options);
  std::atomic<int> answered = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kRequests; ++i) {
        if (Ask(i % 2 == 0 ? kHealthRequest : kMetricsRequest).rfind("HTTP/1.1 200 ", 0) == 0) ++answered;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(answered.load(), kThreads * kRequests);
}

TEST_F(HttpServerTest, ClientThatDoesNotAskIsClosedInTime) {
  Start(Impatient());
  RawClient silent(port());
  RawClient slow(port());
  slow.Send("GET ");
  EXPECT_THAT(silent.ReadAll(), IsEmpty());
  EXPECT_THAT(slow.ReadAll(), IsEmpty());
}

TEST_F(HttpServerTest, ClientThatHasNotAskedInTimeIsClosedWhateverItHasSent) {
  HttpServerOptions options = Patient();
  options.request_timeout = absl::Milliseconds(50);
  Start(options);
  RawClient client(port());
  client.Send("GET /healthz");
  EXPECT_THAT(client.ReadAll(), IsEmpty());
  EXPECT_EQ(observer_.cuts(Cut::kSlow), 1);
}

TEST_F(HttpServerTest, ClientThatHasNotTakenItsAnswerInTimeIsClosed) {
  page_ = std::string(16 << 20, 'x');  // more than socket buffers take
  HttpServerOptions options = Patient();
  options.answer_timeout = absl::Milliseconds(50);
  Start(options);
  RawClient client(port());
  ASSERT_TRUE(client.Send(kMetricsRequest));
  // Sending fails only once the server has closed; what it sends is not read until then.
  while (client.Send("x")) {
  }
  EXPECT_EQ(observer_.cuts(Cut::kSlow), 1);
}

TEST_F(HttpServerTest, ClientsThatDoNotReadKeepNobodyOfTheirAddressOut) {
  page_ = std::string(8 << 20, 'x');  // more than socket buffers take
  HttpServerOptions options = Patient();
  options.max_connections_per_address = 4;
  Start(options);
  std::vector<RawClient> deaf;
  for (int i = 0; i < 4; ++i) {
    deaf.emplace_back(port());
    ASSERT_TRUE(deaf.back().Send(kMetricsRequest));
    ASSERT_THAT(deaf.back().ReadSome(), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(observer_.cuts(Cut::kRoom), 1);
}

TEST_F(HttpServerTest, ScrapersThatComeTogetherShareAPage) {
  page_ = std::string(16 << 20, 'x');  // more than socket buffers take
  HttpServerOptions options = Patient();
  options.metrics_shared_for = absl::Hours(1);
  Start(options);
  {
    RawClient deaf(port());
    ASSERT_TRUE(deaf.Send(kMetricsRequest));
    ASSERT_THAT(deaf.ReadSome(), StartsWith("HTTP/1.1 200 "));
    for (int i = 0; i < 3; ++i) EXPECT_THAT(Ask(kMetricsRequest), EndsWith(page_));
    EXPECT_EQ(scrapes_, 1);
    deaf.Reset();
  }
  // Nobody holds the page once the server has seen that.
  while (scrapes_ == 1) EXPECT_THAT(Ask(kMetricsRequest), EndsWith(page_));
}

TEST_F(HttpServerTest, ScraperGetsAPageOfItsOwnWhenTheLastOneIsOld) {
  page_ = std::string(16 << 20, 'x');
  HttpServerOptions options = Patient();
  options.metrics_shared_for = absl::ZeroDuration();
  Start(options);
  RawClient deaf(port());
  ASSERT_TRUE(deaf.Send(kMetricsRequest));
  ASSERT_THAT(deaf.ReadSome(), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kMetricsRequest), EndsWith(page_));
  EXPECT_EQ(scrapes_, 2);
}

TEST_F(HttpServerTest, PagesThatNobodyTakesAreBounded) {
  page_ = std::string(16 << 20, 'x');
  HttpServerOptions options = Patient();
  options.metrics_shared_for = absl::ZeroDuration();
  options.least_stay = absl::Hours(1);
  options.max_unsent_bytes = page_.size() + 1;
  Start(options);
  std::vector<RawClient> deaf;
  for (int i = 0; i < 2; ++i) {
    deaf.emplace_back(port());
    ASSERT_TRUE(deaf.back().Send(kMetricsRequest));
    ASSERT_THAT(deaf.back().ReadSome(), StartsWith("HTTP/1.1 200 "));
  }
  EXPECT_THAT(Ask(kMetricsRequest), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask("GET /debug/query?a=b HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 503 "));
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(observer_.cuts(Cut::kRoom), 2);
}

TEST_F(HttpServerTest, ClientsThatDoNotReadKeepNobodyFromPages) {
  page_ = std::string(16 << 20, 'x');
  HttpServerOptions options = Patient();
  options.least_stay = absl::ZeroDuration();
  options.max_unsent_bytes = page_.size();
  Start(options);
  RawClient deaf(port());
  ASSERT_TRUE(deaf.Send(kMetricsRequest));
  // 503 until the server has closed that connection, which is Patient().
  while (Ask("GET /debug/query?a=b HTTP/1.1\r\n\r\n").rfind("HTTP/1.1 200 ", 0) != 0) {
  }
  EXPECT_GE(observer_.cuts(Cut::kRoom), 1);
}

TEST_F(HttpServerTest, ConnectionsTakeNoMoreThanTheirPartOfFewDescriptors) {
  const FileLimit limit(72);
  Start();
  std::vector<RawClient> idle;
  for (int i = 0; i < 18; ++i) idle.emplace_back(port());
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_EQ(observer_.cuts(Cut::kRoom), 1);
}

TEST_F(HttpServerTest, RequestIsAnsweredWhenTheLastDescriptorsWouldBeTaken) {
  const FileLimit limit(256);
  Start();
  RawClient idle(port());
  ASSERT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));  // by now the other one has been accepted
  std::vector<OwnedFd> others;
  do {
    others.emplace_back(fcntl(0, F_DUPFD_CLOEXEC, 0));
  } while (others.back().get() < 256 - 8);
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, ClientsOfManyAddressesThatDripKeepNobodyOut) {
  HttpServerOptions options = Patient();
  options.max_connections = 4;
  Start(options);
  std::vector<RawClient> dripping;
  for (uint32_t i = 0; i < 8; ++i) dripping.emplace_back(port(), kOtherAddress + i);
  for (RawClient& client : dripping) client.Send("GET /");
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  EXPECT_GE(observer_.cuts(Cut::kRoom), 5);
}

TEST_F(HttpServerTest, ClientThatConnectsWithoutPauseKeepsNobodyOut) {
  Start();
  std::atomic<bool> done = false;
  std::thread flood([&] {
    while (!done) RawClient(port(), kOtherAddress).Reset();
  });
  for (int i = 0; i < 20; ++i) EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  done = true;
  flood.join();
}

TEST_F(HttpServerTest, ClientThatDoesNotReadIsClosedInTime) {
  page_ = std::string(16 << 20, 'x');  // more than socket buffers take
  Start(Impatient());
  RawClient client(port());
  ASSERT_TRUE(client.Send(kMetricsRequest));
  // Sending fails only once the server has closed; what it sends is not read until then.
  while (client.Send("x")) {
  }
}

TEST_F(HttpServerTest, StopClosesEveryConnectionWhateverTheClientsDo) {
  page_ = std::string(16 << 20, 'x');
  Start();
  RawClient silent(port());
  RawClient deaf(port());
  ASSERT_TRUE(deaf.Send(kMetricsRequest));
  ASSERT_THAT(deaf.ReadSome(), StartsWith("HTTP/1.1 200 "));
  server_->Stop();
  EXPECT_THAT(silent.ReadAll(), IsEmpty());
  EXPECT_LT(deaf.ReadAll().size(), page_.size());
  server_->Stop();  // once more does nothing
}

TEST_F(HttpServerTest, PortIsFreeAfterStop) {
  Start();
  const int first = port();
  ASSERT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
  server_->Stop();
  HttpServerOptions options = Patient();
  options.address = "127.0.0.1:" + std::to_string(first);
  Start(options);
  EXPECT_EQ(port(), first);
  EXPECT_THAT(Ask(kHealthRequest), StartsWith("HTTP/1.1 200 "));
}

TEST_F(HttpServerTest, TakenPortIsAnErrorThatNamesTheAddress) {
  Start();
  HttpServerOptions options = Patient();
  options.address = "127.0.0.1:" + std::to_string(port());
  EXPECT_THAT(HttpServer::Start(options, {}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options.address)));
}

TEST_F(HttpServerTest, EveryFormOfAddressIsListenedOn) {
  for (const char* address : {"0.0.0.0:0", "localhost:0", ":0"}) {
    HttpServerOptions options = Patient();
    options.address = address;
    Start(options);
    EXPECT_GT(port(), 0) << address;
  }
}

TEST_F(HttpServerTest, AddressOfIpv6IsInBrackets) {
  HttpServerOptions options = Patient();
  options.address = "[::1]:0";
  const auto server = HttpServer::Start(options, {});
  // A host may have no IPv6 at all; the address is well formed either way.
  EXPECT_NE(server.status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(HttpServerTest, AddressThatIsNoneIsInvalid) {
  for (const char* address : {"", "localhost", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536",
                              "127.0.0.1:-1", "::1:80", "[::1]"}) {
    HttpServerOptions options = Patient();
    options.address = address;
    EXPECT_THAT(HttpServer::Start(options, {}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(address)));
  }
}

TEST_F(HttpServerTest, AddressThatDoesNotResolveIsUnavailable) {
  HttpServerOptions options = Patient();
  options.address = "no such host:80";
  EXPECT_THAT(HttpServer::Start(options, {}), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(options.address)));
}

}  // namespace
}  // namespace icache
