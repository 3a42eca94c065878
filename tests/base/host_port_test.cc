#include "icache/base/host_port.h"

#include <gtest/gtest.h>

#include <string_view>
#include <tuple>

namespace icache {
namespace {

TEST(HostPortTest, SidesAreSplitAtTheLastColon) {
  for (const auto& [address, host, port] :
       {std::tuple("localhost:80", "localhost", 80), std::tuple("[::1]:65535", "[::1]", 65535),
        std::tuple("tcp://*:00080", "tcp://*", 80), std::tuple(":0", "", 0)}) {
    EXPECT_EQ(HostOf(address), host);
    EXPECT_EQ(PortOf(address), port) << address;
  }
}

TEST(HostPortTest, WithoutAColonAllIsHost) {
  EXPECT_EQ(HostOf("localhost"), "localhost");
  EXPECT_EQ(PortOf("80"), std::nullopt);
}

TEST(HostPortTest, WhatIsNoNumberOrTooLargeIsNoPort) {
  for (const std::string_view address :
       {"", ":", "a:", "a:http", "a:-1", "a:+1", "a: 1", "a:1 ", "a:0x1", "a:65536", "a:000080", "a:99999999999"}) {
    EXPECT_EQ(PortOf(address), std::nullopt) << address;
  }
  EXPECT_EQ(PortOf(std::string_view("a:1\0", 4)), std::nullopt);
}

}  // namespace
}  // namespace icache
