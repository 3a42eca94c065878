#include "daemon/certificate_alarm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace icache {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class EventNames final : public Logger {
 public:
  void Log(LogSeverity, std::string_view event, absl::Span<const LogField>) override { events.emplace_back(event); }

  std::vector<std::string> events;
};

class CertificateAlarmTest : public ::testing::Test {
 protected:
  static TlsIdentity Valid(absl::Time from, absl::Time until) {
    TlsIdentity identity;
    identity.certificate_chain = absl::FormatTime(until);
    identity.valid_from = from;
    identity.expires_at = until;
    return identity;
  }

  const absl::Time start_ = absl::FromUnixSeconds(1'700'000'000);
  const TlsIdentity year_ = Valid(start_, start_ + absl::Hours(365 * 24));
  EventNames log_;
  CertificateAlarm alarm_{"grpc", &log_};
};

TEST_F(CertificateAlarmTest, NothingIsSaidOfAValidCertificate) {
  for (int day = 0; day < 358; ++day) alarm_.Check(year_, start_ + absl::Hours(24 * day));
  EXPECT_THAT(log_.events, IsEmpty());
}

TEST_F(CertificateAlarmTest, ACertificateOfTheFutureIsTold) {
  alarm_.Check(year_, start_ - absl::Seconds(1));
  alarm_.Check(year_, start_);
  EXPECT_THAT(log_.events, ElementsAre("tls_certificate_not_yet_valid"));
}

TEST_F(CertificateAlarmTest, TheEndIsToldAWeekBeforeAndEachDay) {
  for (int hour = 0; hour < 48; ++hour) alarm_.Check(year_, year_.expires_at - absl::Hours(7 * 24 - hour));
  EXPECT_THAT(log_.events, ElementsAre("tls_certificate_expires", "tls_certificate_expires"));
}

TEST_F(CertificateAlarmTest, OfAShortLifeTheLastTenthIsTheEnd) {
  const TlsIdentity day = Valid(start_, start_ + absl::Hours(20));
  alarm_.Check(day, start_ + absl::Hours(17));
  EXPECT_THAT(log_.events, IsEmpty());
  alarm_.Check(day, start_ + absl::Hours(18));
  EXPECT_THAT(log_.events, ElementsAre("tls_certificate_expires"));
}

TEST_F(CertificateAlarmTest, ExpiryIsToldAtOnceAndARenewalEndsIt) {
  alarm_.Check(year_, year_.expires_at - absl::Seconds(1));
  alarm_.Check(year_, year_.expires_at);
  alarm_.Check(Valid(start_, year_.expires_at + absl::Hours(365 * 24)), year_.expires_at + absl::Hours(25));
  EXPECT_THAT(log_.events, ElementsAre("tls_certificate_expires", "tls_certificate_expired"));
}

TEST_F(CertificateAlarmTest, AnotherExpiredCertificateIsToldAtOnce) {
  TlsIdentity other = year_;
  other.certificate_chain = "other";
  for (const TlsIdentity& identity : {year_, year_, other, other}) alarm_.Check(identity, year_.expires_at);
  EXPECT_THAT(log_.events, ElementsAre("tls_certificate_expired", "tls_certificate_expired"));
}

TEST_F(CertificateAlarmTest, TheEndOfTheClientCaIsTold) {
  TlsIdentity identity = year_;
  identity.client_ca_expires_at = start_ + absl::Hours(30 * 24);
  for (int hour = 0; hour < 8 * 24; ++hour) alarm_.Check(identity, start_ + absl::Hours(22 * 24 + 12 + hour));
  EXPECT_THAT(log_.events,
              AllOf(SizeIs(8), Contains("tls_client_ca_expires").Times(7), Contains("tls_client_ca_expired")));
}

}  // namespace
}  // namespace icache
