// Listener: the sockets that gRPC connections come in by, and the thread that accepts them.
//
// It leaves the last file descriptors to others: clients that connect and do nothing must not keep probes out, nor
// withdrawn tokens and new policies from being read.
#pragma once

#include <functional>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "icache/net/connection_observer.h"
#include "icache/net/listening_sockets.h"

namespace icache {

class Listener {
 public:
  // Takes over the descriptor of a new connection, which is non-blocking.
  using OnConnection = std::function<void(int listening_fd, int fd)>;

  // `observer` may be null; not owned.
  explicit Listener(ConnectionObserver* observer) : observer_(observer) {}
  ~Listener() { Stop(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As ListeningSockets has it.
  absl::StatusOr<std::string> Add(const std::string& address) { return sockets_.Add(address); }

  // Accepts from now on, on a thread of its own. Call once.
  void Start(OnConnection on_connection);
  // Accepts no more and closes the sockets. Idempotent.
  void Stop();

 private:
  void AcceptAll();
  // Accepts all that wait at one socket. False when descriptors or memory have run out.
  bool AcceptWaiting(int listening_fd);
  // Whether one more connection leaves others their descriptors.
  bool HasDescriptor() const;

  ConnectionObserver* const observer_;
  ListeningSockets sockets_{"gRPC"};
  OnConnection on_connection_;
  OwnedFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace icache
