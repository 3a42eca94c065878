// The syntax of addresses to listen at. Nothing is resolved or opened here.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace icache {

// OK for "HOST:PORT": HOST is an IPv4 address, an IPv6 address in brackets or a host name, PORT is 0 to 65535.
// Else InvalidArgument saying what is wrong.
absl::Status CheckHostPort(std::string_view address);

// Likewise, or "unix:PATH" with a path of 1 to 107 bytes (what a socket address holds).
absl::Status CheckListenAddress(std::string_view address);

// Whether the kernel picks the port: a HOST:PORT that ends in port 0. Requires a valid address.
bool TakesFreePort(std::string_view address);

}  // namespace icache
