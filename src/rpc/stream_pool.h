// StreamPool: the calls of one streaming method on one queue. Some are always posted; one that is taken joins the open
// ones, of which there is a bounded number over all queues. An open stream costs its own few kilobytes and no thread.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/container/flat_hash_map.h"
#include "rpc/completion.h"
#include "rpc/queue_state.h"

namespace icache {

class StreamPool;

// How many streams of a kind may be open at a time, over all queues. Thread-safe.
class StreamLimit {
 public:
  explicit StreamLimit(size_t most) : most_(most) {}
  // False, having taken nothing, when none is left.
  bool Take();
  void Return() { open_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const size_t most_;
  std::atomic<size_t> open_ = 0;
};

// One call, from posted to over. A subclass gives every operation that it starts a tag from Begin(), a write one from
// BeginWrite().
class StreamCall : public Completion {
 public:
  // `pool` owns the call and destroys it once it is over and its last operation has completed.
  explicit StreamCall(StreamPool* pool) : pool_(pool) {}

  // Asks gRPC for the next call of the method.
  virtual void Post() = 0;
  void OnCompletion(bool ok) final;

  // Ends a call that nothing has been read of, and tells so.
  void Refuse(const grpc::Status& status) {
    OnRefused(status);
    End(status);
  }
  // Sends `status` as the call's end, after the write in progress, unless it is ending already or has not been taken.
  void End(const grpc::Status& status);
  // What the call watches may have changed. Comes only while the call is open.
  virtual void OnWake() {}

 protected:
  // The call has been taken; it may be refused yet.
  virtual void OnTaken() {}
  // The call is open.
  virtual void OnOpen() {}
  // The call is refused with `status`, by the pool or by Refuse().
  virtual void OnRefused(const grpc::Status& /*status*/) {}
  // An operation of the open call, not a write, has completed.
  virtual void OnProgress(bool ok) = 0;
  // The write of the open call has completed.
  virtual void OnWritten(bool /*ok*/) {}
  // A write has completed and the call is about to end: it may write what it could not while it was writing.
  virtual void OnBeforeEnd() {}
  // Starts the operation that ends the call with `status`.
  virtual void Finish(const grpc::Status& status) = 0;

  // The tag for one operation that will complete.
  void* Begin() {
    ++operations_;
    return tag();
  }
  // The tag for a write of `bytes` to the call of `context`. One at a time.
  void* BeginWrite(grpc::ServerContext* context, size_t bytes);
  bool writing() const { return message_.has_value(); }
  // An operation that carries another tag than Begin() and BeginWrite() give has started, or has completed, after which
  // the call may be gone.
  void BeginOther() { ++operations_; }
  void EndOther();
  // Nothing more is to come of the call but the completions of operations in progress.
  void SetOver() {
    state_ = State::kOver;
    OnOver();
  }
  // What the call still waits for, apart from its writes, should be given up.
  virtual void OnOver() {}
  bool IsOpen() const { return state_ == State::kOpen; }
  // Makes OnWake() come, if the call is open yet. May be called on any thread until the queue stops.
  std::function<void()> Waker();

 private:
  friend class StreamPool;
  enum class State { kPosted, kOpen, kOver };

  class Written final : public Completion {
   public:
    explicit Written(StreamCall* call) : call_(call) {}
    void OnCompletion(bool ok) override { call_->OnWriteCompletion(ok); }

   private:
    StreamCall* const call_;
  };

  void OnWriteCompletion(bool ok);
  void RemoveIfDone();

  StreamPool* const pool_;
  State state_ = State::kPosted;
  int operations_ = 0;                    // started and not completed
  std::optional<Outbox::Place> message_;  // being written
  bool limited_ = false;                  // counts in the pool's limit
  std::optional<grpc::Status> end_;       // to be sent after the write
  Written written_{this};
};

class StreamPool {
 public:
  using Factory = std::function<std::unique_ptr<StreamCall>(StreamPool*)>;

  // Each stream is made by `factory`. `limit` and `state` are not owned.
  StreamPool(StreamLimit* limit, Factory factory, QueueState* state);

  // Posts the calls that always wait for clients.
  void Fill();
  // Wakes all open streams.
  void Wake();
  // Wakes one, on the queue's thread, unless it is over by then. Thread-safe.
  void Wake(StreamCall* call);
  // Ends all open streams, and from now on every one that comes.
  void Drain();

 private:
  friend class StreamCall;
  // Calls that wait for clients at a time. What no call waits for piles up within gRPC.
  static constexpr int kPosted = 8;

  void Post();
  // Posts the next call in the place of one that has been taken. Returns why that one must end at once, or OK.
  grpc::Status OnTaken(StreamCall* call);
  void Remove(StreamCall* call);

  StreamLimit* const limit_;
  const Factory factory_;
  QueueState* const state_;
  bool draining_ = false;
  absl::flat_hash_map<StreamCall*, std::unique_ptr<StreamCall>> calls_;  // the posted ones and the open ones
};

}  // namespace icache
