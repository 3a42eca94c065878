#include "icache/config/address.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

TEST(AddressTest, AcceptsHostAndPort) {
  for (const char* address : {"0.0.0.0:9090", "127.0.0.1:0", "localhost:65535", "my-host.example_1.com:1", "[::]:9090",
                              "[::1]:0", "[2001:db8::1]:443"}) {
    EXPECT_THAT(CheckHostPort(address), IsOk()) << address;
    EXPECT_THAT(CheckListenAddress(address), IsOk()) << address;
  }
}

TEST(AddressTest, SaysWhatIsWrong) {
  struct Row {
    std::string address;
    const char* message;
  };
  for (const auto& [address, message] : {
           Row{"", "has no port"},
           Row{"localhost", "has no port"},
           Row{"localhost:", "port from 0 to 65535"},
           Row{"localhost:65536", "port from 0 to 65535"},
           Row{"localhost:-1", "port from 0 to 65535"},
           Row{"localhost:+80", "port from 0 to 65535"},
           Row{"localhost:http", "port from 0 to 65535"},
           Row{"localhost:00080x", "port from 0 to 65535"},
           Row{"localhost:8080 ", "port from 0 to 65535"},
           Row{":9090", "no valid host"},
           Row{"*:9090", "no valid host"},
           Row{"a b:9090", "no valid host"},
           Row{"1.2.3:9090", "no valid host"},
           Row{"1.2.3.256:9090", "no valid host"},
           Row{std::string(254, 'a') + ":1", "no valid host"},
           Row{"::1:9090", "needs brackets"},
           Row{"[::1:9090", "no IPv6 address"},
           Row{"[]:9090", "no IPv6 address"},
           Row{"[:9090", "no IPv6 address"},
           Row{"[127.0.0.1]:9090", "no IPv6 address"},
           Row{"[::g]:9090", "no IPv6 address"},
           Row{std::string("[::1\0]:9090", 11), "no IPv6 address"},
       }) {
    EXPECT_THAT(CheckHostPort(address), StatusIs(kBad, HasSubstr(message))) << address;
    EXPECT_THAT(CheckListenAddress(address), StatusIs(kBad, HasSubstr(message))) << address;
  }
}

TEST(AddressTest, UnixPathsFitASocketAddress) {
  EXPECT_THAT(CheckListenAddress("unix:/run/icached.sock"), IsOk());
  EXPECT_THAT(CheckListenAddress("unix:/" + std::string(106, 'x')), IsOk());
  EXPECT_THAT(CheckListenAddress("unix:/" + std::string(107, 'x')), StatusIs(kBad, HasSubstr("1 to 107 bytes")));
  EXPECT_THAT(CheckListenAddress("unix:"), StatusIs(kBad, HasSubstr("1 to 107 bytes")));
  EXPECT_THAT(CheckListenAddress(std::string_view("unix:/a\0b", 9)), StatusIs(kBad));
  EXPECT_THAT(CheckHostPort("unix:/run/icached.sock"), StatusIs(kBad));
}

TEST(AddressTest, PortZeroIsFree) {
  EXPECT_TRUE(TakesFreePort("127.0.0.1:0"));
  EXPECT_TRUE(TakesFreePort("[::1]:00"));
  EXPECT_FALSE(TakesFreePort("127.0.0.1:10"));
  EXPECT_FALSE(TakesFreePort("unix:/tmp/x:0"));
}

}  // namespace
}  // namespace icache
