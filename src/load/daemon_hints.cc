#include "load/daemon_hints.h"

#include <fmt/format.h>

#include "absl/types/span.h"
#include "icache/base/status_macros.h"
#include "load/steady_time.h"

namespace icache {
namespace {

// Of an 8-billion-parameter model with grouped-query attention: 32 layers, 8 heads of 128 values of 2 bytes, K and V.
constexpr int64_t kKvBytesPerToken = 32 * 8 * 128 * 2 * 2;

}  // namespace

DaemonHints::DaemonHints(const Connection* connection, const Target& target, size_t engines, int32_t block_size)
    : connection_(connection), target_(target), block_size_(block_size) {
  const size_t width = fmt::formatted_size("{}", engines - 1);
  for (size_t engine = 0; engine < engines; ++engine) {
    replica_ids_.push_back(fmt::format("engine-{:0{}}", engine, width));
    engines_by_id_.emplace(replica_ids_.back(), engine);
  }
  request_.set_tenant_id(target.tenant);
  request_.set_model_id(target.model);
  request_.set_hash_scheme(target.scheme);
  request_.set_tokens_per_block(block_size);
}

absl::StatusOr<Hint> DaemonHints::Ask(absl::Span<const uint64_t> chain) {
  request_.mutable_block_hashes_u64()->Assign(chain.begin(), chain.end());
  const int64_t begin = SteadyNanos();
  RETURN_IF_ERROR(connection_->Lookup(request_, &response_));
  Hint hint{.reason_code = response_.reason_code(),
            .rows = {},
            .round_trip_ns = SteadyNanos() - begin,
            .server_us = response_.lookup_latency_us()};
  for (const wire::ReplicaScore& row : response_.replica_scores()) {
    const auto engine = engines_by_id_.find(row.replica_id());
    if (engine == engines_by_id_.end()) continue;
    const bool has_freshness = hint.reason_code == "PREFIX_MATCH" && row.estimated_cache_hit_prob() > 0;
    const double freshness = has_freshness ? row.estimated_cache_hit_prob() : 1;
    hint.rows.push_back(
        {.engine = engine->second, .matched_tokens = row.matched_tokens(), .worth = row.score() / freshness});
  }
  return hint;
}

absl::Status DaemonHints::Report(size_t engine, const EngineReport& report) {
  update_.Clear();
  update_.set_replica_id(replica_ids_[engine]);
  update_.set_tenant_id(target_.tenant);
  update_.set_model_id(target_.model);
  update_.set_hash_scheme(target_.scheme);
  update_.set_clear(report.clear);
  update_.mutable_evicted_hashes_u64()->Assign(report.evicted.begin(), report.evicted.end());
  if (!report.chain.empty()) {
    wire::PrefixEntry* prefix = update_.add_prefixes();
    prefix->mutable_block_hashes_u64()->Assign(report.chain.begin(), report.chain.end());
    prefix->set_tokens_per_block(block_size_);
    prefix->set_tier(wire::CACHE_TIER_T1);
  }
  update_.set_retains_all(report.lease);
  if (report.stats.has_value()) {
    wire::ReplicaStats* stats = update_.mutable_stats();
    stats->set_replica_id(replica_ids_[engine]);
    stats->set_cache_memory_bytes(report.stats->held_tokens * kKvBytesPerToken);
    stats->set_hit_rate(static_cast<float>(report.stats->hit_rate));
    stats->set_pressure(static_cast<float>(report.stats->pressure));
    stats->set_client_version("icache-load");
  }
  const int64_t begin = SteadyNanos();
  RETURN_IF_ERROR(connection_->Report(absl::MakeConstSpan(&update_, 1)));
  report_ns_.Record(SteadyNanos() - begin);
  return absl::OkStatus();
}

absl::StatusOr<int64_t> DaemonHints::PrefixCount() const {
  ASSIGN_OR_RETURN(const wire::GetCacheStateResponse state, connection_->CacheState(target_.tenant, target_.model));
  return state.summary().total_prefixes();
}

}  // namespace icache
