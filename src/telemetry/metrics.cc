// Every family is declared where its samples are added.
#include "icache/telemetry/metrics.h"

#include <map>
#include <utility>
#include <vector>

#include "icache/telemetry/logging.h"
#include "icache/telemetry/metrics_page.h"
#include "telemetry/model_tallies.h"

namespace icache {
namespace {

constexpr std::pair<Listener, const char*> kListeners[] = {{Listener::kGrpc, "grpc"}, {Listener::kHttp, "http"}};

// The label of all models without series of their own. A model of this name shares it.
constexpr std::string_view kOtherModel = "other";

std::string_view EventTypeName(CacheEventType type) {
  switch (type) {
    case CacheEventType::kUnspecified:
      return "TYPE_UNSPECIFIED";
    case CacheEventType::kPrefixAdded:
      return "PREFIX_ADDED";
    case CacheEventType::kPrefixEvicted:
      return "PREFIX_EVICTED";
    case CacheEventType::kReplicaUpdated:
      return "REPLICA_UPDATED";
    case CacheEventType::kAllCleared:
      return "ALL_CLEARED";
  }
  return "TYPE_UNSPECIFIED";
}

// The models that the index holds, side by side.
struct HeldModels {
  std::vector<std::string> names;
  std::vector<ModelStats> stats;
};

HeldModels ReadHeldModels(const PrefixIndex& index) {
  HeldModels held;
  index.ForEachModel([&held](std::string_view model_id, const ModelStats& stats) {
    held.names.emplace_back(model_id);
    held.stats.push_back(stats);
  });
  return held;
}

// Distinct names can share a label, which may have but one series: `other`, or names that differ only in bytes that
// a label cannot have. So everything per model is added up by label first.
struct ModelGauges {
  int64_t prefixes = 0;
  absl::Time last_applied = absl::InfinitePast();
};
using GaugesByLabel = std::map<std::string, ModelGauges, std::less<>>;
using TalliesByLabel = std::map<std::string, ModelTally, std::less<>>;

GaugesByLabel GroupGauges(const HeldModels& held, const std::vector<bool>& has_series) {
  GaugesByLabel gauges;
  for (size_t i = 0; i < held.names.size(); ++i) {
    ModelGauges& sum = gauges[has_series[i] ? LabelValue(held.names[i]) : std::string(kOtherModel)];
    sum.prefixes += held.stats[i].prefixes;
    sum.last_applied = std::max(sum.last_applied, held.stats[i].last_applied);
  }
  return gauges;
}

TalliesByLabel GroupTallies(const TallyTotals& totals) {
  TalliesByLabel tallies;
  tallies[std::string(kOtherModel)].Add(totals.other);
  for (const auto& [model, tally] : totals.models) tallies[LabelValue(model)].Add(tally);
  return tallies;
}

void AddServer(bool serving, const BuildInfo& build, bool grpc_over_tls, MetricsPage* page) {
  page->Gauge("inferencecache_server_up", "1 while lookups are served.").Add(serving);
  page->Gauge("inferencecache_build_info", "1; the labels say which build this is.")
      .Add(1, {{"version", LabelValue(build.version)}, {"commit", LabelValue(build.commit)}});
  page->Gauge("inferencecache_server_grpc_tls_enabled", "1 when gRPC is served over TLS.").Add(grpc_over_tls);
}

// `scale` is what the unit of the page is in the histogram's.
template <auto kBounds>
void AddHistogram(const BoundedHistogram<kBounds>& histogram, double scale, const std::string& model,
                  MetricsPage* page) {
  std::vector<MetricsPage::Bucket> buckets;
  uint64_t cumulative = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    cumulative += static_cast<uint64_t>(histogram.counts[i]);
    buckets.push_back({cumulative, static_cast<double>(kBounds[i]) / scale});
  }
  page->AddHistogram(buckets, static_cast<uint64_t>(histogram.Count()), static_cast<double>(histogram.sum) / scale,
                     {{"model", model}});
}

void AddLookups(const TalliesByLabel& tallies, int64_t shed, MetricsPage* page) {
  page->Counter("inferencecache_lookup_route_calls_total", "LookupRoute calls; each counts once.");
  for (const auto& [model, tally] : tallies) {
    for (size_t reason = 0; reason < kReasonCodeCount; ++reason) {
      for (size_t used = 0; used < 2; ++used) {
        if (tally.calls[reason][used] == 0) continue;
        page->Add(tally.calls[reason][used],
                  {{"model", model},
                   {"reason_code", std::string(ReasonCodeName(static_cast<ReasonCode>(reason)))},
                   {"hint_used", used == 1 ? "true" : "false"}});
      }
    }
  }
  page->Histogram("inferencecache_lookup_route_latency_seconds", "Server-side time of a LookupRoute call.");
  for (const auto& [model, tally] : tallies) {
    if (tally.latency_ns.Count() > 0) AddHistogram(tally.latency_ns, 1e9, model, page);
  }
  page->Histogram("inferencecache_lookup_route_matched_tokens", "Matched tokens of the top replica of a PREFIX_MATCH.");
  for (const auto& [model, tally] : tallies) {
    if (tally.matched_tokens.Count() > 0) AddHistogram(tally.matched_tokens, 1, model, page);
  }
  page->Counter("inferencecache_lookups_shed_total", "Lookups answered NO_HINT to protect the server.")
      .Add(shed, {{"reason", "overload"}});
}

void AddIngest(const TallyTotals& totals, const TalliesByLabel& tallies, MetricsPage* page) {
  page->Counter("inferencecache_ingest_updates_total", "CacheStateUpdates applied.");
  for (const auto& [model, tally] : tallies) {
    if (tally.updates > 0) page->Add(tally.updates, {{"model", model}});
  }
  page->Counter("inferencecache_ingest_entries_total", "Entries added or refreshed by CacheStateUpdates.");
  for (const auto& [model, tally] : tallies) {
    if (tally.updates > 0) page->Add(tally.entries, {{"model", model}});
  }
  page->Counter("inferencecache_ingest_dropped_total", "Parts of observations not taken, or suspicious, by reason.");
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    const auto reason = static_cast<DropReason>(i);
    page->Add(totals.dropped[reason], {{"reason", std::string(DropReasonName(reason))}});
  }
  page->Counter("inferencecache_events_total", "CacheEvents applied.");
  for (size_t i = 0; i < kCacheEventTypeCount; ++i) {
    page->Add(totals.events[i], {{"type", std::string(EventTypeName(static_cast<CacheEventType>(i)))}});
  }
}

