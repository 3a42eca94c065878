#include "bridge/bridge.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/time/clock.h"
#include "icache/base/moment.h"
#include "icache/base/status_macros.h"
#include "icache/telemetry/build_info.h"
#include "icache/telemetry/metrics_page.h"

namespace icache {

Bridge::Bridge(const BridgeOptions& options, Logger* logger)
    : options_(options), logger_(logger), daemons_(&options_.report, logger) {}

Bridge::~Bridge() { Shutdown(absl::ZeroDuration()); }

absl::StatusOr<std::unique_ptr<Bridge>> Bridge::Start(const BridgeOptions& options, Logger* logger) {
  std::unique_ptr<Bridge> bridge(new Bridge(options, logger));
  for (const EngineOptions& engine : bridge->options_.engines) {
    ASSIGN_OR_RETURN(auto worker, EngineWorker::Start(engine, bridge->options_.report, &bridge->context_,
                                                      &bridge->daemons_, logger));
    bridge->workers_.push_back(std::move(worker));
  }
  ASSIGN_OR_RETURN(bridge->http_, HttpServer::Start({.address = options.http_address},
                                                    {.ready = [raw = bridge.get()] { return raw->Ready(); },
                                                     .metrics = [raw = bridge.get()] { return raw->Metrics(); }}));
  logger->Info("started", {{"http_port", bridge->http_port()}, {"engines", bridge->workers_.size()}});
  return bridge;
}

void Bridge::Shutdown(absl::Duration grace) {
  if (std::exchange(stopped_, true)) return;
  const absl::Time deadline = SteadyNow() + grace;
  if (http_ != nullptr) http_->Stop();
  for (const auto& worker : workers_) worker->BeginStop();
  for (const auto& worker : workers_) worker->Stop();
  daemons_.Flush(deadline);
  logger_->Info("stopped");
}

absl::Status Bridge::Ready() const {
  for (const auto& worker : workers_) {
    if (!worker->stats().in_sync) {
      return absl::UnavailableError("not in sync with the events of " + worker->engine().replica);
    }
  }
  const std::shared_ptr<const DaemonSet::Links> links = daemons_.links();
  for (const auto& link : *links) {
    if (link->outbox()->stats().connected) return absl::OkStatus();
  }
  return absl::UnavailableError("no daemon is connected");
}

std::string Bridge::Metrics() const {
  const absl::Time now = SteadyNow();
  MetricsPage page;
  const BuildInfo build = CompiledBuild();
  page.Gauge("inferencecache_bridge_build_info", "1; the labels say which build this is.")
      .Add(1, {{"version", LabelValue(build.version)}, {"commit", LabelValue(build.commit)}});

  using Stats = EngineWorker::Stats;
  std::vector<std::pair<std::string, Stats>> engines;  // by replica
  for (const auto& worker : workers_) engines.emplace_back(LabelValue(worker->engine().replica), worker->stats());
  // Engines of several models may share a replica's name, but a series may have one sample.
  const auto labels = [&](size_t i) -> MetricsPage::Labels {
    return {{"replica", engines[i].first},
            {"model", LabelValue(workers_[i]->engine().model)},
            {"tenant", LabelValue(workers_[i]->engine().tenant)}};
  };
  const auto per_engine = [&](auto value_of) {
    for (size_t i = 0; i < engines.size(); ++i) page.Add(value_of(engines[i].second), labels(i));
  };
  const auto per_engine_and = [&](const char* label, const char* value, auto value_of) {
    for (size_t i = 0; i < engines.size(); ++i) {
      MetricsPage::Labels all = labels(i);
      all.emplace_back(label, value);
      page.Add(value_of(engines[i].second), std::move(all));
    }
  };

  page.Gauge("inferencecache_bridge_engine_connected", "1 while the engine's event socket is connected.");
  per_engine([](const Stats& s) { return s.connected; });
  page.Gauge("inferencecache_bridge_engine_in_sync",
             "1 while no event is known to be missing or on its way by replay.");
  per_engine([](const Stats& s) { return s.in_sync; });
  page.Gauge("inferencecache_bridge_lease_lapsed",
             "1 while events that are lost for good keep the lease from renewal.");
  per_engine([](const Stats& s) { return s.lapsed; });
  page.Counter("inferencecache_bridge_events_total", "Events taken, by kind.");
  per_engine_and("kind", "BlockStored", [](const Stats& s) { return s.events.stored; });
  per_engine_and("kind", "BlockRemoved", [](const Stats& s) { return s.events.removed; });
  per_engine_and("kind", "AllBlocksCleared", [](const Stats& s) { return s.events.cleared; });
  per_engine_and("kind", "unknown", [](const Stats& s) { return s.events.unknown; });
  page.Counter("inferencecache_bridge_malformed_total", "What could not be read and was left out.");
  per_engine_and("what", "event", [](const Stats& s) { return s.events.malformed; });
  per_engine_and("what", "batch", [](const Stats& s) { return s.batches.malformed; });
  per_engine_and("what", "message", [](const Stats& s) { return s.malformed_messages; });
  per_engine_and("what", "rank", [](const Stats& s) { return s.events.refused_ranks; });
  page.Counter("inferencecache_bridge_dropped_blocks_total", "Stored blocks that are not reported, by reason.");
  for (size_t reason = 0; reason < kBlockDropCount; ++reason) {
    per_engine_and("reason", BlockDropName(static_cast<BlockDrop>(reason)).data(),
                   [reason](const Stats& s) { return s.drops[reason]; });
  }
  page.Counter("inferencecache_bridge_batches_total", "Batches applied.");
  per_engine([](const Stats& s) { return s.batches.batches; });
  page.Counter("inferencecache_bridge_replayed_batches_total", "Batches applied that came by replay.");
  per_engine([](const Stats& s) { return s.batches.replayed; });
  page.Counter("inferencecache_bridge_duplicate_batches_total", "Batches that had been applied already.");
  per_engine([](const Stats& s) { return s.batches.duplicates; });
  page.Counter("inferencecache_bridge_gaps_total", "Gaps found in the sequence of batches.");
  per_engine([](const Stats& s) { return s.batches.gaps; });
  page.Counter("inferencecache_bridge_losses_total", "Times that events were lost for good.");
  per_engine([](const Stats& s) { return s.batches.losses; });
  page.Counter("inferencecache_bridge_engine_restarts_total", "Restarts of the engine.");
  per_engine([](const Stats& s) { return s.batches.restarts; });
  page.Counter("inferencecache_bridge_engine_gone_total",
               "Times that the engine was gone and its claims were cleared.");
  per_engine([](const Stats& s) { return s.times_gone; });
  page.Counter("inferencecache_bridge_resubscriptions_total",
               "Times that an event socket without a connection was made anew.");
  per_engine([](const Stats& s) { return s.resubscriptions; });
  page.Gauge("inferencecache_bridge_waiting_batches", "Batches that wait for a replay to end.");
  per_engine([](const Stats& s) { return s.waiting_batches; });
  page.Counter("inferencecache_bridge_overflowed_batches_total", "Batches dropped because too many waited.");
  per_engine([](const Stats& s) { return s.batches.overflows; });
  page.Gauge("inferencecache_bridge_live_blocks", "Blocks that the engine is known to hold.");
  per_engine([](const Stats& s) { return s.held_blocks; });
  page.Gauge("inferencecache_bridge_suspect_blocks", "Of them, blocks known from before a loss only.");
  per_engine([](const Stats& s) { return s.suspect_blocks; });
  page.Gauge("inferencecache_bridge_ledger_memory_bytes", "Memory that keeps track of blocks.");
  per_engine([](const Stats& s) { return s.memory_bytes; });
  page.Gauge("inferencecache_bridge_last_event_age_seconds", "Time since the last batch, by the engine's clock.");
  for (size_t i = 0; i < engines.size(); ++i) {
    const absl::Time last = engines[i].second.last_batch_at;
    if (last == absl::InfinitePast()) continue;
    page.Add(absl::ToDoubleSeconds(std::max(absl::Now() - last, absl::ZeroDuration())), labels(i));
  }
  page.Counter("inferencecache_bridge_leases_total", "Leases renewed.");
  per_engine([](const Stats& s) { return s.leases; });
  page.Counter("inferencecache_bridge_scrape_failures_total", "Failed scrapes of the engine's metrics.");
  per_engine([](const Stats& s) { return s.scrape_failures; });

  const std::shared_ptr<const DaemonSet::Links> links = daemons_.links();
  const auto per_daemon = [&](auto value_of) {
    for (const auto& link : *links) page.Add(value_of(*link), {{"daemon", LabelValue(link->address())}});
  };
  page.Gauge("inferencecache_bridge_daemon_connected", "1 while the daemon is connected.");
  per_daemon([](DaemonLink& link) { return link.outbox()->stats().connected; });
  page.Gauge("inferencecache_bridge_daemon_base_wire", "1 when the daemon knows no extension fields.");
  per_daemon([](DaemonLink& link) { return link.counts().base_wire; });
  page.Gauge("inferencecache_bridge_queued_updates", "Updates that wait for the daemon.");
  per_daemon([](DaemonLink& link) { return link.outbox()->stats().queued_updates; });
  page.Gauge("inferencecache_bridge_queued_blocks", "Blocks in them.");
  per_daemon([](DaemonLink& link) { return link.outbox()->stats().queued_blocks; });
  page.Gauge("inferencecache_bridge_daemon_lag_seconds", "Age of the oldest update that waits for the daemon.");
  per_daemon([now](DaemonLink& link) {
    const absl::Time oldest = link.outbox()->stats().oldest;
    return oldest < now ? absl::ToDoubleSeconds(now - oldest) : 0.0;
  });
  page.Counter("inferencecache_bridge_sent_updates_total", "Updates sent.");
  per_daemon([](DaemonLink& link) { return link.counts().updates; });
  page.Counter("inferencecache_bridge_sent_blocks_total", "Blocks in them.");
  per_daemon([](DaemonLink& link) { return link.counts().blocks; });
  page.Counter("inferencecache_bridge_daemon_connections_total", "Connections made to the daemon.");
  per_daemon([](DaemonLink& link) { return link.counts().connections; });
  page.Counter("inferencecache_bridge_daemon_stalls_total", "Times that the daemon took nothing and was cut off.");
  per_daemon([](DaemonLink& link) { return link.counts().write_timeouts; });
  page.Counter("inferencecache_bridge_foreign_clears_total",
               "Times that somebody else cleared a replica at the daemon.");
  per_daemon([](DaemonLink& link) { return link.counts().foreign_clears; });
  page.Counter("inferencecache_bridge_full_reports_total",
               "Times that a replica's blocks were all told from a clear on.");
  per_daemon([](DaemonLink& link) { return link.outbox()->stats().restarts; });
  page.Counter("inferencecache_bridge_queue_overflows_total", "Queues that were thrown away for a full report.");
  per_daemon([](DaemonLink& link) { return link.outbox()->stats().overflows; });
  const LogLosses losses = logger_->Losses();
  page.Counter("inferencecache_bridge_log_lines_lost_total",
               "Log lines that were to be written and are lost, by reason.")
      .Add(losses.suppressed, {{"reason", "rate"}})
      .Add(losses.unwritable, {{"reason", "unwritable"}});
  page.AddProcess();
  return page.Text();
}

}  // namespace icache
