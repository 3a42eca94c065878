#include "icache/scrape/page_fetcher.h"

#include <gmock/gmock.h>
#include <httplib.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>

#include "icache/net/listening_sockets.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::StatusIs;
using ::testing::HasSubstr;

constexpr absl::StatusCode kUnavailable = absl::StatusCode::kUnavailable;
constexpr absl::Duration kLong = absl::Hours(1);

// Each test asks for a page at least: a server that does not serve yet cannot be stopped.
class PageFetcherTest : public ::testing::Test {
 protected:
  PageFetcherTest() {
    server_.Get("/page", [](const httplib::Request&, httplib::Response& response) {
      response.set_content("0123456789", "text/plain");
    });
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~PageFetcherTest() override {
    server_.stop();
    thread_.join();
  }

  std::string Url(const std::string& path) const { return "http://127.0.0.1:" + std::to_string(port_) + path; }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::thread thread_;
};

TEST_F(PageFetcherTest, PagesArriveWholeOneAfterAnother) {
  PageFetcher fetcher({.max_page_bytes = 10});
  EXPECT_EQ(fetcher.Fetch(Url("/page"), kLong).value_or(""), "0123456789");
  EXPECT_EQ(fetcher.Fetch(Url("/page"), kLong).value_or(""), "0123456789");
}

TEST_F(PageFetcherTest, PageOverTheBoundIsRefused) {
  EXPECT_THAT(PageFetcher({.max_page_bytes = 9}).Fetch(Url("/page"), kLong),
              StatusIs(kUnavailable, HasSubstr("more than 9 bytes")));
}

TEST_F(PageFetcherTest, WhatTheServerRefusesIsUnavailable) {
  EXPECT_THAT(PageFetcher({.max_page_bytes = 100}).Fetch(Url("/other"), kLong),
              StatusIs(kUnavailable, HasSubstr("404")));
}

TEST_F(PageFetcherTest, AFailureDoesNotSpoilTheNextPage) {
  PageFetcher fetcher({.max_page_bytes = 100});
  EXPECT_THAT(fetcher.Fetch(Url("/other"), kLong), StatusIs(kUnavailable));
  EXPECT_EQ(fetcher.Fetch(Url("/page"), kLong).value_or(""), "0123456789");
}

// Answers one request with these bytes.
class RawServer {
 public:
  explicit RawServer(std::string answer) {
    url_ = "http://" + sockets_.Add("127.0.0.1:0").value();
    thread_ = std::thread([this, answer = std::move(answer)] {
      pollfd waiting = {.fd = sockets_.fds().front().get(), .events = POLLIN, .revents = 0};
      poll(&waiting, 1, /*timeout=*/-1);
      const int client = accept(waiting.fd, nullptr, nullptr);
      char request[4096];
      EXPECT_GT(recv(client, request, sizeof request, 0), 0);
      for (size_t sent = 0; sent < answer.size();) {
        const ssize_t n = send(client, answer.data() + sent, answer.size() - sent, MSG_NOSIGNAL);
        if (n <= 0) break;  // the client has had enough
        sent += static_cast<size_t>(n);
      }
      shutdown(client, SHUT_WR);
      while (recv(client, request, sizeof request, 0) > 0) {
      }
      close(client);
    });
  }
  ~RawServer() { thread_.join(); }

  const std::string& url() const { return url_; }

 private:
  ListeningSockets sockets_{"raw"};
  std::string url_;
  std::thread thread_;
};

absl::StatusOr<std::string> FetchFrom(const RawServer& server) {
  return PageFetcher({.max_page_bytes = 100}).Fetch(server.url(), kLong);
}

TEST(PageFetcherAloneTest, HeadersAreBoundedBeforeAPageAndBehindIt) {
  std::string lines;
  for (int i = 0; i < 100'000; ++i) lines += "T: x\r\n";
  const RawServer before("HTTP/1.1 200 OK\r\n" + lines + "Content-Length: 1\r\n\r\nx");
  EXPECT_THAT(FetchFrom(before), StatusIs(kUnavailable, HasSubstr("headers")));
  const RawServer behind("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n" + lines + "\r\n");
  EXPECT_THAT(FetchFrom(behind), StatusIs(kUnavailable, HasSubstr("headers")));
}

TEST(PageFetcherAloneTest, HeaderThatIsTooLongIsNamedSo) {
  const RawServer server("HTTP/1.1 200 OK\r\nT: " + std::string(200'000, 'x') + "\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_THAT(FetchFrom(server), StatusIs(kUnavailable, HasSubstr("header that is too long")));
}

TEST(PageFetcherAloneTest, RedirectionIsNoPage) {
  const RawServer server("HTTP/1.1 301 Moved\r\nLocation: /elsewhere\r\nContent-Length: 1\r\n\r\nx");
  EXPECT_THAT(FetchFrom(server), StatusIs(kUnavailable, HasSubstr("answers 301")));
}

TEST(PageFetcherAloneTest, OnlyHttpIsSpoken) {
  EXPECT_THAT(PageFetcher({.max_page_bytes = 100}).Fetch("file:///etc/hostname", kLong),
              StatusIs(kUnavailable, HasSubstr("file")));
}

TEST(PageFetcherAloneTest, WhoHearsNothingStopsWhenToldTo) {
  ListeningSockets deaf("deaf");
  const auto address = deaf.Add("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  EXPECT_THAT(PageFetcher({.max_page_bytes = 100}).Fetch("http://" + *address, kLong, [] { return true; }),
              StatusIs(kUnavailable));
}

TEST(PageFetcherAloneTest, WhoHearsNothingGivesUpInTime) {
  ListeningSockets deaf("deaf");
  const auto address = deaf.Add("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  EXPECT_THAT(PageFetcher({.max_page_bytes = 100}).Fetch("http://" + *address, absl::Milliseconds(1)),
              StatusIs(kUnavailable));
}

}  // namespace
}  // namespace icache
