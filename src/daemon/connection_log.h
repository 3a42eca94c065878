// ConnectionLog: counts the connections of one listener that come to nothing, and says so. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "icache/net/connection_observer.h"
#include "icache/telemetry/logging.h"
#include "icache/telemetry/metrics.h"

namespace icache {

class ConnectionLog final : public ConnectionObserver {
 public:
  // `name` is the listener's, and a literal. Nothing is owned.
  ConnectionLog(Listener listener, std::string_view name, Metrics* metrics, Logger* logger, const Clock* clock)
      : listener_(listener), name_(name), metrics_(metrics), logger_(logger), clock_(clock) {}

  void OnAcceptFailed(int error) override {
    metrics_->RecordAcceptFailure(listener_);
    const int64_t now = absl::ToUnixSeconds(clock_->Now());
    if (now - waiting_told_at_s_.load(std::memory_order_relaxed) < kRepeatSeconds) return;
    waiting_told_at_s_.store(now, std::memory_order_relaxed);
    logger_->Warn("connections_wait", {{"listener", name_}, {"because", std::strerror(error)}});
  }
  void OnHandshakeFailed(std::string_view client_address, std::string_view why) override {
    metrics_->RecordHandshakeFailure(listener_);
    logger_->Warn("tls_handshake_failed", {{"listener", name_}, {"client", client_address}, {"reason", why}});
  }
  void OnCut(Cut why) override { metrics_->RecordHttpCut(why == Cut::kRoom); }
  void OnCompressedRequest() override {
    metrics_->RecordCompressedRequest();
    logger_->Warn("compressed_request_refused");
  }

 private:
  static constexpr int64_t kRepeatSeconds = 10;

  const Listener listener_;
  const std::string_view name_;
  Metrics* const metrics_;
  Logger* const logger_;
  const Clock* const clock_;
  std::atomic<int64_t> waiting_told_at_s_ = 0;
};

}  // namespace icache
