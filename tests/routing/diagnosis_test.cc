#include "routing/diagnosis.h"

#include <gmock/gmock.h>

namespace icache {
namespace {

TEST(DiagnoseTest, NamesTheOutermostUnknownKey) {
  const struct {
    KnownKeys known;
    std::optional<ReasonCode> reason;
  } kRows[] = {
      // contract/lookup.md step 7.
      {KnownKeys::kIndexEmpty, std::nullopt},
      {KnownKeys::kUnknownTenant, ReasonCode::kUnknownTenant},
      {KnownKeys::kUnknownModel, ReasonCode::kUnknownModel},
      {KnownKeys::kUnknownHashScheme, ReasonCode::kUnknownHashScheme},
      {KnownKeys::kScopeKnown, std::nullopt},
  };
  for (const auto& row : kRows) EXPECT_EQ(Diagnose(row.known), row.reason) << static_cast<int>(row.known);
}

}  // namespace
}  // namespace icache
