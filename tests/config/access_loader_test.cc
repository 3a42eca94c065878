#include "icache/config/access_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using ::testing::Not;
using testing::StatusIs;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;
constexpr char kSecret[] = "s3cr3t-0123456789";

absl::StatusOr<std::shared_ptr<const AccessRules>> Parse(const std::string& text) {
  return ParseAccess({TextFile{"grants.yaml", text}}, ClientCertificates::kAskedFor);
}

TEST(AccessLoaderTest, EachDocumentIsAGrant) {
  const auto rules = Parse(R"(
name: gateways
roles: [lookup]
tenants: [team-a]
tokens: [s3cr3t-0123456789, s3cr3t-of-before-rotation]
---
---
name: engines
roles: [observe, admin]
certificate_names: [engine.test, "spiffe://cluster/engine"]
)");
  ASSERT_THAT(rules, IsOk());
  EXPECT_EQ((*rules)->grant_count(), 2u);
  const Grant* const gateways = (*rules)->OfToken(kSecret);
  ASSERT_NE(gateways, nullptr);
  EXPECT_EQ(gateways->name, "gateways");
  EXPECT_EQ(gateways->tenants, std::vector<std::string>{"team-a"});
  EXPECT_EQ((*rules)->OfToken("s3cr3t-of-before-rotation"), gateways);
  const Grant* const engines = (*rules)->OfCertificateName("spiffe://cluster/engine");
  ASSERT_NE(engines, nullptr);
  EXPECT_EQ(engines->roles, (std::array<bool, kRoleCount>{false, true, true}));
}

TEST(AccessLoaderTest, WhatIsWrongIsToldByPlace) {
  const auto refusal = [](const std::string& text) { return Parse(text).status(); };
  EXPECT_THAT(refusal("- a\n"), StatusIs(kBad, HasSubstr("grants.yaml:1:1: must be a mapping")));
  EXPECT_THAT(refusal("roles: [lookup]\ncertificate_names: [n]\n"),
              StatusIs(kBad, HasSubstr("name: must not be empty")));
  EXPECT_THAT(refusal("name: n\ncertificate_names: [n]\n"), StatusIs(kBad, HasSubstr("roles: must have one at least")));
  EXPECT_THAT(refusal("name: n\nroles: [root]\ncertificate_names: [n]\n"),
              StatusIs(kBad, HasSubstr("grants.yaml:2:9: roles: must be lookup, observe or admin")));
  EXPECT_THAT(refusal("name: n\nroles: [lookup]\n"), StatusIs(kBad, HasSubstr("needs tokens or certificate_names")));
  EXPECT_THAT(refusal("name: n\nroles: [lookup]\ncertificate_names: [n]\ntenants: []\n"),
              StatusIs(kBad, HasSubstr("grants.yaml:4:10: tenants: must be a list of one or more strings")));
  EXPECT_THAT(refusal("name: n\nroles: [lookup]\ncertificate_names: [n]\ntenant: a\n"),
              StatusIs(kBad, HasSubstr("grants.yaml:4:1: unknown field")));
  EXPECT_THAT(refusal("name: n\nroles: [lookup]\ntokens: [short]\n"),
              StatusIs(kBad, HasSubstr("grants.yaml:3:10: tokens: must be of 16 to 4096 visible ASCII characters")));
}

TEST(AccessLoaderTest, OneTokenBelongsToOneGrant) {
  const std::string grant = "name: n\nroles: [lookup]\ntokens: [s3cr3t-0123456789]\n";
  EXPECT_THAT(Parse(grant + "---\n" + grant).status(),
              StatusIs(kBad, HasSubstr("grants.yaml:7:1: tokens: one of them is granted something already")));
}

TEST(AccessLoaderTest, MessagesNeverQuoteASecret) {
  for (const std::string text : {
           "name: n\nroles: [lookup]\ntokens: [*s3cr3t-0123456789]\n",              // an alias to some YAML readers
           "name: n\nroles: [lookup]\ntokens: [!s3cr3t-0123456789 x]\n",            // a type
           "name: n\nroles: [s3cr3t-0123456789]\ntokens: s3cr3t-0123456789\n",      // in the wrong place
           "name: n\nroles: [lookup]\ntokens: {s3cr3t-0123456789: 1}\n",            // a key
           "name: n\ns3cr3t-0123456789: 1\ns3cr3t-0123456789: 1\n",                 // a key, twice
           "name: n\nroles: [lookup]\ntokens: [\"s3cr3t-0123456789 and more\"]\n",  // with spaces
           "name: n\nroles: [lookup]\ntokens: [\"s3cr3t-0123456789\\q\"]\n",
       }) {
    const absl::Status status = Parse(text).status();
    EXPECT_THAT(status, StatusIs(kBad, Not(HasSubstr("s3cr3t")))) << text;
    EXPECT_THAT(status, StatusIs(kBad, HasSubstr("grants.yaml:"))) << text;
  }
}

TEST(AccessLoaderTest, AFileWithoutAGrantIsRefused) {
  for (const char* const text : {"", "\n", "# none\n", "---\n---\n"}) {
    EXPECT_THAT(Parse(text), StatusIs(kBad, "grants.yaml: holds no grant")) << text;
  }
}

TEST(AccessLoaderTest, ACertificateIsGrantedNothingWhereNobodyIsAskedForOne) {
  const std::string text = "name: n\nroles: [lookup]\ncertificate_names: [n]\n";
  EXPECT_THAT(ParseAccess({TextFile{"grants.yaml", text}}, ClientCertificates::kNotAskedFor),
              StatusIs(kBad, HasSubstr("grants.yaml:3:1: certificate_names: nobody can show one: set "
                                       "grpc.tls_client_ca_file")));
}

TEST(AccessLoaderTest, WithoutAPathAllIsOpen) {
  EXPECT_EQ(LoadAccess("", ClientCertificates::kNotAskedFor).value(), nullptr);
}

TEST(AccessLoaderTest, AMissingFileIsRefused) {
  EXPECT_THAT(LoadAccess("missing.yaml", ClientCertificates::kNotAskedFor).status(),
              StatusIs(kBad, HasSubstr("missing.yaml: cannot be read")));
}

}  // namespace
}  // namespace icache
