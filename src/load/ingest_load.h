// IngestLoad: observations beside a bench's lookups, at a steady rate, on one stream of a replica of its own.
//
// Every update stores a new chain and evicts the one stored kLiveChains updates before, so the index stays level.
// Blocks are counted when they are written to the stream, which stops taking more when the daemon does not keep up.
#pragma once

#include <cstdint>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "load/connection.h"
#include "load/workload.h"

namespace icache {

class IngestLoad {
 public:
  static constexpr uint64_t kLiveChains = 256;

  // `workload` gives names and the shape of chains; it and `connection` must outlive this. Requires: blocks_per_s > 0.
  IngestLoad(const Workload* workload, const Connection* connection, double blocks_per_s);
  ~IngestLoad();  // Stop()s
  IngestLoad(const IngestLoad&) = delete;
  IngestLoad& operator=(const IngestLoad&) = delete;

  // Ends the stream, waits for its Ack, and clears the replica. The first error of all that, if any.
  absl::Status Stop();

  // After Stop(): blocks stored a second (as many were evicted, but for the first chains).
  double BlocksPerSecond() const { return blocks_per_s_; }

 private:
  void Write(std::stop_token stop);

  const Workload* const workload_;
  const Connection* const connection_;
  const int64_t nanos_per_update_;
  absl::Status status_;      // of the thread, until it has ended
  double blocks_per_s_ = 0;  // likewise
  std::jthread thread_;      // last: it uses all of the above
};

}  // namespace icache
