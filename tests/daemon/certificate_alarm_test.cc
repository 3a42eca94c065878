#include "daemon/certificate_alarm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class EventNames final : public Logger {
 public:
  void Log(LogSeverity, std::string_view event, absl::Span<const LogField>) override { events.emplace_back(event); }

  std::vector<std::string> events;
};

class CertificateAlarmTest : public ::testing::Test {
 protected:
  static TlsIdentity Valid(absl::Time from, absl::Time until) {
    return {.certificate_chain = "", .private_key = "", .client_ca = "", .valid_from = from, .expires_at = until};
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

}  // namespace
}  // namespace icache
