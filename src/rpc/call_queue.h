// CallQueue: one gRPC completion queue with the one thread that serves it and the calls that are posted on it.
//
// Life: Add* while nothing runs, Start, any number of calls, Drain (streams end, unary calls go on), then, once the
// gRPC server is shut down, Stop. Whatever concerns the calls happens on the queue's own thread; Drain and Stop reach
// it as completions too, so nothing here is locked.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "rpc/queue_state.h"
#include "rpc/rpc_service.h"
#include "rpc/stream_pool.h"
#include "rpc/unary_call.h"

namespace icache {

class CallQueue {
 public:
  // `name` is the thread's, at most 15 bytes. Messages that clients do not read may hold `max_unsent_bytes`; of lookups
  // that are found to wait, all but the oldest `max_waiting` are shed.
  CallQueue(std::string name, std::unique_ptr<grpc::ServerCompletionQueue> queue, size_t max_unsent_bytes,
            size_t max_waiting);
  // Stops first if need be.
  ~CallQueue();
  CallQueue(const CallQueue&) = delete;
  CallQueue& operator=(const CallQueue&) = delete;

  // Calls will be answered by `method`; `posted` of them wait for clients at a time.
  void AddUnary(RequestCall<UnaryCall::Responder> request_call, std::unique_ptr<UnaryMethod> method, size_t posted);
  // Streams made by `factory`, as many at a time as `limit` allows all queues that share it. `limit` is not owned.
  void AddStreams(StreamPool::Factory factory, StreamLimit* limit);

  // For streams to post themselves on.
  grpc::ServerCompletionQueue* queue() { return queue_.get(); }

  // Posts the calls and starts the thread. Requires that the gRPC server runs.
  void Start();
  // Asks the thread to tell every stream that what it watches may have changed. Requires Start() and comes before
  // Stop(). Thread-safe.
  void Wake();
  // Asks the thread to end every stream, open or yet to come. Requires Start().
  void Drain();
  // Waits until no call is posted or being answered any more, which comes about once the gRPC server has begun to shut
  // down, but not beyond `give_up_at`.
  void AwaitQuiet(absl::Time give_up_at);
  // Ends the thread and waits for it. Requires that the gRPC server has shut down or never ran. Idempotent.
  void Stop();

 private:
  void EndQueue();
  void Run();
  // Takes what has come meanwhile, serves as many lookups as may wait, and sheds the others first.
  void ServeWaiting();

  const std::string name_;
  const size_t max_waiting_;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  QueueState state_;
  std::vector<std::unique_ptr<UnaryPool>> unary_pools_;
  std::vector<std::unique_ptr<StreamPool>> stream_pools_;
  std::vector<Completion*> waiting_;  // lookups, oldest first; empty but in ServeWaiting()
  absl::Notification quiet_;
  std::thread thread_;
};

}  // namespace icache
