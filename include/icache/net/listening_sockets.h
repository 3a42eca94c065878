// Listening sockets: where a server's connections come in, and how they are taken.
//
// Libraries could listen by themselves, but at the first connection that there is no file descriptor for gRPC closes
// its listener for good and libmicrohttpd spins. Here such a connection waits for better times, and somebody is told.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace icache {

// A file descriptor, closed at the end.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(other.Release()) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Thread-compatible.
class ListeningSockets {
 public:
  // `kind` is for messages, as "gRPC".
  explicit ListeningSockets(std::string_view kind) : kind_(kind) {}
  ListeningSockets(ListeningSockets&&) = default;
  ~ListeningSockets() { Close(); }

  // Binds "HOST:PORT" or "unix:/path" and returns it with the port that was taken. A wildcard of either family listens
  // on both, if the host has both; so does no host at all. A name listens on all its addresses that this host has. A
  // socket file that no server listens on is replaced; ours is removed at the end, if it is still there. Errors, with
  // the address and the reason: InvalidArgument for what is no address, Unavailable for one that does not resolve or
  // cannot be listened on.
  absl::StatusOr<std::string> Add(const std::string& address);

  // Non-blocking.
  const std::vector<OwnedFd>& fds() const { return fds_; }

  // Idempotent.
  void Close();

 private:
  // Of a Unix socket.
  struct SocketFile {
    std::string path;
    dev_t device;
    ino_t inode;
  };

  std::string kind_;
  std::vector<OwnedFd> fds_;
  std::vector<SocketFile> files_;
};

// The TCP port that a socket is bound to.
int BoundPort(int fd);

enum class AcceptResult {
  kTaken,
  kNoneWaits,
  kNoResources,  // one waits, but there is no descriptor or memory for it: try again kNoResourcesPauseMs later
};
inline constexpr int kNoResourcesPauseMs = 50;

// One who has connected.
struct Connection {
  OwnedFd fd;  // non-blocking
  sockaddr_storage address;
  socklen_t address_size;
};

// Takes a connection that waits at a listening socket. errno tells what kNoResources is for want of.
AcceptResult Accept(int listening_fd, Connection* connection);

}  // namespace icache
