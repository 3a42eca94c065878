#include "icache/routing/lookup.h"

namespace icache {

AnswerRows::AnswerRows(std::initializer_list<ReplicaScore> rows) {
  size_t name_bytes = 0;
  for (const ReplicaScore& row : rows) name_bytes += row.replica_id.size();
  Reset(rows.size(), name_bytes);
  for (const ReplicaScore& row : rows) Add(row);
}

void AnswerRows::Reset(size_t rows, size_t name_bytes) {
  if (kept_.size() < rows) kept_.resize(rows);
  size_ = 0;
  if (names_.size() < name_bytes) names_.resize(name_bytes);
  name_ = names_.data();
}

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
