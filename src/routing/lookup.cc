#include "icache/routing/lookup.h"

namespace icache {

std::string_view ReasonCodeName(ReasonCode reason) {
  switch (reason) {
    case ReasonCode::kPrefixMatch:
      return "PREFIX_MATCH";
    case ReasonCode::kTenantHot:
      return "TENANT_HOT";
    case ReasonCode::kAffinityHint:
      return "AFFINITY_HINT";
    case ReasonCode::kNoHint:
      return "NO_HINT";
    case ReasonCode::kPolicyRequiresChain:
      return "POLICY_REQUIRES_CHAIN";
    case ReasonCode::kTimeout:
      return "TIMEOUT";
    case ReasonCode::kUnknownTenant:
      return "UNKNOWN_TENANT";
    case ReasonCode::kUnknownModel:
      return "UNKNOWN_MODEL";
    case ReasonCode::kUnknownHashScheme:
      return "UNKNOWN_HASH_SCHEME";
  }
  return "NO_HINT";
}

}  // namespace icache
