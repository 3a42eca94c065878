#include "daemon/certificate_alarm.h"

#include <algorithm>
#include <string>

namespace icache {
namespace {

constexpr absl::Duration kLongestNotice = absl::Hours(7 * 24);
constexpr int kNoticeShare = 10;  // of what it lives, this part is its end
constexpr absl::Duration kRepeat = absl::Hours(24);

std::string TextOf(absl::Time time) { return absl::FormatTime(time, absl::UTCTimeZone()); }

}  // namespace

CertificateAlarm::Validity CertificateAlarm::ValidityAt(absl::Time now, absl::Time valid_from, absl::Time expires_at) {
  if (now < valid_from) return Validity::kNotYet;
  if (now >= expires_at) return Validity::kExpired;
  const absl::Duration notice = std::min(kLongestNotice, (expires_at - valid_from) / kNoticeShare);
  return expires_at - now <= notice ? Validity::kEnding : Validity::kValid;
}

bool CertificateAlarm::IsNews(Validity validity, const std::string& certificates, absl::Time now, Told* told) {
  if (validity == told->validity && certificates == told->certificates && now - told->at < kRepeat) return false;
  *told = {validity, certificates, now};
  return true;
}

void CertificateAlarm::Check(const TlsIdentity& identity, absl::Time now) {
  MutexLock lock(&mutex_);
  CheckOwn(identity, now);
  CheckClientCa(identity, now);
}

void CertificateAlarm::CheckOwn(const TlsIdentity& identity, absl::Time now) {
  const Validity validity = ValidityAt(now, identity.valid_from, identity.expires_at);
  if (!IsNews(validity, identity.certificate_chain, now, &own_)) return;
  switch (validity) {
    case Validity::kValid:
      return;
    case Validity::kNotYet:
      logger_->Warn("tls_certificate_not_yet_valid",
                    {{"listener", listener_}, {"valid_from", TextOf(identity.valid_from)}});
      return;
    case Validity::kEnding:
      logger_->Warn("tls_certificate_expires", {{"listener", listener_}, {"expires", TextOf(identity.expires_at)}});
      return;
    case Validity::kExpired:
      logger_->Error("tls_certificate_expired", {{"listener", listener_}, {"expires", TextOf(identity.expires_at)}});
      return;
  }
}

void CertificateAlarm::CheckClientCa(const TlsIdentity& identity, absl::Time now) {
  const Validity validity = ValidityAt(now, absl::InfinitePast(), identity.client_ca_expires_at);
  if (!IsNews(validity, identity.client_ca, now, &client_ca_)) return;
  const std::string expires = TextOf(identity.client_ca_expires_at);
  if (validity == Validity::kEnding) {
    logger_->Warn("tls_client_ca_expires", {{"listener", listener_}, {"expires", expires}});
  } else if (validity == Validity::kExpired) {
    logger_->Error("tls_client_ca_expired", {{"listener", listener_}, {"expires", expires}});
  }
}

}  // namespace icache
