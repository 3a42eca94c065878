// CertificateAlarm: says when a listener's certificate is not valid yet, will soon be no more, or has expired, and
// likewise when its client CA will or has: once when that comes about, or another one comes into force of which it is
// true, and again each day. Thread-safe.
#pragma once

#include <string>
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
  // What has been said last of which certificates.
  struct Told {
    Validity validity = Validity::kValid;
    std::string certificates;
    absl::Time at;
  };

  static Validity ValidityAt(absl::Time now, absl::Time valid_from, absl::Time expires_at);
  // Whether that is to be said now; it counts as told then.
  static bool IsNews(Validity validity, const std::string& certificates, absl::Time now, Told* told);

  void CheckOwn(const TlsIdentity& identity, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CheckClientCa(const TlsIdentity& identity, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string_view listener_;
  Logger* const logger_;

  Mutex mutex_;
  Told own_ ABSL_GUARDED_BY(mutex_);
  Told client_ca_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace icache
