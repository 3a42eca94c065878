#include "daemon/certificate_alarm.h"

#include <algorithm>
#include <string>

namespace icache {
namespace {

constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);
constexpr int kNoticeShare = 10;  // of what it lives, this part is its end
constexpr absl::Duration kRepeat = absl::Hours(24);

}  // namespace

CertificateAlarm::Validity CertificateAlarm::ValidityOf(const TlsIdentity& identity, absl::Time now) {
  if (now < identity.valid_from) return Validity::kNotYet;
  if (now >= identity.expires_at) return Validity::kExpired;
  const absl::Duration notice = std::min(kLongestNotice, (identity.expires_at - identity.valid_from) / kNoticeShare);
  return identity.expires_at - now <= notice ? Validity::kEnding : Validity::kValid;
}

void CertificateAlarm::Check(const TlsIdentity& identity, absl::Time now) {
  const Validity validity = ValidityOf(identity, now);
  {
    MutexLock lock(&mutex_);
    if (validity == told_ && identity.expires_at == told_of_ && now - told_at_ < kRepeat) return;
    told_ = validity;
    told_of_ = identity.expires_at;
    told_at_ = now;
  }
  const std::string expires = absl::FormatTime(identity.expires_at, absl::UTCTimeZone());
  switch (validity) {
    case Validity::kValid:
      return;
    case Validity::kNotYet:
      logger_->Warn(
          "tls_certificate_not_yet_valid",
          {{"listener", listener_}, {"valid_from", absl::FormatTime(identity.valid_from, absl::UTCTimeZone())}});
      return;
    case Validity::kEnding:
      logger_->Warn("tls_certificate_expires", {{"listener", listener_}, {"expires", expires}});
      return;
    case Validity::kExpired:
      logger_->Error("tls_certificate_expired", {{"listener", listener_}, {"expires", expires}});
      return;
  }
}

}  // namespace icache
