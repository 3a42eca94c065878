#include "bridge/event_socket.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>
#include <zmq.hpp>

#include "absl/strings/str_cat.h"
#include "bridge/options.h"
#include "icache/base/block_hash.h"
#include "icache/engine/payload_decoder.h"

namespace icache {
namespace {

constexpr uint64_t kEndOfReplay = UINT64_MAX;
// Messages that a socket queues. ZeroMQ counts no bytes, so it is few of the longest; the rest waits at the engine,
// whose queue is made for it.
constexpr int kReceiveQueue = 16;
constexpr size_t kMaxBytesAtOnce = 4 << 20;  // and one message more; before other streams and reports have their turn
constexpr size_t kMaxFrames = 8;             // of a message; more are skipped
// A longer message breaks the protocol. What is too long for a batch, but not for this, is one that cannot be read.
constexpr int64_t kMaxMessageBytes = 2 * int64_t{kMaxPayloadBytes};
// How long a socket is left alone without a connection; doubles each time.
constexpr absl::Duration kFirstPatience = absl::Seconds(6);
constexpr absl::Duration kLongestPatience = absl::Seconds(30);

// The frames of one message; empty when there is none now.
std::vector<zmq::message_t> ReceiveFrames(zmq::socket_t* socket) {
  std::vector<zmq::message_t> frames;
  bool more = true;
  while (more) {
    zmq::message_t frame;
    if (!socket->recv(frame, zmq::recv_flags::dontwait).has_value()) break;
    more = frame.more();
    if (frames.size() < kMaxFrames) frames.push_back(std::move(frame));
  }
  return frames;
}

// ZeroMQ takes the first address of a name alone, so IPv6 is for addresses that are given as such.
bool IsIpv6(const std::string& endpoint) { return endpoint.find('[') != std::string::npos; }

std::string_view TextOf(const zmq::message_t& frame) { return {frame.data<char>(), frame.size()}; }

// Which publishers are there, by the descriptors of their connections. Whoever can reach a port that is bound may
// connect without being one: a probe is a connection whose handshake never ends, and its end is nobody's loss.
class Publishers {
 public:
  bool connected() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.is_publisher; });
  }
  // Whether a publisher is there for the first time. True once.
  bool TakeConnected() { return connected() && !std::exchange(was_connected_, true); }
  // Whether one has been lost and one is there, be it another that came before that one went. True once each time.
  bool TakeReconnected() { return std::exchange(reconnected_, false); }

  void Open(int descriptor) {
    Close(descriptor);
    connections_.push_back({descriptor});
  }
  void OnHandshake() {
    // It does not say whose. A publisher shakes hands at once, so it is the latest; a message corrects the choice.
    const auto latest = std::find_if(connections_.rbegin(), connections_.rend(),
                                     [](const Connection& connection) { return !connection.is_publisher; });
    if (latest != connections_.rend()) latest->is_publisher = true;
    reconnected_ |= std::exchange(lost_, false);
  }
  // A message has come through `descriptor`.
  void OnMessage(int descriptor) {
    const auto found = Find(descriptor);
    if (found != connections_.end()) found->is_publisher = true;
  }
  void Close(int descriptor) {
    const auto found = Find(descriptor);
    if (found == connections_.end()) return;
    lost_ |= found->is_publisher;
    connections_.erase(found);
    if (connected()) reconnected_ |= std::exchange(lost_, false);
  }
  // There is no connection any more.
  void CloseAll() {
    while (!connections_.empty()) Close(connections_.back().descriptor);
  }

 private:
  struct Connection {
    int descriptor;
    bool is_publisher = false;
  };
  std::vector<Connection>::iterator Find(int descriptor) {
    return std::find_if(connections_.begin(), connections_.end(),
                        [&](const Connection& connection) { return connection.descriptor == descriptor; });
  }

  std::vector<Connection> connections_;  // that are open, in the order in which they were made
  bool was_connected_ = false;           // taken
  bool lost_ = false;                    // and nobody there since
  bool reconnected_ = false;
};

