#include "icache/net/listening_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>

#include <filesystem>
#include <string>

#include "tests/config/temp_folder.h"
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

TEST(ListeningSocketsTest, AWildcardIsUnavailableWhenAnotherHasOneFamilysPort) {
  const OwnedFd other(socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in any = {};
  any.sin_family = AF_INET;
  ASSERT_EQ(bind(other.get(), reinterpret_cast<const sockaddr*>(&any), sizeof(any)), 0);
  ASSERT_EQ(listen(other.get(), 1), 0);
  ListeningSockets sockets("test");
  const std::string port = std::to_string(BoundPort(other.get()));
  for (const char* const host : {"[::]", "0.0.0.0", ""}) {
    EXPECT_THAT(sockets.Add(host + (":" + port)), StatusIs(absl::StatusCode::kUnavailable)) << host;
  }
}

TEST(ListeningSocketsTest, AnAddressOfAnotherHostIsUnavailable) {
  ListeningSockets sockets("test");
  EXPECT_THAT(sockets.Add("192.0.2.1:0"), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("192.0.2.1:0: Cannot")));
}

TEST(ListeningSocketsTest, OfSocketFilesOursAloneIsRemoved) {
  const testing::TempFolder folder;
  const std::string ours = folder / "ours";
  const std::string anothers = folder / "anothers";
  ListeningSockets sockets("test");
  ASSERT_TRUE(sockets.Add("unix:" + ours).ok());
  ASSERT_TRUE(sockets.Add("unix:" + anothers).ok());
  std::filesystem::rename(folder.Write("later", ""), anothers);
  sockets.Close();
  EXPECT_FALSE(std::filesystem::exists(ours));
  EXPECT_TRUE(std::filesystem::exists(anothers));
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
