#include "icache/config/address.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <algorithm>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "icache/base/host_port.h"
#include "icache/config/problems.h"

namespace icache {
namespace {

constexpr std::string_view kUnixPrefix = "unix:";
constexpr size_t kMaxUnixPathBytes = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kMaxHostNameBytes = 253;  // Source: RFC 1035

absl::Status Bad(std::string_view address, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("is no address: ", Quoted(address), " ", why));
}

bool ParsesAs(int family, std::string_view host) {
  if (host.find('\0') != std::string_view::npos) return false;  // where inet_pton would stop reading
  in6_addr parsed;                                              // the larger of the two
  return inet_pton(family, std::string(host).c_str(), &parsed) == 1;
}

bool IsHostName(std::string_view host) {
  if (host.empty() || host.size() > kMaxHostNameBytes) return false;
  // Digits and dots alone can only be meant as an IPv4 address.
  if (host.find_first_not_of("0123456789.") == std::string_view::npos) return ParsesAs(AF_INET, host);
  return std::all_of(host.begin(), host.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_'; });
}

bool IsUnix(std::string_view address) { return address.substr(0, kUnixPrefix.size()) == kUnixPrefix; }

}  // namespace

absl::Status CheckHostPort(std::string_view address) {
  if (address.find(':') == std::string_view::npos) return Bad(address, "has no port");
  const std::string_view host = HostOf(address);
  if (!PortOf(address).has_value()) return Bad(address, "needs a port from 0 to 65535");
  if (!host.empty() && host.front() == '[') {
    if (host.back() == ']' && ParsesAs(AF_INET6, host.substr(1, host.size() - 2))) return absl::OkStatus();
    return Bad(address, "has no IPv6 address in its brackets");
  }
  if (host.find(':') != std::string_view::npos) return Bad(address, "needs brackets around an IPv6 address");
  if (!IsHostName(host)) return Bad(address, "has no valid host");
  return absl::OkStatus();
}

absl::Status CheckListenAddress(std::string_view address) {
  if (!IsUnix(address)) return CheckHostPort(address);
  const std::string_view path = address.substr(kUnixPrefix.size());
  if (path.empty() || path.size() > kMaxUnixPathBytes || path.find('\0') != std::string_view::npos) {
    return Bad(address, absl::StrCat("needs a path of 1 to ", kMaxUnixPathBytes, " bytes"));
  }
  return absl::OkStatus();
}

bool TakesFreePort(std::string_view address) { return !IsUnix(address) && PortOf(address) == 0; }

}  // namespace icache
