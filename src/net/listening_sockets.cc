#include "icache/net/listening_sockets.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "icache/base/host_port.h"
#include "icache/base/status_macros.h"

namespace icache {
namespace {

constexpr std::string_view kUnixScheme = "unix:";
constexpr int kSocketFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;

// "" when the way to `address` is free, by removing a socket that no one listens on any more, else what is in it.
std::string RemoveDeadSocket(const sockaddr_un& address) {
  struct stat status;
  if (lstat(address.sun_path, &status) != 0) return errno == ENOENT ? "" : strerror(errno);
  if (!S_ISSOCK(status.st_mode)) return "a file that is no socket is in the way";
  const OwnedFd probe(socket(AF_UNIX, SOCK_STREAM | kSocketFlags, 0));
  if (probe.get() < 0) return strerror(errno);
  const bool connected = connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  if (connected || errno == EAGAIN) return "another server listens on it";
  if (errno != ECONNREFUSED) return strerror(errno);
  return unlink(address.sun_path) == 0 || errno == ENOENT ? "" : strerror(errno);
}

// A socket that listens there. Errors carry the reason alone: NotFound when this host has no such address, as one
// without IPv6 has none of its kind; else Unavailable.
absl::StatusOr<OwnedFd> Listen(const sockaddr* address, socklen_t size, bool both_families) {
  const auto failed = [] {
    const bool is_missing = errno == EADDRNOTAVAIL || errno == EAFNOSUPPORT;
    return absl::Status(is_missing ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable, strerror(errno));
  };
  OwnedFd fd(socket(address->sa_family, SOCK_STREAM | kSocketFlags, 0));
  if (fd.get() < 0) return failed();
  const int on = 1;
  const int off = 0;
  if (address->sa_family != AF_UNIX) {
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));  // connections inherit it
  }
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, both_families ? &off : &on, sizeof(int));
  }
  if (bind(fd.get(), address, size) != 0 || listen(fd.get(), SOMAXCONN) != 0) return failed();
  return fd;
}

bool IsWildcard(const addrinfo& target) {
  if (target.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(target.ai_addr)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(target.ai_addr)->sin6_addr) != 0;
}

struct TcpTarget {
  std::string host;  // without brackets; "" = every address
  std::string port;  // a number
};

std::optional<TcpTarget> TargetOf(std::string_view address) {
  const std::optional<uint16_t> port = PortOf(address);
  if (!port.has_value()) return std::nullopt;
  std::string_view host = HostOf(address);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return std::nullopt;
  }
  return TcpTarget{std::string(host), std::to_string(*port)};
}

absl::StatusOr<std::vector<OwnedFd>> ListenOnTcp(const TcpTarget& target_address) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  const char* const host = target_address.host.empty() ? nullptr : target_address.host.c_str();
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, target_address.port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> targets(found, &freeaddrinfo);
  std::vector<OwnedFd> sockets;
  if (IsWildcard(*targets)) {
    sockaddr_in6 any = {};
    any.sin6_family = AF_INET6;
    any.sin6_port = targets->ai_family == AF_INET ? reinterpret_cast<const sockaddr_in*>(targets->ai_addr)->sin_port
                                                  : reinterpret_cast<const sockaddr_in6*>(targets->ai_addr)->sin6_port;
    auto both = Listen(reinterpret_cast<const sockaddr*>(&any), sizeof(any), /*both_families=*/true);
    if (!absl::IsNotFound(both.status())) {
      RETURN_IF_ERROR(both.status());
      sockets.push_back(*std::move(both));
      return sockets;
    }
  }
  absl::Status missing;
  for (addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    if (!sockets.empty()) {  // all on the port that the first has taken
      const in_port_t taken = htons(BoundPort(sockets[0].get()));
      (target->ai_family == AF_INET ? reinterpret_cast<sockaddr_in*>(target->ai_addr)->sin_port
                                    : reinterpret_cast<sockaddr_in6*>(target->ai_addr)->sin6_port) = taken;
    }
    auto socket = Listen(target->ai_addr, target->ai_addrlen, /*both_families=*/false);
    if (socket.ok()) {
      sockets.push_back(*std::move(socket));
    } else if (absl::IsNotFound(socket.status())) {  // a name may stand for more than there is
      missing = socket.status();
    } else {
      return socket.status();
    }
  }
  if (sockets.empty()) return absl::UnavailableError(missing.message());
  return sockets;
}

}  // namespace

OwnedFd& OwnedFd::operator=(OwnedFd&& other) noexcept {
  if (this != &other) {
    if (fd_ >= 0) close(fd_);
    fd_ = other.Release();
  }
  return *this;
}

OwnedFd::~OwnedFd() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::string> ListeningSockets::Add(const std::string& address) {
  const auto failed = [&](absl::StatusCode code, const std::string& why) {
    return absl::Status(code, "cannot listen on " + kind_ + " address " + address + ": " + why);
  };
  if (address.compare(0, kUnixScheme.size(), kUnixScheme) == 0) {
    const std::string path = address.substr(kUnixScheme.size());
    sockaddr_un target = {};
    if (path.empty() || path.size() >= sizeof(target.sun_path)) {
      return failed(absl::StatusCode::kInvalidArgument, "the path of a Unix socket has 1 to 107 bytes");
    }
    target.sun_family = AF_UNIX;
    memcpy(target.sun_path, path.c_str(), path.size());
    if (const std::string why = RemoveDeadSocket(target); !why.empty()) {
      return failed(absl::StatusCode::kUnavailable, why);
    }
    auto socket = Listen(reinterpret_cast<const sockaddr*>(&target), sizeof(target), /*both_families=*/false);
    if (!socket.ok()) return failed(socket.status().code(), std::string(socket.status().message()));
    fds_.push_back(*std::move(socket));
    struct stat made = {};
    lstat(path.c_str(), &made);
    files_.push_back({path, made.st_dev, made.st_ino});
    return address;
  }

  const std::optional<TcpTarget> target = TargetOf(address);
  if (!target.has_value()) return failed(absl::StatusCode::kInvalidArgument, "is not HOST:PORT");
  auto sockets = ListenOnTcp(*target);
  if (!sockets.ok()) return failed(sockets.status().code(), std::string(sockets.status().message()));
  const int port = BoundPort(sockets->front().get());
  for (OwnedFd& socket : *sockets) fds_.push_back(std::move(socket));
  return std::string(HostOf(address)) + ":" + std::to_string(port);
}

void ListeningSockets::Close() {
  for (const SocketFile& file : files_) {
    struct stat found = {};
    const bool is_ours =
        lstat(file.path.c_str(), &found) == 0 && found.st_dev == file.device && found.st_ino == file.inode;
    if (is_ours) unlink(file.path.c_str());
  }
  files_.clear();
  fds_.clear();
}

int BoundPort(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

AcceptResult Accept(int listening_fd, Connection* connection) {
  while (true) {
    connection->address_size = sizeof(connection->address);
    const int fd = accept4(listening_fd, reinterpret_cast<sockaddr*>(&connection->address), &connection->address_size,
                           kSocketFlags);
    if (fd >= 0) {
      connection->fd = OwnedFd(fd);
      return AcceptResult::kTaken;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) return AcceptResult::kNoResources;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return AcceptResult::kNoneWaits;
    // else that connection is lost, and there may be others
  }
}

}  // namespace icache
