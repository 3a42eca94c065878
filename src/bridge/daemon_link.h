// DaemonLink: one daemon, told what its outbox holds.
//
// A thread connects, asks the daemon which fields it understands, and then sends on one stream of updates, in order.
// A daemon that goes away, or takes nothing for write_timeout, is disconnected from and tried again, with growing
// pauses; its outbox then sees to it that it is told everything anew.
//
// A daemon tells those whom it lets about clears, so somebody else's are noticed, and it is told again what they took
// away. One that does not, or stops to, is asked again from time to time.
//
// A daemon without the extension fields is told the same by the base wire: each update is a stream of its own that is
// waited for, and clears and evictions are events before it, so that the order stays what it was. Source:
// contract/wire.md.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "bridge/clear_watch.h"
#include "bridge/options.h"
#include "bridge/outbox.h"
#include "icache/base/moment.h"
#include "icache/telemetry/logging.h"

namespace icache {

class DaemonConnection;
class QueueWaker;

class DaemonLink {
 public:
  struct Counts {
    int64_t updates = 0;      // sent
    int64_t blocks = 0;       // in them
    int64_t connections = 0;  // made
    int64_t write_timeouts = 0;
    int64_t foreign_clears = 0;  // of replicas that it was told of, by somebody else
    bool base_wire = false;      // the connection's, or the last one's
  };

  // `address` is a gRPC target; `host` the name that its certificate should carry, "" = the target's. `options` and
  // `logger` are not owned and must outlive it.
  DaemonLink(std::string address, std::string host, const ReportOptions* options, Logger* logger);
  // Stops, without waiting for what is queued.
  ~DaemonLink();
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  const std::string& address() const { return address_; }
  Outbox* outbox() { return outbox_.get(); }
  Counts counts() const;

  // Sends what is queued, ends the stream, waits for the daemon's answer, and stops; at `deadline`, of the
  // steady clock, it stops anyway.
  void BeginFlush(absl::Time deadline);
  void WaitForFlush();

 private:
  void Run();
  void Stop();
  bool stopping() const { return stop_at_us_.load() <= absl::ToUnixMicros(SteadyNow()); }
  // Returns when the connection is lost, or everything is flushed.
  void Serve(DaemonConnection* connection);
  // Hears what the daemon says of clears, and sees to it that who lost something is told anew.
  void HearClears(DaemonConnection* connection, ClearWatch* watch);
  // Sleeps, unless told to stop.
  void Pause(absl::Duration time);

  const std::string address_;
  const std::string host_;
  const ReportOptions* const options_;
  Logger* const logger_;
  const std::unique_ptr<QueueWaker> waker_;
  const std::unique_ptr<Outbox> outbox_;
  std::atomic<int64_t> stop_at_us_{INT64_MAX};  // of the steady clock
  std::atomic<bool> flushing_ = false;

  // Counters that nothing depends on: relaxed.
  std::atomic<int64_t> updates_ = 0;
  std::atomic<int64_t> blocks_ = 0;
  std::atomic<int64_t> connections_ = 0;
  std::atomic<int64_t> write_timeouts_ = 0;
  std::atomic<int64_t> foreign_clears_ = 0;
  std::atomic<bool> base_wire_ = false;
  std::string unheard_;  // why clears are not heard of, as last logged
  std::thread thread_;   // last: it uses the rest
};

}  // namespace icache
