// EnginePublisher: publishes a SimulatedEngine's life over ZeroMQ, with PUB and ROUTER sockets, as engines do.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <zmq.hpp>

#include "tests/testing/simulated_engine.h"

namespace icache::testing {

struct PublisherOptions {
  bool replay = true;
  size_t replay_buffer = 100'000;  // batches
  double loss = 0;                 // of batches, on their way to the subscriber
  std::string connect_to = "";     // the PUB socket connects here in place of binding
  std::string events_at = "tcp://127.0.0.1:*";
  std::string replay_at = "tcp://127.0.0.1:*";
};

// Publish() and Restart() are one thread's.
class EnginePublisher {
 public:
  EnginePublisher(const SimulatedEngineOptions& engine, const PublisherOptions& options);
  ~EnginePublisher();

  // Where to subscribe, and where to ask for replays.
  const std::string& events() const { return events_; }
  const std::string& replay() const { return replay_; }
  SimulatedEngine& engine() { return engine_; }

  // Publishes batches until `blocks` more blocks are stored.
  void Live(size_t blocks);
  // An empty batch that is not lost, so that a gap before it shows.
  void Settle();
  // The process ends, and another one begins at the same addresses.
  void Restart();
  // The process ends.
  void Die();

 private:
  void Send(SimulatedBatch batch, bool lose);
  void Open();
  double Now();

  const PublisherOptions options_;
  SimulatedEngine engine_;
  std::mt19937_64 random_;
  zmq::context_t context_;
  zmq::socket_t publisher_;
  std::string events_;
  std::string replay_;
  double last_time_ = 0;

  std::mutex mutex_;
  std::deque<SimulatedBatch> buffer_;  // under mutex_
  std::atomic<bool> stopping_ = false;
  std::thread replayer_;
};

}  // namespace icache::testing
