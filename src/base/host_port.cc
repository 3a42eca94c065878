#include "icache/base/host_port.h"

#include <charconv>
#include <cstddef>

namespace icache {
namespace {

constexpr size_t kMaxPortDigits = 5;

}  // namespace

std::string_view HostOf(std::string_view address) { return address.substr(0, address.rfind(':')); }

std::optional<uint16_t> PortOf(std::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view text = address.substr(colon + 1);
  uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.begin(), text.end(), port);
  if (error != std::errc() || end != text.end() || text.size() > kMaxPortDigits) return std::nullopt;
  return port;
}

}  // namespace icache
