#include "bridge/daemon_secrets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/config/temp_folder.h"
#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::CertificateFolder;
using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;
using ::icache::testing::TempFolder;
using ::testing::HasSubstr;

class DaemonSecretsTest : public ::testing::Test {
 protected:
  void ExpectRefused(const std::string& what) {
    EXPECT_THAT(ReadDaemonSecrets(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  }

  ReportOptions options_;
  TempFolder folder_;
};

TEST_F(DaemonSecretsTest, WithoutFilesThereIsNothingToRead) { EXPECT_THAT(ReadDaemonSecrets(options_), IsOk()); }

TEST_F(DaemonSecretsTest, TheTokenIsWithoutTheSpaceAroundIt) {
  options_.token_file = folder_.Write("token", " abc.DEF\n");
  const auto secrets = ReadDaemonSecrets(options_);
  ASSERT_THAT(secrets, IsOk());
  EXPECT_EQ(secrets->token, "abc.DEF");
}

TEST_F(DaemonSecretsTest, AFileWithoutATokenIsRefused) {
  options_.token_file = "/no/such/token";
  ExpectRefused("/no/such/token");
  for (const char* text : {"", " \n", "two\nlines", "two words", "\x80"}) {
    options_.token_file = folder_.Write("token", text);
    ExpectRefused("token: holds no token");
  }
}

TEST_F(DaemonSecretsTest, CertificatesAndKeyMustFit) {
  const CertificateFolder certificates;
  certificates.Sign("client");
  certificates.Sign("other");
  options_.tls = true;
  options_.tls_ca_file = certificates.ca();
  options_.tls_cert_file = certificates.Certificate("client");
  options_.tls_key_file = certificates.Key("client");
  EXPECT_THAT(ReadDaemonSecrets(options_), IsOk());
  options_.tls_key_file = certificates.Key("other");
  ExpectRefused("is not the key of the certificate");
  options_.tls_cert_file = options_.tls_key_file = "";
  options_.tls_ca_file = certificates.Key("client");
  ExpectRefused("holds no PEM certificates");
  options_.tls_ca_file = "/no/such/ca";
  ExpectRefused("/no/such/ca");
}

}  // namespace
}  // namespace icache