void AddModelGauges(const GaugesByLabel& gauges, absl::Time now, MetricsPage* page) {
  page->Gauge("inferencecache_index_entries", "Distinct prefixes held.");
  for (const auto& [model, gauge] : gauges) page->Add(gauge.prefixes, {{"model", model}});
  page->Gauge("inferencecache_last_observation_age_seconds", "Time since the last applied CacheStateUpdate.");
  for (const auto& [model, gauge] : gauges) {
    if (gauge.last_applied == absl::InfinitePast()) continue;
    const absl::Duration age = std::max(now - gauge.last_applied, absl::ZeroDuration());
    page->Add(absl::ToDoubleSeconds(age), {{"model", model}});
  }
}

void AddIndex(const PrefixIndex& index, MetricsPage* page) {
  const IndexStats stats = index.Stats();
  page->Gauge("inferencecache_index_holdings", "Entries (prefix x replica) held.").Add(stats.entries);
  page->Gauge("inferencecache_index_memory_bytes", "Bytes that the index accounts for.").Add(stats.memory_bytes);

  page->Counter("inferencecache_index_evictions_total", "Entries evicted, by algorithm and reason.");
  for (const EvictionAlgorithm algorithm : {EvictionAlgorithm::kLru, EvictionAlgorithm::kLfu}) {
    const auto i = static_cast<size_t>(algorithm);
    const std::string name = algorithm == EvictionAlgorithm::kLru ? "lru" : "lfu";
    page->Add(stats.evicted_for_cap[i], {{"algorithm", name}, {"reason", "cap"}});
    page->Add(stats.evicted_for_memory[i], {{"algorithm", name}, {"reason", "memory"}});
    page->Add(stats.expired[i], {{"algorithm", name}, {"reason", "ttl"}});
  }

  std::map<std::string, int64_t> evicted_by_tenant;
  index.ForEachQuotaTenant([&evicted_by_tenant](std::string_view tenant_id, int64_t evicted_prefixes) {
    evicted_by_tenant[LabelValue(tenant_id)] += evicted_prefixes;
  });
  page->Counter("inferencecache_tenant_evictions_total", "Prefixes evicted for a tenant's quota.");
  for (const auto& [tenant, evicted] : evicted_by_tenant) {
    page->Add(evicted, {{"tenant_id", tenant}, {"reason", "over_entries"}});
  }
}

}  // namespace

