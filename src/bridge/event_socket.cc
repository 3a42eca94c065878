#include "bridge/event_socket.h"

#include <algorithm>
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

// Knows which publishers are there, by the descriptors of their connections. Whoever can reach a port that is bound may
// connect without being one: a probe is a connection whose handshake never ends, and its end is nobody's loss.
class ConnectionMonitor final : public zmq::monitor_t {
 public:
  static constexpr int kEvents =
      ZMQ_EVENT_CONNECTED | ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED;

  bool connected() const {
    return std::any_of(connections_.begin(), connections_.end(), [](const Connection& c) { return c.is_publisher; });
  }
  // Whether a publisher is there for the first time. True once.
  bool TakeConnected() { return connected() && !std::exchange(was_connected_, true); }
  // Whether a lost connection has been made again. True once each time.
  bool TakeReconnected() { return std::exchange(reconnected_, false); }
  // A message has come through `descriptor`.
  void OnMessage(int descriptor) {
    const auto found = Find(descriptor);
    if (found != connections_.end()) found->is_publisher = true;
  }

  void on_event_connected(const zmq_event_t& event, const char*) override { Open(event.value); }
  void on_event_accepted(const zmq_event_t& event, const char*) override { Open(event.value); }
  void on_event_handshake_succeeded(const zmq_event_t&, const char*) override {
    // It does not say whose. A publisher shakes hands at once, so it is the latest; a message corrects the choice.
    const auto latest = std::find_if(connections_.rbegin(), connections_.rend(),
                                     [](const Connection& connection) { return !connection.is_publisher; });
    if (latest != connections_.rend()) latest->is_publisher = true;
    reconnected_ |= std::exchange(lost_, false);
  }
  void on_event_disconnected(const zmq_event_t& event, const char*) override { Close(event.value); }

 private:
  struct Connection {
    int descriptor;
    bool is_publisher = false;
  };
  void Open(int descriptor) {
    Close(descriptor);
    connections_.push_back({descriptor});
  }
  void Close(int descriptor) {
    const auto found = Find(descriptor);
    if (found == connections_.end()) return;
    lost_ |= found->is_publisher;
    connections_.erase(found);
  }
  std::vector<Connection>::iterator Find(int descriptor) {
    return std::find_if(connections_.begin(), connections_.end(),
                        [&](const Connection& connection) { return connection.descriptor == descriptor; });
  }

  std::vector<Connection> connections_;  // that are open, in the order in which they were made
  bool was_connected_ = false;           // taken
  bool lost_ = false;
  bool reconnected_ = false;
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
  zmq::socket_t events;
  ConnectionMonitor monitor;
  zmq::socket_t replay;  // while one is under way
  std::string replay_endpoint;
  std::string endpoint;
  EventSocketHandlers handlers;
  int64_t malformed = 0;

  // These say how many bytes the message had; nullopt when there is none.

  std::optional<size_t> ReceiveLive() {
    std::vector<zmq::message_t> frames = ReceiveFrames(&events);
    if (frames.empty()) return std::nullopt;
    monitor.OnMessage(zmq_msg_get(frames[0].handle(), ZMQ_SRCFD));
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
  impl->replay_endpoint = replay;
  impl->handlers = std::move(handlers);
  try {
    impl->events = zmq::socket_t(*impl->context, zmq::socket_type::sub);
    zmq::socket_t& socket = impl->events;
    socket.set(zmq::sockopt::ipv6, IsIpv6(events));
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::rcvhwm, kReceiveQueue);
    socket.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kMaxPayloadBytes));
    socket.set(zmq::sockopt::reconnect_ivl, 100);
    socket.set(zmq::sockopt::reconnect_ivl_max, 5000);
    socket.set(zmq::sockopt::handshake_ivl, 5000);
    // Finds a peer that is gone without a word.
    socket.set(zmq::sockopt::heartbeat_ivl, 5000);
    socket.set(zmq::sockopt::heartbeat_timeout, 15'000);
    socket.set(zmq::sockopt::subscribe, topic);
    // A name that no other socket of the context has.
    const std::string monitor = absl::StrCat("inproc://monitor-", absl::Hex(reinterpret_cast<uintptr_t>(impl.get())));
    impl->monitor.init(socket, monitor, ConnectionMonitor::kEvents);
    if (IsBindEndpoint(events)) {
      socket.bind(events);
    } else {
      socket.connect(events);
    }
    impl->endpoint = socket.get(zmq::sockopt::last_endpoint);
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

void EventSocket::Receive(size_t max_messages) {
  try {
    while (impl_->monitor.check_event(0)) {
    }
    if (impl_->monitor.TakeConnected()) impl_->handlers.connected();
    if (impl_->monitor.TakeReconnected()) impl_->handlers.reconnected();
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
  } catch (const zmq::error_t&) {  // interrupted, or the context ends
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
    impl_->replay.set(zmq::sockopt::maxmsgsize, static_cast<int64_t>(kMaxPayloadBytes));
    impl_->replay.connect(impl_->replay_endpoint);
    impl_->replay.send(zmq::message_t(), zmq::send_flags::sndmore);
    impl_->replay.send(zmq::buffer(number), zmq::send_flags::dontwait);
  } catch (const zmq::error_t&) {
    impl_->replay.close();  // as if nobody answered
  }
}

bool EventSocket::connected() const { return impl_->monitor.connected(); }
const std::string& EventSocket::endpoint() const { return impl_->endpoint; }
int64_t EventSocket::malformed_messages() const { return impl_->malformed; }

}  // namespace icache
