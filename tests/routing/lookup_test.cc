#include "icache/routing/lookup.h"

#include <gmock/gmock.h>

#include <set>
#include <string>

namespace icache {
namespace {

TEST(ReasonCodeNameTest, SpellsEveryCodeAsTheWireDoes) {
  const struct {
    ReasonCode reason;
    std::string_view name;
  } kRows[] = {
      // contract/wire.md "LookupRoute: …".
      {ReasonCode::kPrefixMatch, "PREFIX_MATCH"},
      {ReasonCode::kTenantHot, "TENANT_HOT"},
      {ReasonCode::kAffinityHint, "AFFINITY_HINT"},
      {ReasonCode::kNoHint, "NO_HINT"},
      {ReasonCode::kPolicyRequiresChain, "POLICY_REQUIRES_CHAIN"},
      {ReasonCode::kTimeout, "TIMEOUT"},
      {ReasonCode::kUnknownTenant, "UNKNOWN_TENANT"},
      {ReasonCode::kUnknownModel, "UNKNOWN_MODEL"},
      {ReasonCode::kUnknownHashScheme, "UNKNOWN_HASH_SCHEME"},
  };
  std::set<size_t> codes;
  for (const auto& row : kRows) {
    EXPECT_EQ(ReasonCodeName(row.reason), row.name);
    codes.insert(static_cast<size_t>(row.reason));
  }
  EXPECT_EQ(codes.size(), kReasonCodeCount);
  EXPECT_EQ(*codes.rbegin(), kReasonCodeCount - 1);
}

}  // namespace
}  // namespace icache
