#include "rpc/listener.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

namespace icache {
namespace {

// Descriptors that are left to others: this part of what may be open, and no more than that.
constexpr rlim_t kReservedShare = 16;
constexpr rlim_t kMaxReserved = 64;

}  // namespace

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
  const auto failed = [this](int error) {
    if (observer_ != nullptr) observer_->OnAcceptFailed(error);
    return false;
  };
  Connection connection;
  while (true) {
    if (!HasDescriptor()) return failed(EMFILE);
    switch (Accept(listening_fd, &connection)) {
      case AcceptResult::kTaken:
        on_connection_(listening_fd, connection.fd.Release());
        break;
      case AcceptResult::kNoneWaits:
        return true;
      case AcceptResult::kNoResources:
        return failed(errno);
    }
  }
}

bool Listener::HasDescriptor() const {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return true;
  const OwnedFd lowest_free(fcntl(stop_.get(), F_DUPFD_CLOEXEC, 0));
  const rlim_t reserve = std::min<rlim_t>(limit.rlim_cur / kReservedShare, kMaxReserved);
  return lowest_free.get() >= 0 && static_cast<rlim_t>(lowest_free.get()) < limit.rlim_cur - reserve;
}

}  // namespace icache
