#include "rpc/listener.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace icache {

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
  sockets_.Close();
}

void Listener::AcceptAll() {
  std::vector<pollfd> polled = {{.fd = stop_.get(), .events = POLLIN, .revents = 0}};
  for (const OwnedFd& fd : sockets_.fds()) polled.push_back({.fd = fd.get(), .events = POLLIN, .revents = 0});
  while (true) {
    if (poll(polled.data(), polled.size(), -1) < 0) continue;  // interrupted
    if (polled[0].revents != 0) return;
    for (size_t i = 1; i < polled.size(); ++i) {
      if (polled[i].revents != 0 && !AcceptWaiting(polled[i].fd)) poll(polled.data(), 1, kNoResourcesPauseMs);
    }
  }
}

bool Listener::AcceptWaiting(int listening_fd) {
  Connection connection;
  while (true) {
    switch (Accept(listening_fd, &connection)) {
      case AcceptResult::kTaken:
        on_connection_(listening_fd, connection.fd.Release());
        break;
      case AcceptResult::kNoneWaits:
        return true;
      case AcceptResult::kNoResources:
        if (observer_ != nullptr) observer_->OnAcceptFailed(errno);
        return false;
    }
  }
}

}  // namespace icache
