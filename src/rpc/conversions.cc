#include "icache/rpc/conversions.h"

#include <algorithm>
#include <cstddef>
#include <string>

#include "absl/types/span.h"

namespace icache {
namespace {

namespace ops = ::inferencecache::ops::v1alpha1;
namespace wire = ::inferencecache::v1alpha1;

template <typename T>
absl::Span<const T> SpanOf(const google::protobuf::RepeatedField<T>& field) {
  return {field.data(), static_cast<size_t>(field.size())};
}

// Appends a view of each element of `field` and returns the part of `views` that they fill. Views given out earlier
// stay valid only while `views` has room.
absl::Span<const std::string_view> AppendViews(const google::protobuf::RepeatedPtrField<std::string>& field,
                                               std::vector<std::string_view>* views) {
  const size_t begin = views->size();
  views->insert(views->end(), field.begin(), field.end());
  return {views->data() + begin, views->size() - begin};
}

template <typename T>
size_t BufferBytes(const std::vector<T>& buffer) {
  return buffer.capacity() * sizeof(T);
}

wire::CacheTier TierToWire(Tier tier) {
  switch (tier) {
    case Tier::kT1:
      return wire::CACHE_TIER_T1;
    case Tier::kT2:
      return wire::CACHE_TIER_T2;
    case Tier::kT3:
      return wire::CACHE_TIER_T3;
    case Tier::kUnknown:
      return wire::CACHE_TIER_UNSPECIFIED;
  }
  return wire::CACHE_TIER_UNSPECIFIED;
}

CacheEventType EventTypeFromWire(wire::CacheEvent::Type type) {
  switch (type) {
    case wire::CacheEvent::PREFIX_ADDED:
      return CacheEventType::kPrefixAdded;
    case wire::CacheEvent::PREFIX_EVICTED:
      return CacheEventType::kPrefixEvicted;
    case wire::CacheEvent::REPLICA_UPDATED:
      return CacheEventType::kReplicaUpdated;
    case wire::CacheEvent::ALL_CLEARED:
      return CacheEventType::kAllCleared;
    default:  // an open enum: any number may arrive
      return CacheEventType::kUnspecified;
  }
}

wire::CacheEvent::Type EventTypeToWire(CacheEventType type) {
  switch (type) {
    case CacheEventType::kUnspecified:
      return wire::CacheEvent::TYPE_UNSPECIFIED;
    case CacheEventType::kPrefixAdded:
      return wire::CacheEvent::PREFIX_ADDED;
    case CacheEventType::kPrefixEvicted:
      return wire::CacheEvent::PREFIX_EVICTED;
    case CacheEventType::kReplicaUpdated:
      return wire::CacheEvent::REPLICA_UPDATED;
    case CacheEventType::kAllCleared:
      return wire::CacheEvent::ALL_CLEARED;
  }
  return wire::CacheEvent::TYPE_UNSPECIFIED;
}

int64_t MicrosOrZero(std::optional<absl::Time> time) {
  return time.has_value() && *time > absl::InfinitePast() ? absl::ToUnixMicros(*time) : 0;
}

void PolicyToWire(const PolicyExplanation& explained, ops::Policy* message) {
  const CachePolicy& policy = explained.policy;
  message->set_source(explained.source);
  message->set_eviction(policy.eviction == EvictionAlgorithm::kLfu ? "LFU" : "LRU");
  message->set_eviction_ttl_us(absl::ToInt64Microseconds(absl::Ceil(explained.ttl, absl::Microseconds(1))));
  message->set_minimum_prefix_tokens(policy.minimum_prefix_tokens);
  message->set_minimum_matched_tokens(policy.minimum_matched_tokens);
  message->set_routing_floor_score(policy.routing_floor_score);
  message->set_affinity_routing(policy.affinity_routing);
  message->set_lookup_timeout_ms(policy.lookup_timeout_ms);
  message->set_enable_chain_matching(policy.enable_chain_matching);
  message->set_require_chain(policy.require_chain);
  message->set_enable_tenant_hot(policy.enable_tenant_hot);
  if (explained.quota.has_value()) message->set_max_index_entries(*explained.quota);
}

void ScopeToWire(const ScopeExplanation& scope, ops::Scope* message) {
  message->set_tenant_known(scope.known > KnownKeys::kUnknownTenant);
  message->set_model_known(scope.known > KnownKeys::kUnknownModel);
  message->set_hash_scheme_known(scope.known > KnownKeys::kUnknownHashScheme);
  auto* const names = scope.known == KnownKeys::kUnknownTenant  ? message->mutable_tenants()
                      : scope.known == KnownKeys::kUnknownModel ? message->mutable_models()
                                                                : message->mutable_hash_schemes();
  for (const std::string& name : scope.names.names()) names->Add(std::string(name));
  message->set_names_omitted(static_cast<int64_t>(scope.names.omitted()));
  message->set_replicas_present(static_cast<int64_t>(scope.replica_count));
  for (const PresentReplica& replica : scope.replicas) {
    ops::Replica* row = message->add_replicas();
    row->set_replica_id(replica.replica_id);
    row->set_lease_us(MicrosOrZero(replica.lease));
    row->set_stats_reported_us(MicrosOrZero(replica.stats_reported));
    row->set_last_seen_us(MicrosOrZero(replica.last_seen));
  }
  message->set_last_observation_us(MicrosOrZero(scope.last_observation));
}

void MatchToWire(const MatchExplanation& match, ops::Match* message) {
  message->set_replica_id(match.replica_id);
  message->set_outcome(static_cast<ops::Outcome>(match.outcome));
  message->set_matched_blocks(match.matched_blocks);
  message->set_matched_tokens(match.matched_tokens);
  message->set_blocks_ignoring_age(match.blocks_ignoring_age);
  message->set_age_us(absl::ToInt64Microseconds(match.age));
  message->set_age_source(static_cast<ops::Match::AgeSource>(match.age_source));
  message->set_tier(TierToWire(match.tier));
  message->set_freshness(match.freshness);
  message->set_pressure(match.pressure);
  message->set_pressure_source(static_cast<ops::Match::PressureSource>(match.pressure_source));
  message->set_pressure_factor(match.pressure_factor);
  message->set_slo_bias(match.slo_bias);
  message->set_distinguishing_power(match.distinguishing_power);
  message->set_k(static_cast<int64_t>(match.k));
  message->set_n(static_cast<int64_t>(match.n));
  message->set_score(match.score);
}

void TenantHotToWire(const TenantHotExplanation& hot, ops::TenantHot* message) {
  message->set_tried(hot.tried);
  message->set_because(hot.because);
  for (const WarmExplanation& replica : hot.replicas) {
    ops::WarmReplica* row = message->add_replicas();
    row->set_replica_id(replica.replica_id);
    row->set_warm(replica.warm);
    if (replica.warm) row->set_outcome(static_cast<ops::Outcome>(replica.outcome));
    row->set_hit_rate(replica.hit_rate);
    row->set_stats_age_us(absl::ToInt64Microseconds(replica.stats_age));
    row->set_recency(replica.recency);
    row->set_pressure_factor(replica.pressure_factor);
    row->set_slo_bias(replica.slo_bias);
    row->set_score(replica.score);
  }
  message->set_replicas_omitted(static_cast<int64_t>(hot.omitted));
}

StatsReport StatsFromWire(const wire::ReplicaStats& message) {
  return {.cache_memory_bytes = message.cache_memory_bytes(),
          .hit_rate = message.hit_rate(),
          .pressure = message.pressure(),
          .client_version = message.client_version(),
          .t2_hit_tokens = message.t2_hit_tokens(),
          .t2_query_tokens = message.t2_query_tokens()};
}

}  // namespace

std::optional<absl::Time> StampFromWire(int64_t timestamp_us) {
  if (timestamp_us == 0) return std::nullopt;
  return absl::FromUnixMicros(std::max<int64_t>(timestamp_us, 0));
}

const LookupRequest& LookupRequestView::Read(const wire::LookupRouteRequest& message, absl::Time deadline) {
  block_hashes_.clear();
  candidates_.clear();
  request_ = {.model_id = message.model_id(),
              .tenant_id = message.tenant_id(),
              .hash_scheme = message.hash_scheme(),
              .adapter_id = message.adapter_id(),
              .chain = {.block_hashes = AppendViews(message.block_hashes(), &block_hashes_),
                        .block_token_counts = SpanOf(message.block_token_counts()),
                        .block_hashes_u64 = SpanOf(message.block_hashes_u64()),
                        .tokens_per_block = message.tokens_per_block()},
              .prefix_hash = message.prefix_hash(),
              .prefix_token_count = message.prefix_token_count(),
              .token_ids = SpanOf(message.token_ids()),
              .prompt_text = message.prompt_text(),
              .ttft_ms = message.slo().ttft_ms(),
              .candidate_replica_ids = AppendViews(message.candidate_replica_ids(), &candidates_),
              .max_replicas = message.max_replicas(),
              .deadline = deadline};
  return request_;
}

void LookupRequestView::Trim(size_t max_bytes) {
  if (BufferBytes(block_hashes_) + BufferBytes(candidates_) > max_bytes) *this = LookupRequestView();
}

const StateUpdate& StateUpdateView::Read(const wire::CacheStateUpdate& message) {
  size_t hash_count = message.evicted_hashes_size();
  for (const wire::PrefixEntry& entry : message.prefixes()) hash_count += entry.block_hashes_size();
  hashes_.clear();
  hashes_.reserve(hash_count);  // so that no view handed out below moves
  prefixes_.clear();
  prefixes_.reserve(message.prefixes_size());
  for (const wire::PrefixEntry& entry : message.prefixes()) {
    prefixes_.push_back({.chain = {.block_hashes = AppendViews(entry.block_hashes(), &hashes_),
                                   .block_token_counts = SpanOf(entry.block_token_counts()),
                                   .block_hashes_u64 = SpanOf(entry.block_hashes_u64()),
                                   .tokens_per_block = entry.tokens_per_block()},
                         .prefix_hash = entry.prefix_hash(),
                         .token_count = entry.token_count(),
                         .tier = static_cast<int32_t>(entry.tier()),
                         .adapter_id = entry.adapter_id()});
  }
  update_ = {.replica_id = message.replica_id(),
             .model_id = message.model_id(),
             .tenant_id = message.tenant_id(),
             .hash_scheme = message.hash_scheme(),
             .adapter_id = message.adapter_id(),
             .stamped_at = StampFromWire(message.timestamp_us()),
             .clear = message.clear(),
             .evicted_hashes = AppendViews(message.evicted_hashes(), &hashes_),
             .evicted_hashes_u64 = SpanOf(message.evicted_hashes_u64()),
             .prefixes = prefixes_,
             .retains_all = message.retains_all(),
             .stats = message.has_stats() ? std::optional(StatsFromWire(message.stats())) : std::nullopt};
  return update_;
}

void StateUpdateView::Trim(size_t max_bytes) {
  if (BufferBytes(hashes_) + BufferBytes(prefixes_) > max_bytes) *this = StateUpdateView();
}

CacheEvent CacheEventFromWire(const wire::CacheEvent& message) {
  return {.type = EventTypeFromWire(message.type()),
          .replica_id = message.replica_id(),
          .model_id = message.model_id(),
          .tenant_id = message.tenant_id(),
          .prefix_hash = message.prefix_hash(),
          .adapter_id = message.adapter_id(),
          .stamped_at = StampFromWire(message.timestamp_us())};
}

void LookupAnswerToWire(const LookupAnswer& answer, absl::Duration latency, wire::LookupRouteResponse* message) {
  message->Clear();
  for (const ReplicaScore& row : answer.rows) {
    wire::ReplicaScore* score = message->add_replica_scores();
    score->set_replica_id(row.replica_id.data(), row.replica_id.size());
    score->set_score(row.score);
    score->set_matched_tokens(row.matched_tokens);
    score->set_estimated_cache_hit_prob(row.estimated_cache_hit_prob);
    score->set_tier(TierToWire(row.tier));
  }
  const std::string_view reason = ReasonCodeName(answer.reason);
  message->set_reason_code(reason.data(), reason.size());
  message->set_lookup_latency_us(absl::ToInt64Microseconds(latency));
  message->set_adapter_id(answer.adapter_id.data(), answer.adapter_id.size());
}

void CacheStateToWire(const CacheState& state, wire::GetCacheStateResponse* message) {
  message->Clear();
  message->mutable_replicas()->Reserve(static_cast<int>(state.replicas.size()));
  for (const ReplicaState& replica : state.replicas) {
    wire::ReplicaStats* stats = message->add_replicas();
    stats->set_replica_id(replica.replica_id);
    stats->set_cache_memory_bytes(replica.stats.cache_memory_bytes);
    stats->set_hit_rate(replica.stats.hit_rate);
    stats->set_pressure(replica.stats.pressure);
    stats->set_client_version(replica.stats.client_version);
    stats->set_t2_hit_tokens(replica.stats.t2_hit_tokens);
    stats->set_t2_query_tokens(replica.stats.t2_query_tokens);
  }
  message->mutable_summary()->set_total_prefixes(state.total_prefixes);
  message->mutable_summary()->set_hot_prefixes(state.hot_prefixes);
}

EventFilter EventFilterFromWire(const wire::StreamEventsRequest& message) {
  EventFilter filter = {.model_id = message.model_id(), .tenant_id = message.tenant_id(), .types = {}};
  for (const int type : message.types()) {
    filter.types.push_back(EventTypeFromWire(static_cast<wire::CacheEvent::Type>(type)));
  }
  return filter;
}

void HubEventToWire(const HubEvent& event, wire::CacheEvent* message) {
  message->set_type(EventTypeToWire(event.type));
  message->set_replica_id(event.replica_id.data(), event.replica_id.size());
  message->set_model_id(event.model_id.data(), event.model_id.size());
  message->set_tenant_id(event.tenant_id.data(), event.tenant_id.size());
  message->set_prefix_hash(event.prefix_hash.data(), event.prefix_hash.size());
  message->set_timestamp_us(absl::ToUnixMicros(event.at));
  message->set_adapter_id(event.adapter_id.data(), event.adapter_id.size());
}

void MetricSampleToWire(const MetricSample& sample, absl::Time taken_at, wire::Metric* message) {
  message->set_name(sample.name);
  message->set_type(sample.type);
  message->clear_labels();
  for (const auto& [name, value] : sample.labels) (*message->mutable_labels())[name] = value;
  message->set_value(sample.value);
  message->set_timestamp_us(absl::ToUnixMicros(taken_at));
}

void ExplanationToWire(const Explanation& explanation, ops::ExplainRouteResponse* message) {
  message->Clear();
  LookupAnswerToWire(explanation.answer, explanation.latency, message->mutable_answer());
  message->set_because(explanation.because);
  message->mutable_daemon()->set_time_us(absl::ToUnixMicros(explanation.now));
  message->mutable_daemon()->set_block_size(explanation.block_size);
  PolicyToWire(explanation.policy, message->mutable_policy());
  message->mutable_input()->set_kind(static_cast<ops::Input::Kind>(explanation.input.kind));
  message->mutable_input()->set_blocks(static_cast<int64_t>(explanation.input.blocks));
  message->mutable_input()->set_tokens(explanation.input.tokens);
  message->mutable_input()->set_problem(explanation.input.problem);
  ScopeToWire(explanation.scope, message->mutable_scope());
  message->set_index_consulted(explanation.index_consulted);
  for (const MatchExplanation& match : explanation.matches) MatchToWire(match, message->add_matches());
  message->set_matches_omitted(static_cast<int64_t>(explanation.matches_omitted));
  if (explanation.tenant_hot.has_value()) TenantHotToWire(*explanation.tenant_hot, message->mutable_tenant_hot());
  if (explanation.affinity.has_value()) {
    message->mutable_affinity()->set_tried(explanation.affinity->tried);
    message->mutable_affinity()->set_because(explanation.affinity->because);
    message->mutable_affinity()->set_replica_id(explanation.affinity->replica_id);
  }
}

}  // namespace icache
