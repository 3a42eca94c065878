// What a tenant's policy means to the index: how long entries live and which go first.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"

namespace icache {

enum class EvictionAlgorithm { kLru, kLfu };

struct RetentionRules {
  absl::Duration ttl = absl::Minutes(30);  // > 0
  EvictionAlgorithm algorithm = EvictionAlgorithm::kLru;
  std::optional<int64_t> max_prefixes;  // the tenant's quota, >= 0; nullopt = none
};

// Where the index finds the rules in force. Implemented over the policy store; thread-safe.
class RetentionSource {
 public:
  virtual ~RetentionSource() = default;
  // The rules of one tenant; a tenant without a policy has the server's defaults. Called while the index holds a lock,
  // so it must be quick and must not call back.
  virtual RetentionRules For(std::string_view tenant_id) const = 0;
  // Calls `visit` for each tenant that has a quota, in no order. `visit` must not call back.
  virtual void ForEachQuota(absl::FunctionRef<void(std::string_view tenant_id)> visit) const = 0;
  // Rises whenever an answer of For() may have changed.
  virtual uint64_t Version() const = 0;
};

}  // namespace icache
