#include "rpc/listen_address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace icache {
namespace {

constexpr std::string_view kUnixScheme = "unix:";

bool IsUnix(const std::string& address) { return address.compare(0, kUnixScheme.size(), kUnixScheme) == 0; }

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError("cannot listen on gRPC address " + address + ": " + why);
}

// "" when the socket at `path` is gone now, else why not.
std::string RemoveDeadSocket(const std::string& path) {
  sockaddr_un address = {};
  if (path.empty() || path.size() >= sizeof(address.sun_path)) return "the path of a Unix socket has 1 to 107 bytes";
  struct stat status;
  if (lstat(path.c_str(), &status) != 0) return errno == ENOENT ? "" : strerror(errno);
  if (!S_ISSOCK(status.st_mode)) return "a file that is no socket is in the way";

  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.c_str(), path.size());
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return strerror(errno);
  const bool connected = connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  const int error = errno;
  close(probe);
  if (connected || error == EAGAIN) return "another server listens on it";
  if (error != ECONNREFUSED) return strerror(error);
  return unlink(path.c_str()) == 0 || errno == ENOENT ? "" : strerror(errno);
}

// "" when binding `target` works, else why not.
std::string TryToBind(const addrinfo& target) {
  const int probe = socket(target.ai_family, target.ai_socktype | SOCK_CLOEXEC, target.ai_protocol);
  if (probe < 0) return strerror(errno);
  const int on = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));  // as gRPC does
  std::string why;
  if (bind(probe, target.ai_addr, target.ai_addrlen) != 0) why = strerror(errno);
  close(probe);
  return why;
}

}  // namespace

absl::Status PrepareToListen(const std::string& address) {
  if (!IsUnix(address)) return absl::OkStatus();
  const std::string why = RemoveDeadSocket(address.substr(kUnixScheme.size()));
  return why.empty() ? absl::OkStatus() : CannotListen(address, why);
}

absl::Status WhyNotListening(const std::string& address) {
  std::string why;
  if (!IsUnix(address)) {
    const size_t colon = address.rfind(':');
    std::string host = address.substr(0, colon);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    const std::string port = colon == std::string::npos ? "" : address.substr(colon + 1);
    addrinfo hints = {};
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* targets = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &targets); error != 0) {
      why = gai_strerror(error);
    }
    for (const addrinfo* target = targets; target != nullptr && why.empty(); target = target->ai_next) {
      why = TryToBind(*target);
    }
    if (targets != nullptr) freeaddrinfo(targets);
  }
  return CannotListen(address, why.empty() ? "it cannot be bound" : why);
}

std::string BoundAddress(const std::string& address, int port) {
  if (IsUnix(address)) return address;
  return address.substr(0, address.rfind(':') + 1) + std::to_string(port);
}

}  // namespace icache