// Tells `publishers` what becomes of a socket's connections.
class ConnectionMonitor final : public zmq::monitor_t {
 public:
  ConnectionMonitor(zmq::socket_t* socket, Publishers* publishers) : publishers_(publishers) {
    static std::atomic<int64_t> made = 0;  // no other socket of the context may have the name
    init(*socket, absl::StrCat("inproc://monitor-", ++made),
         ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED);
  }
  void on_event_connected(const zmq_event_t& event, const char*) override { publishers_->Open(event.value); }
  void on_event_accepted(const zmq_event_t& event, const char*) override { publishers_->Open(event.value); }
  void on_event_handshake_succeeded(const zmq_event_t&, const char*) override { publishers_->OnHandshake(); }
  void on_event_disconnected(const zmq_event_t& event, const char*) override { publishers_->Close(event.value); }

 private:
  Publishers* const publishers_;
};

}  // namespace

struct EventContext::Impl {
  // Each stream takes four: events, their monitor's two, replay.
  Impl() { context.set(zmq::ctxopt::max_sockets, context.get(zmq::ctxopt::socket_limit)); }
  zmq::context_t context;
};
EventContext::EventContext() : impl_(std::make_unique<Impl>()) {}
EventContext::~EventContext() = default;

struct EventSocket::Impl {
  zmq::context_t* context = nullptr;
  std::string events_endpoint;  // as configured
  std::string replay_endpoint;
  std::string topic;
  EventSocketHandlers handlers;
  std::string endpoint;  // of the events, as opened
  Publishers publishers;
  zmq::socket_t events;
  std::unique_ptr<ConnectionMonitor> monitor;  // of it
  zmq::socket_t replay;                        // while one is under way
  absl::Time unconnected_since = absl::InfiniteFuture();
  absl::Duration patience = kFirstPatience;
  int64_t malformed = 0;
  int64_t resubscriptions = 0;

  // In place of an earlier subscription. Throws zmq::error_t, and leaves that one then.
  void Subscribe() {
    zmq::socket_t socket(*context, zmq::socket_type::sub);
    socket.set(zmq::sockopt::ipv6, IsIpv6(events_endpoint));
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvhwm, kReceiveQueue);
    socket.set(zmq::sockopt::maxmsgsize, kMaxMessageBytes);
    socket.set(zmq::sockopt::reconnect_ivl, 100);
    socket.set(zmq::sockopt::reconnect_ivl_max, 5000);
    socket.set(zmq::sockopt::handshake_ivl, 5000);
    // Finds a peer that is gone without a word.
    socket.set(zmq::sockopt::heartbeat_ivl, 5000);
    socket.set(zmq::sockopt::heartbeat_timeout, 15'000);
    socket.set(zmq::sockopt::subscribe, topic);
    auto its_monitor = std::make_unique<ConnectionMonitor>(&socket, &publishers);
    if (IsBindEndpoint(events_endpoint)) {
      socket.bind(events_endpoint);
    } else {
      socket.connect(events_endpoint);
    }
    endpoint = socket.get(zmq::sockopt::last_endpoint);
    publishers.CloseAll();
    monitor = std::move(its_monitor);
    events = std::move(socket);
  }

  // A peer that breaks the protocol makes ZeroMQ give the connection up for good, without a word. So a socket that has
  // had none for long is made anew. One that is bound is connected to.
  void ResubscribeIfAlone(absl::Time now) {
    if (IsBindEndpoint(events_endpoint)) return;
    if (publishers.connected()) {
      unconnected_since = absl::InfiniteFuture();
      patience = kFirstPatience;
      return;
    }
    unconnected_since = std::min(unconnected_since, now);
    if (now - unconnected_since < patience) return;
    unconnected_since = now;
    patience = std::min(patience * 2, kLongestPatience);
    ++resubscriptions;
    Subscribe();
  }

  // These say how many bytes the message had; nullopt when there is none.

  std::optional<size_t> ReceiveLive() {
    std::vector<zmq::message_t> frames = ReceiveFrames(&events);
    if (frames.empty()) return std::nullopt;
    publishers.OnMessage(zmq_msg_get(frames[0].handle(), ZMQ_SRCFD));
    if (frames.size() != 3 || frames[1].size() != kPackedHashBytes) {
      ++malformed;
    } else {
      handlers.live(LoadBigEndian64(frames[1].data<char>()), TextOf(frames[2]));
    }
    return frames.back().size();
  }

