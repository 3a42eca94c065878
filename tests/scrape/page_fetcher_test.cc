#include "icache/scrape/page_fetcher.h"

#include <gmock/gmock.h>
#include <httplib.h>

#include <string>
#include <thread>

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
