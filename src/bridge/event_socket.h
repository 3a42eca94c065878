// EventSocket: the ZeroMQ sockets of one event stream: the subscription, and a replay when one is asked for.
//
// Never blocks but in WaitForAny(). Lost connections are made again, with growing pauses: by ZeroMQ, or where that
// gives up, as it does when a peer breaks the protocol, by a new socket. Not thread-safe: one thread makes and uses it.
// Source: contract/engine-events.md "Transport".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace icache {

// Called from within EventSocket::Receive(). Payloads live for the call.
struct EventSocketHandlers {
  std::function<void(uint64_t sequence, std::string_view payload)> live;
  std::function<void(uint64_t sequence, std::string_view payload)> replayed;
  std::function<void()> replay_ended;
  std::function<void()> connected;    // for the first time
  std::function<void()> reconnected;  // after a connection had been lost, be it while another was there
};

// The process's ZeroMQ context, which sockets are made from. Thread-safe.
class EventContext {
 public:
  EventContext();
  ~EventContext();

 private:
  friend class EventSocket;
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

class EventSocket {
 public:
  // Connects to `events`, or binds it when it names no host. Errors: Unavailable, with the endpoint, for what cannot be
  // opened. `context` must outlive the socket.
  static absl::StatusOr<std::unique_ptr<EventSocket>> Open(EventContext* context, const std::string& events,
                                                           const std::string& replay, const std::string& topic,
                                                           EventSocketHandlers handlers);
  ~EventSocket();
  EventSocket(const EventSocket&) = delete;
  EventSocket& operator=(const EventSocket&) = delete;

  // Waits until one of `sockets` has something, or for `timeout`.
  static void WaitForAny(const std::vector<std::unique_ptr<EventSocket>>& sockets, absl::Duration timeout);
  // Hands on what has come, at most `max_messages` of it, and less of long ones. Makes a socket anew that has had no
  // connection for long; `now` is of a steady clock.
  void Receive(size_t max_messages, absl::Time now);
  // Throws away what has come, and ends a replay.
  void Discard();
  // Asks for the batches from `from` on, in place of an earlier request.
  void RequestReplay(uint64_t from);

  // Whether a publisher is there.
  bool connected() const;
  // Where it listens or connects to, with the port that was taken.
  const std::string& endpoint() const;
  // Messages that were no batch at all: frames missing, or a number of another size.
  int64_t malformed_messages() const;
  // Times that the subscribing socket was made anew.
  int64_t resubscriptions() const;

 private:
  struct Impl;
  explicit EventSocket(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace icache
