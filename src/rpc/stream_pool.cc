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
      OnOpen();
      if (const grpc::Status status = pool_->OnTaken(); !status.ok()) End(status);
      break;
    case State::kOpen:
      OnProgress(ok);
      break;
    case State::kOver:
      break;
  }
  RemoveIfDone();
}

void StreamCall::OnWriteCompletion(bool ok) {
  --operations_;
  writing_ = false;
  if (state_ == State::kOpen) {
    OnWritten(ok);
  } else if (end_.has_value()) {
    Finish(*end_);
  }
  RemoveIfDone();
}

void StreamCall::RemoveIfDone() {
  if (state_ == State::kOver && operations_ == 0) pool_->Remove(this);
}

void StreamCall::End(const grpc::Status& status) {
  if (state_ != State::kOpen) return;
  SetOver();
  if (writing_) {
    end_ = status;
  } else {
    Finish(status);
  }
}

StreamPool::StreamPool(size_t max_open, Factory factory, QueueState* state)
    : max_open_(max_open), factory_(std::move(factory)), state_(state) {}

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

void StreamPool::Drain() {
  draining_ = true;
  for (const auto& [call, owned] : calls_) call->End(ShuttingDown());
}

grpc::Status StreamPool::OnTaken() {
  const size_t open = calls_.size();  // none is posted at this moment
  Post();
  if (draining_) return ShuttingDown();
  if (open > max_open_) return {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many open streams"};
  return grpc::Status::OK;
}

void StreamPool::Remove(StreamCall* call) {
  calls_.erase(call);
  --state_->live_calls;
}

}  // namespace icache
