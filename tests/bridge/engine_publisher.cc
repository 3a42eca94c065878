#include "tests/bridge/engine_publisher.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"
#include "icache/base/block_hash.h"

namespace icache::testing {
namespace {

// Binds, as soon as an earlier socket has let go of the endpoint.
void Bind(zmq::socket_t* socket, const std::string& endpoint) {
  for (const absl::Time give_up_at = absl::Now() + absl::Seconds(30);;) {
    try {
      return socket->bind(endpoint);
    } catch (const zmq::error_t& error) {
      if (error.num() != EADDRINUSE || absl::Now() > give_up_at) throw;
      absl::SleepFor(absl::Milliseconds(5));
    }
  }
}

}  // namespace

EnginePublisher::EnginePublisher(const SimulatedEngineOptions& engine, const PublisherOptions& options)
    : options_(options), engine_(engine), random_(engine.seed), events_(options.events_at), replay_(options.replay_at) {
  Open();
}

EnginePublisher::~EnginePublisher() { Die(); }

void EnginePublisher::Open() {
  publisher_ = zmq::socket_t(context_, zmq::socket_type::pub);
  publisher_.set(zmq::sockopt::linger, 0);
  publisher_.set(zmq::sockopt::sndhwm, 100'000);
  if (options_.connect_to.empty()) {
    Bind(&publisher_, events_);
    events_ = publisher_.get(zmq::sockopt::last_endpoint);
  } else {
    publisher_.connect(options_.connect_to);
  }
  if (!options_.replay) return;
  zmq::socket_t router(context_, zmq::socket_type::router);
  router.set(zmq::sockopt::linger, 0);
  Bind(&router, replay_);
  replay_ = router.get(zmq::sockopt::last_endpoint);
  stopping_ = false;
  replayer_ = std::thread([this, socket = std::move(router)]() mutable {
    while (!stopping_) {
      zmq::pollitem_t item = {socket.handle(), 0, ZMQ_POLLIN, 0};
      zmq::poll(&item, 1, std::chrono::milliseconds(20));
      if ((item.revents & ZMQ_POLLIN) == 0) continue;
      zmq::message_t client, delimiter, from;
      (void)socket.recv(client);
      (void)socket.recv(delimiter);
      (void)socket.recv(from);
      const uint64_t first = LoadBigEndian64(from.data<char>());
      const auto answer = [&](uint64_t sequence, const std::string& payload) {
        char number[8];
        StoreBigEndian64(sequence, number);
        socket.send(zmq::buffer(client.data(), client.size()), zmq::send_flags::sndmore);
        socket.send(zmq::message_t(), zmq::send_flags::sndmore);
        socket.send(zmq::buffer(number), zmq::send_flags::sndmore);
        socket.send(zmq::buffer(payload), zmq::send_flags::none);
      };
      const std::lock_guard lock(mutex_);
      for (const SimulatedBatch& batch : buffer_) {
        if (batch.sequence >= first) answer(batch.sequence, batch.payload);
      }
      answer(UINT64_MAX, "");
    }
  });
}

void EnginePublisher::Die() {
  stopping_ = true;
  if (replayer_.joinable()) replayer_.join();
  publisher_.close();
}

void EnginePublisher::Restart() {
  Die();
  engine_.Restart();
  {
    const std::lock_guard lock(mutex_);
    buffer_.clear();
  }
  Open();
}

double EnginePublisher::Now() {
  // Each batch later than the one before, as a restart is told from a repetition by it.
  last_time_ = std::max(last_time_ + 1e-6, absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch()));
  return last_time_;
}

void EnginePublisher::Live(size_t blocks) {
  const size_t end = engine_.stored_blocks() + blocks;
  while (engine_.stored_blocks() < end)
    Send(engine_.Publish(Now()), std::bernoulli_distribution(options_.loss)(random_));
}

void EnginePublisher::Settle() { Send(engine_.PublishNothing(Now()), /*lose=*/false); }

void EnginePublisher::Send(SimulatedBatch batch, bool lose) {
  char number[8];
  StoreBigEndian64(batch.sequence, number);
  {
    const std::lock_guard lock(mutex_);
    if (batch.sequence == 0) buffer_.clear();
    buffer_.push_back(batch);
    if (buffer_.size() > options_.replay_buffer) buffer_.pop_front();
  }
  if (lose) return;
  publisher_.send(zmq::str_buffer("kv-events"), zmq::send_flags::sndmore);
  publisher_.send(zmq::buffer(number), zmq::send_flags::sndmore);
  publisher_.send(zmq::buffer(batch.payload), zmq::send_flags::none);
}

}  // namespace icache::testing
