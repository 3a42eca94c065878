// LookupDriver: one thread's share of a bench: a completion queue, some connections, and a fixed number of calls that
// may be in flight at once, each a unary call or an exchange on a stream (lookup_call.h).
//
// Closed loop: each of those calls is sent anew as soon as its answer is there; a latency runs from the sending.
// Open loop: calls are sent at the times of a SendSchedule. When all calls are in flight, those that come due wait; a
// latency runs from the time that the schedule says. A second thread does the sending.
//
// Use: construct, Run*() once, then read tally(). The workload and the connections must outlive the driver.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/base/mutex.h"
#include "load/connection.h"
#include "load/lookup_call.h"
#include "load/lookup_tally.h"
#include "load/random.h"
#include "load/send_schedule.h"
#include "load/workload.h"

namespace icache {

class LookupDriver {
 public:
  // `connections` not empty; `concurrency` >= 1 calls are spread over them evenly.
  LookupDriver(const Workload* workload, std::vector<const Connection*> connections, LookupMode mode,
               size_t concurrency, uint64_t seed);
  ~LookupDriver();
  LookupDriver(const LookupDriver&) = delete;
  LookupDriver& operator=(const LookupDriver&) = delete;

  // Sends until `end_ns` or until `budget` is used up, which drivers share: one for each call sent from
  // `measure_from_ns` on, and those alone are tallied. Returns when the last answer is there.
  void RunClosedLoop(int64_t measure_from_ns, int64_t end_ns, std::atomic<int64_t>* budget);

  // Sends the calls number `first`, `first + stride`, ... of the schedule. Calls that still wait kCallTimeout after its
  // end are tallied as UNSENT. Returns when the last answer is there.
  void RunOpenLoop(const SendSchedule& schedule, uint64_t first, uint64_t stride);

  const LookupTally& tally() const { return tally_; }

 private:
  void Send(LookupCall* call, int64_t counted_from_ns, bool measured);
  void TallyAnswer(const LookupCall& call);
  void SendOnSchedule(const SendSchedule& schedule, uint64_t first, uint64_t stride) ABSL_LOCKS_EXCLUDED(mutex_);
  // A call that is not in flight, or nullptr when none comes back before `give_up_ns`.
  LookupCall* TakeIdle(int64_t give_up_ns) ABSL_LOCKS_EXCLUDED(mutex_);

  const Workload* const workload_;
  grpc::CompletionQueue queue_;
  std::vector<std::unique_ptr<LookupCall>> calls_;

  SplitMix64 random_;   // of the thread that sends
  LookupTally tally_;   // of the thread that receives
  LookupTally unsent_;  // of the thread that sends, until it ends

  Mutex mutex_;  // also hands a call from the thread that sends it to the one that receives its answer
  std::condition_variable_any idle_grew_;
  std::vector<LookupCall*> idle_ ABSL_GUARDED_BY(mutex_);  // open loop only
};

}  // namespace icache
