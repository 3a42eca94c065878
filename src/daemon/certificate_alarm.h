// CertificateAlarm: says when a listener's certificate is not valid yet, will soon be no more, or has expired: once
// when that comes about, and again each day. Thread-safe.
#pragma once

#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/access/tls_identity.h"
#include "icache/base/mutex.h"
#include "icache/telemetry/logging.h"

namespace icache {

class CertificateAlarm {
 public:
  // `listener` is for the log, and a literal. `logger` is not owned.
  CertificateAlarm(std::string_view listener, Logger* logger) : listener_(listener), logger_(logger) {}

  // Looks at the identity in force.
  void Check(const TlsIdentity& identity, absl::Time now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  enum class Validity { kValid, kNotYet, kEnding, kExpired };

  static Validity ValidityOf(const TlsIdentity& identity, absl::Time now);

  const std::string_view listener_;
  Logger* const logger_;

  Mutex mutex_;
  Validity told_ ABSL_GUARDED_BY(mutex_) = Validity::kValid;
  absl::Time told_of_ ABSL_GUARDED_BY(mutex_);  // which certificate: when it expires
  absl::Time told_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
