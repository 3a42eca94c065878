// Listener: the sockets that gRPC connections come in by, and the thread that accepts them.
//
// gRPC could listen by itself, but it closes a listener for good at the first connection that it has no file descriptor
// for. This one waits for better times. It also leaves alone the socket file of another server that lives, and tells
// why it cannot listen.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
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
  int Release();

 private:
  int fd_;
};

class Listener {
 public:
  // Takes over the descriptor of a new connection, which is non-blocking.
  using OnConnection = std::function<void(int listening_fd, int fd)>;

  Listener() = default;
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Binds "HOST:PORT" or "unix:/path" and returns it with the port that was taken. A wildcard of either family listens
  // on both where it can. A socket file that no server listens on is replaced; ours is removed at the end. Errors:
  // Unavailable, with the address and the reason.
  absl::StatusOr<std::string> Add(const std::string& address);

  // Accepts from now on, on a thread of its own. Call once.
  void Start(OnConnection on_connection);
  // Accepts no more and closes the sockets. Idempotent.
  void Stop();

 private:
  void AcceptAll();
  // Accepts all that wait at one socket. False when descriptors or memory have run out.
  bool AcceptWaiting(int listening_fd);

  std::vector<OwnedFd> sockets_;
  std::vector<std::string> socket_files_;
  OnConnection on_connection_;
  OwnedFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace icache
