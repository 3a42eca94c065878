#include "rpc/inbox.h"

#include <utility>

namespace icache {

void Inbox::Post(std::function<void()> function) {
  MutexLock lock(&mutex_);
  functions_.push_back(std::move(function));
  if (functions_.size() == 1) alarm_.Set(queue_, gpr_now(GPR_CLOCK_MONOTONIC), tag());
}

void Inbox::OnCompletion(bool /*ok*/) {
  std::vector<std::function<void()>> functions;
  {
    MutexLock lock(&mutex_);
    functions.swap(functions_);
  }
  for (const auto& function : functions) function();
}

}  // namespace icache
