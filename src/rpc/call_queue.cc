#include "rpc/call_queue.h"

#include <pthread.h>

#include <utility>

namespace icache {

CallQueue::CallQueue(std::string name, std::unique_ptr<grpc::ServerCompletionQueue> queue)
    : name_(std::move(name)),
      queue_(std::move(queue)),
      drain_([this] {
        for (const auto& pool : stream_pools_) pool->Drain();
      }),
      stop_([this] {
        state_.stopped = true;
        queue_->Shutdown();
      }) {}

CallQueue::~CallQueue() { Stop(); }

void CallQueue::AddUnary(RpcService* service, UnaryCall::RequestFunction request, std::unique_ptr<UnaryMethod> method,
                         size_t posted) {
  unary_pools_.push_back(
      std::make_unique<UnaryPool>(service, request, std::move(method), queue_.get(), &state_, posted));
}

void CallQueue::AddStreams(StreamPool::Factory factory, size_t max_open) {
  stream_pools_.push_back(std::make_unique<StreamPool>(max_open, std::move(factory), &state_));
}

void CallQueue::Start() {
  for (const auto& pool : unary_pools_) pool->Fill();
  for (const auto& pool : stream_pools_) pool->Post();
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), name_.c_str());
}

void CallQueue::Drain() { drain_.Raise(queue_.get()); }

void CallQueue::AwaitQuiet(absl::Time give_up_at) { quiet_.WaitForNotificationWithDeadline(give_up_at); }

void CallQueue::Stop() {
  if (thread_.joinable()) {
    stop_.Raise(queue_.get());
    thread_.join();
  } else if (!state_.stopped) {
    stop_.OnCompletion(true);
    Run();  // nothing was posted: only sees the queue's end
  }
}

void CallQueue::Run() {
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    static_cast<Completion*>(tag)->OnCompletion(ok);
    if (state_.live_calls == 0 && !quiet_.HasBeenNotified()) quiet_.Notify();
  }
}

}  // namespace icache
