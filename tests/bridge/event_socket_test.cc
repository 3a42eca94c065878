#include "bridge/event_socket.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "icache/engine/payload_decoder.h"

namespace icache {
namespace {

constexpr char kNumber[8] = {};

// A socket, and what it was told.
class EventSocketTest : public ::testing::Test {
 protected:
  void Open(const std::string& events) {
    EventSocketHandlers handlers;
    handlers.live = [this](uint64_t, std::string_view payload) { payloads_.emplace_back(payload); };
    handlers.connected = [this] { ++connected_; };
    handlers.reconnected = [this] { ++reconnected_; };
    auto socket = EventSocket::Open(&context_, events, /*replay=*/"", /*topic=*/"", std::move(handlers));
    ASSERT_TRUE(socket.ok()) << socket.status();
    sockets_.push_back(*std::move(socket));
  }
  EventSocket& socket() { return *sockets_[0]; }

  // Receives until `holds` does; each look is `step` later than the one before by the socket's clock.
  bool ReceiveUntil(const std::function<bool()>& holds, absl::Duration step = absl::ZeroDuration()) {
    const absl::Time give_up_at = absl::Now() + absl::Seconds(60);
    while (!holds()) {
      if (absl::Now() > give_up_at) return false;
      EventSocket::WaitForAny(sockets_, absl::Milliseconds(20));
      socket().Receive(100, now_ += step);
    }
    return true;
  }

  zmq::socket_t MakePublisher() {
    zmq::socket_t publisher(peers_, zmq::socket_type::pub);
    publisher.set(zmq::sockopt::linger, 0);
    return publisher;
  }
  static void Publish(zmq::socket_t* publisher, const std::string& payload) {
    publisher->send(zmq::message_t(), zmq::send_flags::sndmore);
    publisher->send(zmq::buffer(kNumber), zmq::send_flags::sndmore);
    publisher->send(zmq::buffer(payload), zmq::send_flags::none);
  }
  static std::string EndpointOf(const zmq::socket_t& socket) { return socket.get(zmq::sockopt::last_endpoint); }

  EventContext context_;
  zmq::context_t peers_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::vector<std::unique_ptr<EventSocket>> sockets_;
  std::vector<std::string> payloads_;
  int connected_ = 0;
  int reconnected_ = 0;
};

TEST_F(EventSocketTest, APeerThatBreaksTheProtocolIsNotTheEnd) {
  zmq::socket_t publisher = MakePublisher();
  publisher.bind("tcp://127.0.0.1:*");
  Open(EndpointOf(publisher));
  ASSERT_TRUE(ReceiveUntil([&] { return connected_ == 1; }));
  Publish(&publisher, std::string(3 * kMaxPayloadBytes, 'x'));  // longer than any message may be
  ASSERT_TRUE(ReceiveUntil([&] { return !socket().connected(); }));
  EXPECT_TRUE(ReceiveUntil([&] { return reconnected_ == 1; }, absl::Milliseconds(100)));
  EXPECT_GT(socket().resubscriptions(), 0);
  EXPECT_TRUE(ReceiveUntil([&] {
    Publish(&publisher, "more");
    return !payloads_.empty();
  }));
  EXPECT_EQ(payloads_[0], "more");
}

TEST_F(EventSocketTest, AnotherKindOfSocketAtTheAddressIsNotTheEnd) {
  zmq::socket_t other(peers_, zmq::socket_type::router);
  other.bind("tcp://127.0.0.1:*");
  const std::string endpoint = EndpointOf(other);
  Open(endpoint);
  ASSERT_TRUE(ReceiveUntil([&] { return socket().resubscriptions() > 0; }, absl::Milliseconds(100)));
  EXPECT_EQ(connected_, 0);
  other.close();
  zmq::socket_t publisher = MakePublisher();
  ASSERT_TRUE(ReceiveUntil([&] {
    try {
      publisher.bind(endpoint);
      return true;
    } catch (const zmq::error_t&) {  // not let go of yet
      return false;
    }
  }));
  EXPECT_TRUE(ReceiveUntil([&] { return connected_ == 1; }, absl::Milliseconds(100)));
}

TEST_F(EventSocketTest, AConnectionIsLeftAlone) {
  zmq::socket_t publisher = MakePublisher();
  publisher.bind("tcp://127.0.0.1:*");
  Open(EndpointOf(publisher));
  ASSERT_TRUE(ReceiveUntil([&] { return connected_ == 1; }));
  const absl::Time end = now_ + absl::Hours(1);
  EXPECT_TRUE(ReceiveUntil([&] { return now_ > end; }, absl::Minutes(10)));
  EXPECT_EQ(socket().resubscriptions(), 0);
}

TEST_F(EventSocketTest, ABatchThatIsTooLongIsHandedOn) {
  zmq::socket_t publisher = MakePublisher();
  publisher.bind("tcp://127.0.0.1:*");
  Open(EndpointOf(publisher));
  ASSERT_TRUE(ReceiveUntil([&] { return connected_ == 1; }));
  EXPECT_TRUE(ReceiveUntil([&] {
    if (payloads_.empty()) Publish(&publisher, std::string(kMaxPayloadBytes + 1, 'x'));
    return !payloads_.empty();
  }));
  EXPECT_TRUE(socket().connected());
}

TEST_F(EventSocketTest, APublisherThatGoesIsMissedThoughAnotherIsThere) {
  Open("tcp://*:0");
  const std::string port = socket().endpoint().substr(socket().endpoint().rfind(':'));
  zmq::socket_t first = MakePublisher();
  first.connect("tcp://127.0.0.1" + port);
  const auto hear = [&](zmq::socket_t* publisher, const std::string& payload) {
    return ReceiveUntil([&] {
      Publish(publisher, payload);
      return !payloads_.empty() && payloads_.back() == payload;
    });
  };
  ASSERT_TRUE(hear(&first, "first"));
  zmq::socket_t second = MakePublisher();
  second.connect("tcp://127.0.0.1" + port);
  ASSERT_TRUE(hear(&second, "second"));
  EXPECT_EQ(reconnected_, 0);
  first.close();
  EXPECT_TRUE(ReceiveUntil([&] { return reconnected_ == 1; }));
  EXPECT_TRUE(socket().connected());
}

}  // namespace
}  // namespace icache
