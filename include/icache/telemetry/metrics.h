// Metrics: the daemon's /metrics page and the counters behind it.
//
// The daemon hands one Metrics to the router and to the ingest path as their observer. Counters are kept here; gauges
// and what the index counts itself are read from the index when the page is rendered. docs/metrics.md lists every
// series. Source: contract/metrics.md.
//
// Requests choose model names, so the values of the `model` label are bounded:
//   1. A model that the index does not hold (no entry, no stats) counts under model="other".
//   2. At most kMaxModels models have series of their own, first come; the rest count under "other".
//   3. A model that has drained loses its gauges at once, and its counters and its place kDrainedCounterLife later. One
//      that comes back earlier continues its counters.
//
// Thread-safe.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/access/access_observer.h"
#include "icache/base/clock.h"
#include "icache/base/metric_sample.h"
#include "icache/base/mutex.h"
#include "icache/events/event_hub.h"
#include "icache/index/ingest_observer.h"
#include "icache/index/prefix_index.h"
#include "icache/routing/lookup.h"
#include "icache/telemetry/build_info.h"

namespace icache {

class Logger;
class MetricsPage;
class ModelTallies;

// What the daemon listens with.
enum class Listener { kGrpc, kHttp };

class Metrics final : public LookupObserver, public IngestObserver, public AccessObserver {
 public:
  static constexpr size_t kMaxModels = 1000;
  static constexpr absl::Duration kDrainedCounterLife = absl::Hours(1);

  // `index` and `clock` are not owned and must outlive the object.
  Metrics(const PrefixIndex* index, const Clock* clock, BuildInfo build = CompiledBuild());
  ~Metrics() override;
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // On the hot path: one lock that other threads rarely want, one probe, no allocation for a model seen before.
  void OnLookup(const LookupOutcome& outcome) override;

  // Asks the index whether it holds the model, so it must not be called under one of the index's locks.
  void OnUpdate(std::string_view model_id, const ApplyResult& result) override;
  void OnEvent(CacheEventType type, const ApplyResult& result) override;

  void OnRefused(Refusal refusal) override;

  // The log whose losses the page tells; none at first. Not owned.
  void WatchLog(const Logger* log) { log_.store(log, std::memory_order_relaxed); }
  // Likewise what observers of `events` lose.
  void WatchEvents(const EventHub* events) { events_.store(events, std::memory_order_relaxed); }

  // Whether lookups are being served; false at first.
  void SetServing(bool serving);
  // The policies of the start are in force.
  void RecordPolicyLoad();
  // A reload has put a new set in force, or was refused.
  void RecordPolicyReload(bool success);

  // `listener` serves over TLS, from now on with a certificate that ends at `expires_at`.
  void RecordTlsLoad(Listener listener, absl::Time expires_at);
  // Its files have changed and are in force, or were refused.
  void RecordTlsReload(Listener listener, bool success);

  // There are listeners whose connections may come to nothing: from now on the page tells how many do.
  void ShowConnections() { shows_connections_.store(true, std::memory_order_relaxed); }
  // A connection that waits could not be taken for want of descriptors or memory.
  void RecordAcceptFailure(Listener listener);
  // A connection has ended before its TLS handshake was done.
  void RecordHandshakeFailure(Listener listener);
  // HTTP has ended a connection: it had not asked in time, or others needed the room.
  void RecordHttpCut(bool for_room);

  // A gRPC request was refused since it is compressed.
  void RecordCompressedRequest() { compressed_requests_.fetch_add(1, std::memory_order_relaxed); }

  // There are callers who are not let in: from now on the page tells how many.
  void ShowRefusals() { shows_refusals_.store(true, std::memory_order_relaxed); }
  // Callers are asked who they are, by rules that have been loaded. Shows refusals.
  void RecordAccessLoad();
  // The rules have changed and are in force, or were refused.
  void RecordAccessReload(bool success);

  // Notes which models have drained and forgets those that did so an hour ago. Render() does it too; called after each
  // sweep of the index it dates the drains by itself, whether or not anybody scrapes. O(models held).
  void Sweep();

  // The page, in the Prometheus text format 0.0.4. O(series).
  std::string Render();
  // The page as values. Who asks shortly after another gets the same ones, if they are still in use.
  std::shared_ptr<const std::vector<MetricSample>> Samples() ABSL_LOCKS_EXCLUDED(samples_mutex_);

 private:
  struct TlsTally {
    bool enabled() const { return expires_at_s.load(std::memory_order_relaxed) != 0; }

    std::atomic<int64_t> expires_at_s = 0;  // Unix time; 0 = no TLS
    std::atomic<int64_t> reload_successes = 0;
    std::atomic<int64_t> reload_failures = 0;
    std::atomic<int64_t> handshake_failures = 0;
  };

  void Fill(MetricsPage* page);
  void AddTls(MetricsPage* page) const;
  void AddConnections(MetricsPage* page) const;
  void AddAccess(MetricsPage* page) const;
  void AddEvents(MetricsPage* page) const;
  void AddLog(MetricsPage* page) const;

  const PrefixIndex* const index_;
  const Clock* const clock_;
  const BuildInfo build_;
  const std::unique_ptr<ModelTallies> tallies_;  // locks itself

  // Single values that nothing else depends on: relaxed.
  std::atomic<const Logger*> log_ = nullptr;
  std::atomic<const EventHub*> events_ = nullptr;
  std::atomic<bool> serving_ = false;
  std::atomic<int64_t> shed_ = 0;
  std::atomic<int64_t> reload_successes_ = 0;
  std::atomic<int64_t> reload_failures_ = 0;
  std::atomic<bool> asks_callers_ = false;
  std::atomic<bool> shows_refusals_ = false;
  std::atomic<int64_t> access_reload_successes_ = 0;
  std::atomic<int64_t> access_reload_failures_ = 0;
  std::array<std::atomic<int64_t>, 2> refused_ = {};  // by Refusal
  std::array<TlsTally, 2> tls_;                       // by Listener
  std::atomic<bool> shows_connections_ = false;
  std::array<std::atomic<int64_t>, 2> accept_failures_ = {};  // by Listener
  std::atomic<int64_t> http_cut_for_slowness_ = 0;
  std::atomic<int64_t> http_cut_for_room_ = 0;
  std::atomic<int64_t> compressed_requests_ = 0;
  std::atomic<int64_t> policies_loaded_at_us_ = 0;  // Unix time of the set in force, 0 before the first

  Mutex samples_mutex_;
  std::weak_ptr<const std::vector<MetricSample>> samples_ ABSL_GUARDED_BY(samples_mutex_);
  absl::Time sampled_at_ ABSL_GUARDED_BY(samples_mutex_);
};

}  // namespace icache
