#include "load/lookup_driver.h"

#include <sys/prctl.h>

#include <chrono>
#include <limits>
#include <thread>
#include <utility>

#include "load/steady_time.h"

namespace icache {
namespace {

std::chrono::steady_clock::time_point SteadyTime(int64_t nanos) {
  return std::chrono::steady_clock::time_point(std::chrono::nanoseconds(nanos));
}

std::string StatusName(grpc::StatusCode code) { return absl::StatusCodeToString(static_cast<absl::StatusCode>(code)); }

}  // namespace

LookupDriver::LookupDriver(const Workload* workload, std::vector<const Connection*> connections, LookupMode mode,
                           size_t concurrency, uint64_t seed)
    : workload_(workload), random_(seed) {
  for (size_t i = 0; i < concurrency; ++i) {
    calls_.push_back(LookupCall::Make(mode, connections[i % connections.size()], &queue_));
  }
}

LookupDriver::~LookupDriver() = default;

void LookupDriver::RunClosedLoop(int64_t measure_from_ns, int64_t end_ns, std::atomic<int64_t>* budget) {
  size_t in_flight = 0;
  const auto send_next = [&](LookupCall* call) {
    const int64_t now = SteadyNanos();
    const bool measured = now >= measure_from_ns;
    if (now >= end_ns || (measured && budget->fetch_sub(1, std::memory_order_relaxed) <= 0)) return;
    ++in_flight;
    Send(call, now, measured);
  };
  for (const auto& call : calls_) send_next(call.get());
  void* tag = nullptr;
  bool ok = false;
  while (in_flight > 0 && queue_.Next(&tag, &ok)) {
    auto* call = static_cast<LookupCall*>(tag);
    if (!call->OnCompletion(ok)) continue;
    --in_flight;
    TallyAnswer(*call);
    send_next(call);
  }
  queue_.Shutdown();
  while (queue_.Next(&tag, &ok)) {
  }
}

void LookupDriver::RunOpenLoop(const SendSchedule& schedule, uint64_t first, uint64_t stride) {
  {
    MutexLock lock(&mutex_);
    for (const auto& call : calls_) idle_.push_back(call.get());
  }
  std::thread sender([&] { SendOnSchedule(schedule, first, stride); });
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
    auto* call = static_cast<LookupCall*>(tag);
    {
      MutexLock lock(&mutex_);
      if (!call->OnCompletion(ok)) continue;
      TallyAnswer(*call);
      idle_.push_back(call);
    }
    idle_grew_.notify_one();
  }
  sender.join();
  tally_.Merge(unsent_);
}

void LookupDriver::SendOnSchedule(const SendSchedule& schedule, uint64_t first, uint64_t stride) {
  prctl(PR_SET_TIMERSLACK, 1);  // by default the kernel may let a thread sleep 50 µs longer than it asked
  const int64_t give_up_ns = schedule.TimeOf(schedule.size()) + absl::ToInt64Nanoseconds(kCallTimeout);
  for (uint64_t number = first; number < schedule.size(); number += stride) {
    const int64_t due_ns = schedule.TimeOf(number);
    std::this_thread::sleep_until(SteadyTime(due_ns));
    LookupCall* const call = TakeIdle(give_up_ns);
    if (call != nullptr) {
      MutexLock lock(&mutex_);  // the answer may come before Send() returns
      Send(call, due_ns, schedule.IsMeasured(number));
    } else if (schedule.IsMeasured(number)) {
      ++unsent_.errors["UNSENT"];
      unsent_.latency_ns.Record(SteadyNanos() - due_ns);
    }
  }
  // Deadlines bring every unary call back, and the daemon every stream.
  for (size_t i = 0; i < calls_.size(); ++i) TakeIdle(std::numeric_limits<int64_t>::max());
  queue_.Shutdown();
}

LookupCall* LookupDriver::TakeIdle(int64_t give_up_ns) {
  MutexLock lock(&mutex_);
  while (idle_.empty()) {
    if (idle_grew_.wait_until(mutex_, SteadyTime(give_up_ns)) == std::cv_status::timeout && idle_.empty())
      return nullptr;
  }
  LookupCall* const call = idle_.back();
  idle_.pop_back();
  return call;
}

void LookupDriver::Send(LookupCall* call, int64_t counted_from_ns, bool measured) {
  call->counted_from_ns = counted_from_ns;
  call->measured = measured;
  call->Start(workload_->Draw(&random_));
}

void LookupDriver::TallyAnswer(const LookupCall& call) {
  if (!call.measured) return;
  tally_.last_done_ns = SteadyNanos();
  tally_.latency_ns.Record(tally_.last_done_ns - call.counted_from_ns);
  if (call.status().ok()) {
    tally_.server_us.Record(call.response().lookup_latency_us());
    ++tally_.reason_codes[call.response().reason_code()];
  } else {
    ++tally_.errors[StatusName(call.status().error_code())];
  }
}

}  // namespace icache