Metrics::Metrics(const PrefixIndex* index, const Clock* clock, BuildInfo build)
    : index_(index),
      clock_(clock),
      build_(std::move(build)),
      tallies_(std::make_unique<ModelTallies>(kMaxModels, kDrainedCounterLife)) {}

Metrics::~Metrics() = default;

void Metrics::OnLookup(const LookupOutcome& outcome) {
  tallies_->CountLookup(outcome);
  if (outcome.shed) shed_.fetch_add(1, std::memory_order_relaxed);
}

void Metrics::OnUpdate(std::string_view model_id, const ApplyResult& result) {
  tallies_->CountUpdate(model_id, result.applied && index_->HoldsModel(model_id), result);
}

void Metrics::OnEvent(CacheEventType type, const ApplyResult& result) { tallies_->CountEvent(type, result); }

void Metrics::SetServing(bool serving) { serving_.store(serving, std::memory_order_relaxed); }

void Metrics::RecordPolicyLoad() {
  policies_loaded_at_us_.store(absl::ToUnixMicros(clock_->Now()), std::memory_order_relaxed);
}

void Metrics::RecordPolicyReload(bool success) {
  if (success) RecordPolicyLoad();
  (success ? reload_successes_ : reload_failures_).fetch_add(1, std::memory_order_relaxed);
}

void Metrics::RecordTlsLoad(Listener listener, absl::Time expires_at) {
  tls_[static_cast<size_t>(listener)].expires_at_s.store(absl::ToUnixSeconds(expires_at), std::memory_order_relaxed);
}

void Metrics::RecordTlsReload(Listener listener, bool success) {
  TlsTally& tally = tls_[static_cast<size_t>(listener)];
  (success ? tally.reload_successes : tally.reload_failures).fetch_add(1, std::memory_order_relaxed);
}

void Metrics::RecordAcceptFailure(Listener listener) {
  accept_failures_[static_cast<size_t>(listener)].fetch_add(1, std::memory_order_relaxed);
}

void Metrics::RecordHandshakeFailure(Listener listener) {
  tls_[static_cast<size_t>(listener)].handshake_failures.fetch_add(1, std::memory_order_relaxed);
}

void Metrics::RecordHttpCut(bool for_room) {
  (for_room ? http_cut_for_room_ : http_cut_for_slowness_).fetch_add(1, std::memory_order_relaxed);
}

void Metrics::AddConnections(MetricsPage* page) const {
  if (!shows_connections_.load(std::memory_order_relaxed)) return;
  page->Counter("inferencecache_accept_failures_total",
                "Tries to take a connection that failed for want of resources.");
  for (const auto& [listener, name] : kListeners) {
    page->Add(accept_failures_[static_cast<size_t>(listener)].load(std::memory_order_relaxed), {{"listener", name}});
  }
  page->Counter("inferencecache_http_connections_cut_total", "HTTP connections that the server has ended, by reason.")
      .Add(http_cut_for_slowness_.load(std::memory_order_relaxed), {{"reason", "slow"}})
      .Add(http_cut_for_room_.load(std::memory_order_relaxed), {{"reason", "room"}});
  page->Counter("inferencecache_compressed_requests_total", "gRPC requests refused since they are compressed.")
      .Add(compressed_requests_.load(std::memory_order_relaxed));
}

void Metrics::AddTls(MetricsPage* page) const {
  const auto tally = [this](Listener listener) -> const TlsTally& { return tls_[static_cast<size_t>(listener)]; };
  if (!tally(Listener::kGrpc).enabled() && !tally(Listener::kHttp).enabled()) return;
  page->Gauge("inferencecache_tls_certificate_expiry_timestamp_seconds",
              "Unix time at which the server certificate in force ends.");
  for (const auto& [listener, name] : kListeners) {
    if (tally(listener).enabled()) page->Add(tally(listener).expires_at_s.load(), {{"listener", name}});
  }
  page->Counter("inferencecache_tls_reloads_total", "Reloads of certificate and key after the start, by result.");
  for (const auto& [listener, name] : kListeners) {
    if (!tally(listener).enabled()) continue;
    page->Add(tally(listener).reload_successes.load(), {{"listener", name}, {"result", "success"}});
    page->Add(tally(listener).reload_failures.load(), {{"listener", name}, {"result", "failure"}});
  }
  page->Counter("inferencecache_tls_handshake_failures_total", "Connections that ended within their TLS handshake.");
  for (const auto& [listener, name] : kListeners) {
    if (tally(listener).enabled()) page->Add(tally(listener).handshake_failures.load(), {{"listener", name}});
  }
}

