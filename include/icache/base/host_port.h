// The two sides of a network address as it is written, "HOST:PORT". Nothing is said of the host.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace icache {

// All before the last colon; all there is without one.
std::string_view HostOf(std::string_view address);

// The number behind the last colon, of 1 to 5 digits and at most 65535; nullopt when there is none.
std::optional<uint16_t> PortOf(std::string_view address);

}  // namespace icache
