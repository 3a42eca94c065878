// One LookupRoute call as plain values: the request, the answer and what is reported about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/block_hash.h"
#include "icache/index/observation.h"

namespace icache {

// Why an answer is what it is. Source: contract/wire.md.
enum class ReasonCode : size_t {
  kPrefixMatch,
  kTenantHot,
  kAffinityHint,
  kNoHint,
  kPolicyRequiresChain,
  kTimeout,
  kUnknownTenant,
  kUnknownModel,
  kUnknownHashScheme,
};
inline constexpr size_t kReasonCodeCount = 9;

// The wire's spelling: "PREFIX_MATCH", …
std::string_view ReasonCodeName(ReasonCode reason);

// A LookupRouteRequest. Views point into the caller's message, which must outlive the call.
struct LookupRequest {
  std::string_view model_id;
  std::string_view tenant_id;
  std::string_view hash_scheme;
  std::string_view adapter_id;  // "" = the base model
  ChainFields chain;
  std::string_view prefix_hash;  // "" = none
  int32_t prefix_token_count = 0;
  absl::Span<const uint32_t> token_ids;
  std::string_view prompt_text;
  int32_t ttft_ms = 0;                                       // of the SLO; <= 0 = none
  absl::Span<const std::string_view> candidate_replica_ids;  // empty = all
  int32_t max_replicas = 0;                                  // <= 0 = all
  // The caller's own deadline; InfiniteFuture() = none.
  absl::Time deadline = absl::InfiniteFuture();
};

struct ReplicaScore {
  std::string_view replica_id;
  float score = 0;
  int32_t matched_tokens = 0;
  float estimated_cache_hit_prob = 0;
  Tier tier = Tier::kUnknown;  // kUnknown = UNSPECIFIED on the wire
};

// The rows of an answer, best first, and their names, which live as long as the rows.
class AnswerRows {
 public:
  AnswerRows() = default;
  AnswerRows(std::initializer_list<ReplicaScore> rows);
  AnswerRows(AnswerRows&&) = default;
  AnswerRows& operator=(AnswerRows&&) = default;

  // Drops all rows and makes room for `rows` with names of `name_bytes` together.
  void Reset(size_t rows, size_t name_bytes);
  // Appends a row with a copy of its name. Requires that Reset() has made room for it.
  void Add(const ReplicaScore& row) {
    const size_t length = row.replica_id.size();
    ReplicaScore& added = kept_[size_++];
    added = row;
    added.replica_id = std::string_view(name_, length);
    std::memcpy(name_, row.replica_id.data(), length);
    name_ += length;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const ReplicaScore& operator[](size_t i) const { return kept_[i]; }
  const ReplicaScore& front() const { return kept_.front(); }
  const ReplicaScore* data() const { return kept_.data(); }
  const ReplicaScore* begin() const { return kept_.data(); }
  const ReplicaScore* end() const { return kept_.data() + size_; }
  // Of memory, which is kept from answer to answer.
  size_t bytes() const { return kept_.capacity() * sizeof(ReplicaScore) + names_.capacity(); }

 private:
  std::vector<ReplicaScore> kept_;
  size_t size_ = 0;
  std::vector<char> names_;
  char* name_ = nullptr;  // where the next one goes in names_
};

// A LookupRouteResponse but for its latency. Reuse one object for many calls: it keeps its memory.
struct LookupAnswer {
  ReasonCode reason = ReasonCode::kNoHint;
  AnswerRows rows;
  std::string_view adapter_id;  // the request's, or "" when the index was not consulted
};

// What one call came to, for metrics.
struct LookupOutcome {
  std::string_view model_id;
  bool model_held = false;  // some tenant's index holds the model
  ReasonCode reason = ReasonCode::kNoHint;
  bool hint_used = false;      // rows are present
  absl::Duration latency;      // server-side time of the call
  int32_t matched_tokens = 0;  // of the top row; PREFIX_MATCH only
  bool shed = false;           // not looked at, to protect the server; then there is no model and no latency
};

// Told about every call exactly once. Implemented by telemetry; thread-safe.
class LookupObserver {
 public:
  virtual ~LookupObserver() = default;
  virtual void OnLookup(const LookupOutcome& outcome) = 0;
};

}  // namespace icache
