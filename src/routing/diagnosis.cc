#include "routing/diagnosis.h"

namespace icache {

std::optional<ReasonCode> Diagnose(KnownKeys known) {
  switch (known) {
    case KnownKeys::kUnknownTenant:
      return ReasonCode::kUnknownTenant;
    case KnownKeys::kUnknownModel:
      return ReasonCode::kUnknownModel;
    case KnownKeys::kUnknownHashScheme:
      return ReasonCode::kUnknownHashScheme;
    case KnownKeys::kIndexEmpty:
    case KnownKeys::kScopeKnown:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace icache
