#include "icache/access/access_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::IsOk;
using testing::StatusIs;

constexpr absl::StatusCode kUnknown = absl::StatusCode::kUnauthenticated;
constexpr absl::StatusCode kDenied = absl::StatusCode::kPermissionDenied;

Grant Granting(std::vector<Role> roles, std::vector<std::string> tenants = {}) {
  Grant grant;
  for (const Role role : roles) grant.roles[static_cast<size_t>(role)] = true;
  grant.tenants = std::move(tenants);
  return grant;
}

// Rules with one grant of each kind.
AccessRules MakeRules() {
  AccessRules rules;
  rules.AddToken("token-of-a-gateway", rules.AddGrant(Granting({Role::kLookup}, {"team-b", "team-a"})));
  rules.AddToken("token-of-an-operator", rules.AddGrant(Granting({Role::kLookup, Role::kAdmin})));
  rules.AddCertificateName("engine.test", rules.AddGrant(Granting({Role::kObserve})));
  rules.AddCertificateName("bound.test", rules.AddGrant(Granting({Role::kAdmin}, {"team-a"})));
  return rules;
}
const AccessRules& Rules() {
  static const AccessRules rules = MakeRules();
  return rules;
}

absl::StatusOr<Caller> WithHeader(std::string_view authorization) {
  return Caller::Identify(Rules(), {.authorization = authorization, .certificate_names = {}});
}
absl::StatusOr<Caller> WithNames(std::vector<std::string_view> names) {
  return Caller::Identify(Rules(), {.authorization = "", .certificate_names = names});
}

TEST(AccessRulesTest, ATokenIsKnownWhole) {
  EXPECT_THAT(WithHeader("Bearer token-of-a-gateway"), IsOk());
  EXPECT_THAT(WithHeader("bEARER   token-of-a-gateway "), IsOk());
  for (const char* const header : {"Bearer token-of-a-gatewa", "Bearer token-of-a-gatewayy", "Bearer ", "Bearer",
                                   "Basic token-of-a-gateway", "token-of-a-gateway", " "}) {
    EXPECT_THAT(WithHeader(header).status(), StatusIs(kUnknown)) << header;
  }
}

TEST(AccessRulesTest, WhoShowsNothingIsUnknown) { EXPECT_THAT(WithHeader("").status(), StatusIs(kUnknown)); }

TEST(AccessRulesTest, ARoleIsForItsTenantsAlone) {
  const auto caller = WithHeader("Bearer token-of-a-gateway");
  EXPECT_THAT(caller->May(Role::kLookup), IsOk());
  EXPECT_THAT(caller->May(Role::kLookup, "team-a"), IsOk());
  EXPECT_THAT(caller->May(Role::kLookup, "team-b"), IsOk());
  for (const char* const tenant : {"team-c", "team", "TEAM-A", ""}) {
    EXPECT_THAT(caller->May(Role::kLookup, tenant), StatusIs(kDenied)) << tenant;
  }
  EXPECT_THAT(caller->MayForAll(Role::kLookup), StatusIs(kDenied));
  EXPECT_THAT(caller->May(Role::kObserve, "team-a"), StatusIs(kDenied));
}

TEST(AccessRulesTest, AGrantWithoutTenantsIsForAll) {
  const auto caller = WithHeader("Bearer token-of-an-operator");
  EXPECT_THAT(caller->May(Role::kLookup, "anybody"), IsOk());
  EXPECT_THAT(caller->MayForAll(Role::kAdmin), IsOk());
  EXPECT_THAT(caller->May(Role::kObserve), StatusIs(kDenied));
}

TEST(AccessRulesTest, ACertificateHasTheGrantsOfAllItsNames) {
  const auto caller = WithNames({"elsewhere.test", "engine.test", "bound.test"});
  ASSERT_THAT(caller, IsOk());
  EXPECT_THAT(caller->MayForAll(Role::kObserve), IsOk());
  EXPECT_THAT(caller->May(Role::kAdmin, "team-a"), IsOk());
  EXPECT_THAT(caller->May(Role::kAdmin, "team-b"), StatusIs(kDenied));
  EXPECT_THAT(WithNames({"elsewhere.test"}).status(), StatusIs(kUnknown));
}

TEST(AccessRulesTest, ATokenIsJudgedWhateverTheCertificateSays) {
  const std::vector<std::string_view> names = {"engine.test"};
  const auto judge = [&](std::string_view authorization) {
    return Caller::Identify(Rules(), {.authorization = authorization, .certificate_names = names});
  };
  EXPECT_THAT(judge("Bearer wrong").status(), StatusIs(kUnknown));
  EXPECT_THAT(judge("Bearer token-of-a-gateway")->May(Role::kObserve), StatusIs(kDenied));
}

TEST(AccessRulesTest, WhatIsGrantedOnceIsNotGrantedAgain) {
  AccessRules rules;
  EXPECT_TRUE(rules.AddToken("token", rules.AddGrant({})));
  EXPECT_FALSE(rules.AddToken("token", rules.AddGrant({})));
  EXPECT_TRUE(rules.AddCertificateName("name", 0));
  EXPECT_FALSE(rules.AddCertificateName("name", 1));
}

}  // namespace
}  // namespace icache