void Metrics::OnRefused(Refusal refusal) {
  refused_[static_cast<size_t>(refusal)].fetch_add(1, std::memory_order_relaxed);
}

void Metrics::RecordAccessLoad() {
  asks_callers_.store(true, std::memory_order_relaxed);
  ShowRefusals();
}

void Metrics::RecordAccessReload(bool success) {
  (success ? access_reload_successes_ : access_reload_failures_).fetch_add(1, std::memory_order_relaxed);
}

void Metrics::AddAccess(MetricsPage* page) const {
  if (!shows_refusals_.load(std::memory_order_relaxed)) return;
  const auto refused = [this](Refusal refusal) {
    return refused_[static_cast<size_t>(refusal)].load(std::memory_order_relaxed);
  };
  page->Counter("inferencecache_calls_refused_total", "Calls and requests not let in, by reason.")
      .Add(refused(Refusal::kUnauthenticated), {{"reason", "unauthenticated"}})
      .Add(refused(Refusal::kPermissionDenied), {{"reason", "permission_denied"}});
  if (!asks_callers_.load(std::memory_order_relaxed)) return;
  page->Counter("inferencecache_access_reloads_total", "Reloads of the grants after the start, by result.")
      .Add(access_reload_successes_.load(std::memory_order_relaxed), {{"result", "success"}})
      .Add(access_reload_failures_.load(std::memory_order_relaxed), {{"result", "failure"}});
}

void Metrics::Sweep() { tallies_->Reconcile(ReadHeldModels(*index_).names, clock_->Now()); }

std::string Metrics::Render() {
  MetricsPage page;
  Fill(&page);
  return page.Text();
}

std::shared_ptr<const std::vector<MetricSample>> Metrics::Samples() {
  constexpr absl::Duration kShareFor = absl::Milliseconds(100);
  const absl::Time now = clock_->Now();
  MutexLock lock(&samples_mutex_);
  if (auto samples = samples_.lock(); samples != nullptr && now - sampled_at_ < kShareFor) return samples;
  MetricsPage page;
  Fill(&page);
  auto samples = std::make_shared<const std::vector<MetricSample>>(page.Samples());
  samples_ = samples;
  sampled_at_ = now;
  return samples;
}

void Metrics::Fill(MetricsPage* page) {
  const absl::Time now = clock_->Now();
  const HeldModels held = ReadHeldModels(*index_);
  const GaugesByLabel gauges = GroupGauges(held, tallies_->Reconcile(held.names, now));
  const TallyTotals totals = tallies_->Totals();
  const TalliesByLabel tallies = GroupTallies(totals);

  AddServer(serving_.load(std::memory_order_relaxed), build_, tls_[static_cast<size_t>(Listener::kGrpc)].enabled(),
            page);
  AddTls(page);
  AddConnections(page);
  AddAccess(page);
  AddModelGauges(gauges, now, page);
  AddIndex(*index_, page);
  AddLookups(tallies, shed_.load(std::memory_order_relaxed), page);
  AddIngest(totals, tallies, page);
  page->Counter("inferencecache_policy_reloads_total", "Policy reloads after the start, by result.")
      .Add(reload_successes_.load(std::memory_order_relaxed), {{"result", "success"}})
      .Add(reload_failures_.load(std::memory_order_relaxed), {{"result", "failure"}});
  page->Gauge("inferencecache_policy_last_reload_success_timestamp_seconds",
              "Unix time at which the policies in force were loaded.")
      .Add(static_cast<double>(policies_loaded_at_us_.load(std::memory_order_relaxed)) / 1e6);
  AddEvents(page);
  AddLog(page);
  page->AddProcess();
}

void Metrics::AddEvents(MetricsPage* page) const {
  const EventHub* const events = events_.load(std::memory_order_relaxed);
  if (events == nullptr) return;
  page->Counter("inferencecache_observer_events_lost_total", "Events that StreamCacheEvents could not tell in time.")
      .Add(events->lost());
}

void Metrics::AddLog(MetricsPage* page) const {
  const Logger* const log = log_.load(std::memory_order_relaxed);
  if (log == nullptr) return;
  const LogLosses losses = log->Losses();
  page->Counter("inferencecache_log_lines_lost_total", "Log lines that were to be written and are lost, by reason.")
      .Add(losses.suppressed, {{"reason", "rate"}})
      .Add(losses.unwritable, {{"reason", "unwritable"}});
}

}  // namespace icache
