#include "icache/net/listening_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A connection to a port of this host.
OwnedFd Connect(int port) {
  OwnedFd fd(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  return fd;
}

TEST(ListeningSocketsTest, AFreePortIsTakenAndTold) {
  ListeningSockets sockets("test");
  const absl::StatusOr<std::string> address = sockets.Add("127.0.0.1:0");
  ASSERT_TRUE(address.ok()) << address.status();
  ASSERT_THAT(sockets.fds(), SizeIs(1));
  EXPECT_EQ(*address, "127.0.0.1:" + std::to_string(BoundPort(sockets.fds()[0].get())));
}

TEST(ListeningSocketsTest, WhatIsNoAddressIsInvalid) {
  ListeningSockets sockets("test");
  for (const char* const address : {"", "localhost", "127.0.0.1:", "127.0.0.1:65536", "::1:80", "[::1]", "unix:"}) {
    EXPECT_THAT(sockets.Add(address), StatusIs(absl::StatusCode::kInvalidArgument,
                                               HasSubstr("cannot listen on test address " + std::string(address))));
  }
}

TEST(ListeningSocketsTest, ATakenPortIsUnavailable) {
  ListeningSockets sockets("test");
  const absl::StatusOr<std::string> address = sockets.Add("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  EXPECT_THAT(sockets.Add(*address), StatusIs(absl::StatusCode::kUnavailable, HasSubstr(*address)));
}

TEST(ListeningSocketsTest, WhoWaitsIsTakenAndThenNobodyWaits) {
  ListeningSockets sockets("test");
  ASSERT_TRUE(sockets.Add("127.0.0.1:0").ok());
  const int listener = sockets.fds()[0].get();
  Connection connection;
  EXPECT_EQ(Accept(listener, &connection), AcceptResult::kNoneWaits);
  const OwnedFd client = Connect(BoundPort(listener));
  pollfd waiting = {.fd = listener, .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&waiting, 1, -1), 1);
  EXPECT_EQ(Accept(listener, &connection), AcceptResult::kTaken);
  EXPECT_EQ(connection.address.ss_family, AF_INET);
  EXPECT_EQ(Accept(listener, &connection), AcceptResult::kNoneWaits);
}

}  // namespace
}  // namespace icache
