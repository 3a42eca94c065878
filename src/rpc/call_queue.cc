#include "rpc/call_queue.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

namespace icache {
namespace {

// Completions between two looks at what waits. A look that finds nothing costs as much as a call into the kernel.
constexpr int kLookEvery = 64;

// Lookups shed at a time.
constexpr size_t kMostShed = 4096;

}  // namespace

CallQueue::CallQueue(std::string name, std::unique_ptr<grpc::ServerCompletionQueue> queue, size_t max_unsent_bytes,
                     size_t max_waiting)
    : name_(std::move(name)),
      max_waiting_(max_waiting),
      queue_(std::move(queue)),
      state_(queue_.get(), max_unsent_bytes) {}

CallQueue::~CallQueue() { Stop(); }

void CallQueue::AddUnary(RequestCall<UnaryCall::Responder> request_call, std::unique_ptr<UnaryMethod> method,
                         size_t posted) {
  unary_pools_.push_back(
      std::make_unique<UnaryPool>(std::move(request_call), std::move(method), queue_.get(), &state_, posted));
}

void CallQueue::AddStreams(StreamPool::Factory factory, StreamLimit* limit) {
  stream_pools_.push_back(std::make_unique<StreamPool>(limit, std::move(factory), &state_));
}

void CallQueue::Start() {
  for (const auto& pool : unary_pools_) pool->Fill();
  for (const auto& pool : stream_pools_) pool->Fill();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name_.c_str());
}

void CallQueue::Wake() {
  state_.inbox.Post([this] {
    for (const auto& pool : stream_pools_) pool->Wake();
  });
}

void CallQueue::Drain() {
  state_.inbox.Post([this] {
    for (const auto& pool : stream_pools_) pool->Drain();
  });
}

void CallQueue::AwaitQuiet(absl::Time give_up_at) { quiet_.WaitForNotificationWithDeadline(give_up_at); }

void CallQueue::Stop() {
  if (thread_.joinable()) {
    state_.inbox.Post([this] { EndQueue(); });
    thread_.join();
  } else if (!state_.stopped) {
    EndQueue();
    Run();  // nothing was posted: only sees the queue's end
  }
}

void CallQueue::EndQueue() {
  state_.stopped = true;
  queue_->Shutdown();
}

void CallQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  for (int served = 1; queue_->Next(&tag, &ok); ++served) {
    static_cast<Completion*>(tag)->OnCompletion(ok);
    if (served % kLookEvery == 0) ServeWaiting();
    if (state_.live_calls == 0 && !quiet_.HasBeenNotified()) quiet_.Notify();
  }
}

void CallQueue::ServeWaiting() {
  const size_t most = max_waiting_ + kMostShed;
  void* tag = nullptr;
  bool ok = false;
  while (waiting_.size() < most &&
         queue_->AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC)) == grpc::CompletionQueue::GOT_EVENT) {
    auto* const completion = static_cast<Completion*>(tag);
    if (ok && completion->BringsLookup()) {
      completion->AwaitTurn();
      waiting_.push_back(completion);
    } else {
      completion->OnCompletion(ok);
    }
  }
  for (size_t i = max_waiting_; i < waiting_.size(); ++i) waiting_[i]->Shed();
  waiting_.resize(std::min(waiting_.size(), max_waiting_));
  for (Completion* const completion : waiting_) completion->OnCompletion(true);
  waiting_.clear();
}

}  // namespace icache
