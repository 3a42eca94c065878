// QueueState: what the calls of one queue share with it.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>

#include "rpc/inbox.h"
#include "rpc/outbox.h"

namespace icache {

// All but the inbox is touched by the queue's thread only, once that runs.
struct QueueState {
  // `queue` is not owned.
  QueueState(grpc::CompletionQueue* queue, size_t max_unsent_bytes) : outbox(max_unsent_bytes), inbox(queue) {}

  bool stopped = false;  // nothing may be posted any more
  int live_calls = 0;    // posted or being answered; 0 only when the gRPC server is shutting down
  Outbox outbox;
  Inbox inbox;
};

}  // namespace icache
