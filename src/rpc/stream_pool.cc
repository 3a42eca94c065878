#include "rpc/stream_pool.h"

#include <utility>
#include <vector>

namespace icache {
namespace {

grpc::Status ShuttingDown() { return {grpc::StatusCode::UNAVAILABLE, "the server is shutting down"}; }

}  // namespace

void StreamCall::OnCompletion(bool ok) {
  --operations_;
  switch (state_) {
    case State::kPosted:
      if (!ok) {  // not a call: the server is shutting down
        SetOver();
        break;
      }
      state_ = State::kOpen;
      OnTaken();
      if (const grpc::Status status = pool_->OnTaken(this); !status.ok()) {
        Refuse(status);
      } else {
        OnOpen();
      }
      break;
    case State::kOpen:
      OnProgress(ok);
      break;
    case State::kOver:
      break;
  }
  RemoveIfDone();
}

void* StreamCall::BeginWrite(grpc::ServerContext* context, size_t bytes) {
  ++operations_;
  message_ = pool_->state_->outbox.Add(context, bytes);
  return written_.tag();
}

void StreamCall::OnWriteCompletion(bool ok) {
  --operations_;
  pool_->state_->outbox.Remove(*message_);
  message_.reset();
  if (state_ == State::kOpen) {
    OnWritten(ok);
  } else if (end_.has_value()) {
    if (ok) OnBeforeEnd();
    if (!writing()) Finish(*end_);
  }
  RemoveIfDone();
}

void StreamCall::EndOther() {
  --operations_;
  RemoveIfDone();
}

std::function<void()> StreamCall::Waker() {
  return [pool = pool_, call = this] { pool->Wake(call); };
}

void StreamCall::RemoveIfDone() {
  if (state_ == State::kOver && operations_ == 0) pool_->Remove(this);
}

void StreamCall::End(const grpc::Status& status) {
  if (state_ != State::kOpen) return;
  SetOver();
  if (writing()) {
    end_ = status;
  } else {
    Finish(status);
  }
}

bool StreamLimit::Take() {
  if (open_.fetch_add(1, std::memory_order_relaxed) < most_) return true;
  Return();
  return false;
}

StreamPool::StreamPool(StreamLimit* limit, Factory factory, QueueState* state)
    : limit_(limit), factory_(std::move(factory)), state_(state) {}

void StreamPool::Fill() {
  for (int i = 0; i < kPosted; ++i) Post();
}

void StreamPool::Post() {
  if (state_->stopped) return;
  ++state_->live_calls;
  std::unique_ptr<StreamCall> call = factory_(this);
  StreamCall* const posted = call.get();
  calls_.emplace(posted, std::move(call));
  posted->Post();
}

void StreamPool::Wake() {
  for (const auto& [call, owned] : calls_) {
    if (call->state_ == StreamCall::State::kOpen) call->OnWake();
  }
}

void StreamPool::Wake(StreamCall* call) {
  state_->inbox.Post([this, call] {
    // Another call may have its place by now, which a wake does no harm.
    if (calls_.contains(call) && call->IsOpen()) call->OnWake();
  });
}

void StreamPool::Drain() {
  draining_ = true;
  for (const auto& [call, owned] : calls_) call->End(ShuttingDown());
}

grpc::Status StreamPool::OnTaken(StreamCall* call) {
  Post();
  if (draining_) return ShuttingDown();
  call->limited_ = limit_->Take();
  if (!call->limited_) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many open streams"};
  return grpc::Status::OK;
}

void StreamPool::Remove(StreamCall* call) {
  if (call->limited_) limit_->Return();
  calls_.erase(call);
  --state_->live_calls;
}

}  // namespace icache
