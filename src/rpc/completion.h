// Completion: what every tag on a completion queue points to.
#pragma once

#include <cstddef>

#include "rpc/outbox.h"

namespace icache {

class Completion {
 public:
  virtual ~Completion() = default;
  // The operation that carried this tag is over. `ok` as gRPC defines it per operation. Runs on the queue's thread.
  virtual void OnCompletion(bool ok) = 0;

  // What is to be handed to gRPC as the tag.
  void* tag() { return this; }
};

// What the calls of one queue share with it. Touched by the queue's thread only, once that runs.
struct QueueState {
  explicit QueueState(size_t max_unsent_bytes) : outbox(max_unsent_bytes) {}

  bool stopped = false;  // nothing may be posted any more
  int live_calls = 0;    // posted or being answered; 0 only when the gRPC server is shutting down
  Outbox outbox;
};

}  // namespace icache
