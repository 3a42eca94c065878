#include "icache/access/client_authority.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tests/testing/certificates.h"
#include "tests/testing/status_matchers.h"

namespace icache::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Holds a value for which `matcher` is true.
MATCHER_P(Holds, matcher, "holds a fitting value") {
  return arg.ok() && ::testing::ExplainMatchResult(matcher, *arg, result_listener);
}

constexpr absl::StatusCode kUnknown = absl::StatusCode::kUnauthenticated;

class ClientAuthorityTest : public ::testing::Test {
 protected:
  // What the authority says of a certificate of its own, signed with these extensions.
  absl::StatusOr<std::vector<std::string>> NamesWith(const std::string& extensions, int days = 2) const {
    certificates_.SignWith("client", extensions, days);
    return NamesOf(certificates_);
  }
  // … of the one that `signed_by` has signed last.
  absl::StatusOr<std::vector<std::string>> NamesOf(const CertificateFolder& signed_by) const {
    const auto authority = ClientAuthority::Create(TextOfFile(certificates_.ca()));
    if (!authority.ok()) return authority.status();
    const std::string der = signed_by.folder() / "client.der";
    const std::string command = "openssl x509 -outform der -in " + signed_by.Certificate("client") + " -out " + der;
    EXPECT_EQ(std::system(command.c_str()), 0);
    const std::string bytes = TextOfFile(der);
    return (*authority)->NamesOf({std::string_view(bytes)});
  }

  const CertificateFolder certificates_;
};

TEST_F(ClientAuthorityTest, NamesAreThoseOfTheFourKinds) {
  EXPECT_THAT(NamesWith("subjectAltName=DNS:a.test,URI:spiffe://a,email:a@b.test,IP:10.1.2.3,IP:2001:db8::1,"
                        "RID:1.2.3.4\n"),
              Holds(ElementsAre("a.test", "spiffe://a", "a@b.test", "10.1.2.3", "2001:db8::1")));
}

TEST_F(ClientAuthorityTest, ThereMayBeAnyNumberOfNames) {
  std::string names = "subjectAltName=DNS:last.test";
  for (int i = 0; i < 200; ++i) names += ",DNS:n" + std::to_string(i) + ".test";
  EXPECT_THAT(NamesWith(names + "\n"), Holds(SizeIs(201)));
}

TEST_F(ClientAuthorityTest, ThereMayBeNone) {
  EXPECT_THAT(NamesWith("extendedKeyUsage=clientAuth\n"), Holds(IsEmpty()));
}

TEST_F(ClientAuthorityTest, ACertificateForServersAloneIsRefused) {
  EXPECT_THAT(NamesWith("extendedKeyUsage=serverAuth\n"), StatusIs(kUnknown, HasSubstr("client certificate: ")));
}

TEST_F(ClientAuthorityTest, AnExpiredOneIsRefused) {
  EXPECT_THAT(NamesWith("subjectAltName=DNS:a.test\n", -1), StatusIs(kUnknown, HasSubstr("has expired")));
}

TEST_F(ClientAuthorityTest, NamesThatCannotBeReadAreRefused) {
  for (const char* const names : {"30:08:87:06:0a:01:02:03:04:05", "30:02:87:00", "30:08:82:01:61:87:03:0a:01:02"}) {
    EXPECT_THAT(NamesWith(std::string("subjectAltName=DER:") + names + "\n"),
                StatusIs(kUnknown, HasSubstr("invalid name syntax")))
        << names;
  }
}

TEST_F(ClientAuthorityTest, OneOfAnotherAuthorityIsRefused) {
  const CertificateFolder others;
  others.Sign("client");
  EXPECT_THAT(NamesOf(others), StatusIs(kUnknown));
}

TEST_F(ClientAuthorityTest, NoChainOrNoCertificateIsRefused) {
  const auto authority = ClientAuthority::Create(TextOfFile(certificates_.ca()));
  ASSERT_THAT(authority, IsOk());
  EXPECT_THAT((*authority)->NamesOf({}), StatusIs(kUnknown, "a client certificate is needed"));
  EXPECT_THAT((*authority)->NamesOf({"junk"}), StatusIs(kUnknown, HasSubstr("cannot be read")));
}

TEST_F(ClientAuthorityTest, AnAuthorityHasCertificates) {
  EXPECT_THAT(ClientAuthority::Create("junk"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace icache::testing
