#include "rpc/listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "icache/base/status_macros.h"

namespace icache {
namespace {

constexpr std::string_view kUnixScheme = "unix:";
constexpr int kSocketFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kOutOfResourcesPauseMs = 50;

absl::Status CannotListen(const std::string& address, const std::string& why) {
  return absl::UnavailableError("cannot listen on gRPC address " + address + ": " + why);
}

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

// A socket that listens there. Errors carry the reason alone.
absl::StatusOr<OwnedFd> Listen(const sockaddr* address, socklen_t size, bool both_families) {
  const auto failed = [] { return absl::UnavailableError(strerror(errno)); };
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

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

bool IsWildcard(const addrinfo& target) {
  if (target.ai_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(target.ai_addr)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(target.ai_addr)->sin6_addr) != 0;
}

// The sockets of one host and port, the latter a number.
absl::StatusOr<std::vector<OwnedFd>> ListenOnTcp(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
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
    if (both.ok()) {
      sockets.push_back(*std::move(both));
      return sockets;
    }
  }
  for (addrinfo* target = targets.get(); target != nullptr; target = target->ai_next) {
    if (!sockets.empty()) {  // all on the port that the first has taken
      const in_port_t taken = htons(PortOf(sockets[0].get()));
      (target->ai_family == AF_INET ? reinterpret_cast<sockaddr_in*>(target->ai_addr)->sin_port
                                    : reinterpret_cast<sockaddr_in6*>(target->ai_addr)->sin6_port) = taken;
    }
    ASSIGN_OR_RETURN(OwnedFd socket, Listen(target->ai_addr, target->ai_addrlen, /*both_families=*/false));
    sockets.push_back(std::move(socket));
  }
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

int OwnedFd::Release() { return std::exchange(fd_, -1); }

Listener::~Listener() { Stop(); }

absl::StatusOr<std::string> Listener::Add(const std::string& address) {
  if (address.compare(0, kUnixScheme.size(), kUnixScheme) == 0) {
    const std::string path = address.substr(kUnixScheme.size());
    sockaddr_un target = {};
    if (path.empty() || path.size() >= sizeof(target.sun_path)) {
      return CannotListen(address, "the path of a Unix socket has 1 to 107 bytes");
    }
    target.sun_family = AF_UNIX;
    memcpy(target.sun_path, path.c_str(), path.size());
    if (const std::string why = RemoveDeadSocket(target); !why.empty()) return CannotListen(address, why);
    auto socket = Listen(reinterpret_cast<const sockaddr*>(&target), sizeof(target), /*both_families=*/false);
    if (!socket.ok()) return CannotListen(address, std::string(socket.status().message()));
    sockets_.push_back(*std::move(socket));
    socket_files_.push_back(path);
    return address;
  }

  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return CannotListen(address, "no port");
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  auto sockets = ListenOnTcp(host, address.substr(colon + 1));
  if (!sockets.ok()) return CannotListen(address, std::string(sockets.status().message()));
  const int port = PortOf(sockets->front().get());
  for (OwnedFd& socket : *sockets) sockets_.push_back(std::move(socket));
  return address.substr(0, colon + 1) + std::to_string(port);
}

void Listener::Start(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  stop_ = OwnedFd(eventfd(0, EFD_CLOEXEC));
  thread_ = std::thread([this] { AcceptAll(); });
  pthread_setname_np(thread_.native_handle(), "acceptor");
}

void Listener::Stop() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  for (const std::string& file : socket_files_) unlink(file.c_str());
  socket_files_.clear();
  sockets_.clear();
}

void Listener::AcceptAll() {
  std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (const OwnedFd& socket : sockets_) polled.push_back({.fd = socket.get(), .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // interrupted
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptWaiting(polled[i].fd)) poll(polled.data(), 1, kOutOfResourcesPauseMs);
    }
  }
}

bool Listener::AcceptWaiting(int listening_fd) {
  while (true) {
    const int fd = accept4(listening_fd, nullptr, nullptr, kSocketFlags);
    if (fd >= 0) {
      on_connection_(listening_fd, fd);
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      return true;
    }  // else that connection is lost, and there may be others
  }
}

}  // namespace icache