  std::optional<size_t> ReceiveReplayed() {
    if (!replay) return std::nullopt;
    const std::vector<zmq::message_t> frames = ReceiveFrames(&replay);
    if (frames.empty()) return std::nullopt;
    // An empty delimiter may come first.
    const size_t count = frames.size();
    if (count < 2 || count > 3 || (count == 3 && !frames[0].empty()) || frames[count - 2].size() != kPackedHashBytes) {
      ++malformed;
      return frames.back().size();
    }
    const uint64_t sequence = LoadBigEndian64(frames[count - 2].data<char>());
    if (sequence == kEndOfReplay) {
      replay.close();
      handlers.replay_ended();
    } else {
      handlers.replayed(sequence, TextOf(frames[count - 1]));
    }
    return frames.back().size();
  }
};

EventSocket::EventSocket(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventSocket::~EventSocket() = default;

absl::StatusOr<std::unique_ptr<EventSocket>> EventSocket::Open(EventContext* context, const std::string& events,
                                                               const std::string& replay, const std::string& topic,
                                                               EventSocketHandlers handlers) {
  auto impl = std::make_unique<Impl>();
  impl->context = &context->impl_->context;
  impl->events_endpoint = events;
  impl->replay_endpoint = replay;
  impl->topic = topic;
  impl->handlers = std::move(handlers);
  try {
    impl->Subscribe();
  } catch (const zmq::error_t& error) {
    return absl::UnavailableError(absl::StrCat(events, ": ", error.what()));
  }
  return std::unique_ptr<EventSocket>(new EventSocket(std::move(impl)));
}

void EventSocket::WaitForAny(const std::vector<std::unique_ptr<EventSocket>>& sockets, absl::Duration timeout) {
  std::vector<zmq::pollitem_t> items;
  for (const auto& socket : sockets) {
    items.push_back({socket->impl_->events.handle(), 0, ZMQ_POLLIN, 0});
    if (socket->impl_->replay) items.push_back({socket->impl_->replay.handle(), 0, ZMQ_POLLIN, 0});
  }
  try {
    zmq::poll(items, absl::ToChronoMilliseconds(absl::Ceil(timeout, absl::Milliseconds(1))));
  } catch (const zmq::error_t&) {  // interrupted
  }
}

void EventSocket::Receive(size_t max_messages, absl::Time now) {
  try {
    while (impl_->monitor->check_event(0)) {
    }
    if (impl_->publishers.TakeConnected()) impl_->handlers.connected();
    if (impl_->publishers.TakeReconnected()) impl_->handlers.reconnected();
    size_t messages = 0;
    size_t bytes = 0;
    const auto take_all = [&](auto receive) {
      while (messages < max_messages && bytes < kMaxBytesAtOnce) {
        const std::optional<size_t> size = receive();
        if (!size.has_value()) return;
        ++messages;
        bytes += *size;
      }
    };
    take_all([&] { return impl_->ReceiveReplayed(); });
    take_all([&] { return impl_->ReceiveLive(); });
    if (messages == 0) impl_->ResubscribeIfAlone(now);  // behind the last that had come
  } catch (const zmq::error_t&) {                       // interrupted, or the context ends
  }
}

void EventSocket::Discard() {
  impl_->replay.close();
  try {
    while (!ReceiveFrames(&impl_->events).empty()) {
    }
  } catch (const zmq::error_t&) {  // the context ends
  }
}

void EventSocket::RequestReplay(uint64_t from) {
  char number[kPackedHashBytes];
  StoreBigEndian64(from, number);
  try {
    // A socket of its own, so that no answer to an earlier request can come.
    impl_->replay = zmq::socket_t(*impl_->context, zmq::socket_type::dealer);
    impl_->replay.set(zmq::sockopt::ipv6, IsIpv6(impl_->replay_endpoint));
    impl_->replay.set(zmq::sockopt::linger, 0);
    impl_->replay.set(zmq::sockopt::rcvhwm, kReceiveQueue);
    impl_->replay.set(zmq::sockopt::maxmsgsize, kMaxMessageBytes);
    impl_->replay.connect(impl_->replay_endpoint);
    impl_->replay.send(zmq::message_t(), zmq::send_flags::sndmore);
    impl_->replay.send(zmq::buffer(number), zmq::send_flags::dontwait);
  } catch (const zmq::error_t&) {
    impl_->replay.close();  // as if nobody answered
  }
}

bool EventSocket::connected() const { return impl_->publishers.connected(); }
const std::string& EventSocket::endpoint() const { return impl_->endpoint; }
int64_t EventSocket::malformed_messages() const { return impl_->malformed; }
int64_t EventSocket::resubscriptions() const { return impl_->resubscriptions; }

}  // namespace icache
