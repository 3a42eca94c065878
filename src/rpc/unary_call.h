// UnaryPool: the calls of one unary method on one queue, taken, answered and posted again for as long as it runs.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "rpc/call_report.h"
#include "rpc/completion.h"
#include "rpc/door.h"
#include "rpc/queue_state.h"
#include "rpc/recycled_message.h"
#include "rpc/rpc_service.h"

namespace icache {

// One method on one queue. Shared by the calls posted there: the queue's thread runs one at a time from its request's
// bytes to its response's, so one pair of messages serves them all.
class UnaryMethod {
 public:
  virtual ~UnaryMethod() = default;
  // Empties `request`. On an error `response` is not sent.
  virtual grpc::Status Serve(const grpc::ServerContext& context, grpc::ByteBuffer* request,
                             grpc::ByteBuffer* response) = 0;

  // Whether a call may be shed under overload: then it is answered without its request being looked at.
  virtual bool CanShed() const { return false; }
  // Likewise. Requires CanShed().
  virtual grpc::Status Shed(const grpc::ServerContext& /*context*/, grpc::ByteBuffer* request,
                            grpc::ByteBuffer* /*response*/) {
    request->Clear();
    return grpc::Status::OK;
  }
};

template <typename Request, typename Response>
class MessageMethod : public UnaryMethod {
 public:
  // `door` decides who may call. Nothing is owned.
  MessageMethod(Door* door, const Clock* clock, size_t max_recycled_bytes)
      : door_(door), clock_(clock), max_recycled_bytes_(max_recycled_bytes), request_(max_recycled_bytes) {}

  grpc::Status Serve(const grpc::ServerContext& context, grpc::ByteBuffer* request, grpc::ByteBuffer* response) final {
    const absl::Time received_at = clock_->Now();
    const grpc::Status status = door_->Admit(context, request, &request_);
    if (status.ok()) Handle(context, received_at, request_.message(), &response_);
    if (CallObserver* const calls = door_->calls(); calls != nullptr) {
      ReportCall(calls, name(), context, request_.message(), response_, status, clock_->Now() - received_at);
    }
    if (status.ok()) {
      *response = ToByteBuffer(response_);
      if (response->Length() > max_recycled_bytes_) response_ = Response();
    }
    request_.Trim();  // one that was refused for what it asks has been read too
    return status;
  }

 protected:
  Door& door() const { return *door_; }
  // Buffers larger than this are not kept between calls.
  size_t max_recycled_bytes() const { return max_recycled_bytes_; }

  // The method's, as "LookupRoute".
  virtual std::string_view name() const = 0;
  // Replaces `response`, which still holds the answer to an earlier call.
  virtual void Handle(const grpc::ServerContext& context, absl::Time received_at, const Request& request,
                      Response* response) = 0;

 private:
  Door* const door_;
  const Clock* const clock_;
  const size_t max_recycled_bytes_;
  RecycledMessage<Request> request_;
  Response response_;
};

class UnaryPool;

// One call: posted, taken, answered, over, and then idle until it is posted again.
class UnaryCall final : public Completion {
 public:
  using Responder = grpc::ServerAsyncResponseWriter<grpc::ByteBuffer>;

  // `pool` owns the call.
  explicit UnaryCall(UnaryPool* pool) : pool_(pool) {}

  void Post(const RequestCall<Responder>& request_call, grpc::ServerCompletionQueue* queue) {
    has_place_ = true;
    responder_.emplace(&context_.emplace());
    request_call(&*context_, &request_, &*responder_, queue, tag());
  }
  void OnCompletion(bool ok) override;
  bool BringsLookup() const override;
  void AwaitTurn() override;
  void Shed() override;

 private:
  // Lets another call wait for a client in the place of this one, which has been taken.
  void GiveUpPlace();
  void Finish(const grpc::Status& status, const grpc::ByteBuffer& response);

  UnaryPool* const pool_;
  bool has_place_ = false;  // is among those that wait for clients

  // Of the call at hand. The responder refers to the context.
  std::optional<grpc::ServerContext> context_;
  std::optional<Responder> responder_;
  grpc::ByteBuffer request_;
  std::optional<Outbox::Place> answer_;  // while it is on its way
};

// The calls of one unary method on one queue.
//
// A few are posted at a time; one that is taken is replaced at once, since its answer leaves only when its client lets
// it: the queue's Outbox bounds what such clients hold. Everything runs on the queue's thread.
class UnaryPool {
 public:
  // `queue` and `state` are not owned. `posted` calls at a time wait for clients.
  UnaryPool(RequestCall<UnaryCall::Responder> request_call, std::unique_ptr<UnaryMethod> method,
            grpc::ServerCompletionQueue* queue, QueueState* state, size_t posted)
      : request_call_(std::move(request_call)),
        method_(std::move(method)),
        queue_(queue),
        state_(state),
        posted_target_(posted) {}

  // Posts calls until as many wait as should.
  void Fill() {
    while (!state_->stopped && posted_ < posted_target_) {
      if (idle_.empty()) {
        calls_.push_back(std::make_unique<UnaryCall>(this));
        idle_.push_back(calls_.back().get());
      }
      UnaryCall* const call = idle_.back();
      idle_.pop_back();
      ++posted_;
      ++state_->live_calls;
      call->Post(request_call_, queue_);
    }
  }

 private:
  friend class UnaryCall;

  void Release(UnaryCall* call) {
    --state_->live_calls;
    idle_.push_back(call);
  }

  const RequestCall<UnaryCall::Responder> request_call_;
  const std::unique_ptr<UnaryMethod> method_;
  grpc::ServerCompletionQueue* const queue_;
  QueueState* const state_;
  const size_t posted_target_;

  size_t posted_ = 0;
  std::vector<std::unique_ptr<UnaryCall>> calls_;
  std::vector<UnaryCall*> idle_;  // the one used last is at the back
};

inline bool UnaryCall::BringsLookup() const { return !answer_.has_value() && pool_->method_->CanShed(); }

inline void UnaryCall::GiveUpPlace() {
  if (!std::exchange(has_place_, false)) return;
  --pool_->posted_;
}

inline void UnaryCall::AwaitTurn() {
  GiveUpPlace();
  pool_->Fill();
}

inline void UnaryCall::OnCompletion(bool ok) {
  if (answer_.has_value()) {  // and whether it arrived is the client's affair
    pool_->state_->outbox.Remove(*answer_);
    answer_.reset();
    // An idle call must not keep its last client's connection open.
    responder_.reset();
    context_.reset();
    pool_->Release(this);
    return;
  }
  GiveUpPlace();
  if (!ok) {  // not a call: the server is shutting down
    pool_->Release(this);
    return;
  }
  grpc::ByteBuffer response;
  const grpc::Status status = pool_->method_->Serve(*context_, &request_, &response);
  Finish(status, response);
}

inline void UnaryCall::Shed() {
  GiveUpPlace();
  grpc::ByteBuffer response;
  const grpc::Status status = pool_->method_->Shed(*context_, &request_, &response);
  Finish(status, response);
}

inline void UnaryCall::Finish(const grpc::Status& status, const grpc::ByteBuffer& response) {
  answer_ = pool_->state_->outbox.Add(&*context_, response.Length());
  if (status.ok()) {
    responder_->Finish(response, status, tag());
  } else {
    responder_->FinishWithError(status, tag());
  }
  pool_->Fill();
}

}  // namespace icache
