#include "bridge/engine_worker.h"

#include <pthread.h>

#include <algorithm>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "icache/base/status_macros.h"
#include "icache/telemetry/build_info.h"

namespace icache {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kIdleWait = absl::Milliseconds(20);  // how soon a daemon that has come is noticed
constexpr absl::Duration kCountLogInterval = absl::Minutes(1);
constexpr size_t kMessagesAtOnce = 256;  // of one stream, before others and reports have their turn

constexpr size_t kMaxReplicaNames = 4096;  // that one engine's ranks may have, one start after another

ReplicaId NextReplicaId() {
  static std::atomic<ReplicaId> last = 0;
  return ++last;
}

void Add(const SequencerCounts& more, SequencerCounts* sum) {
  sum->batches += more.batches;
  sum->replayed += more.replayed;
  sum->duplicates += more.duplicates;
  sum->malformed += more.malformed;
  sum->gaps += more.gaps;
  sum->losses += more.losses;
  sum->restarts += more.restarts;
  sum->overflows += more.overflows;
}

void Add(const StreamCounts& more, StreamCounts* sum) {
  sum->stored += more.stored;
  sum->removed += more.removed;
  sum->cleared += more.cleared;
  sum->unknown += more.unknown;
  sum->malformed += more.malformed;
  sum->refused_ranks += more.refused_ranks;
}

void AddDrops(const BlockDropCounts& more, BlockDropCounts* sum) {
  for (size_t i = 0; i < kBlockDropCount; ++i) (*sum)[i] += more[i];
}

}  // namespace

EngineWorker::EngineWorker(const EngineOptions& engine, const ReportOptions& report, DaemonSet* daemons, Logger* logger)
    : engine_(engine), report_(report), daemons_(daemons), logger_(logger) {}

absl::StatusOr<std::unique_ptr<EngineWorker>> EngineWorker::Start(const EngineOptions& engine,
                                                                  const ReportOptions& report, EventContext* context,
                                                                  DaemonSet* daemons, Logger* logger) {
  std::unique_ptr<EngineWorker> worker(new EngineWorker(engine, report, daemons, logger));
  RETURN_IF_ERROR(worker->Open(context));
  worker->thread_ = std::thread([raw = worker.get()] { raw->Run(); });
  pthread_setname_np(worker->thread_.native_handle(), "engine");
  return worker;
}

EngineWorker::~EngineWorker() { Stop(); }

void EngineWorker::BeginStop() {
  stopping_ = true;
  if (scraper_ != nullptr) scraper_->BeginStop();
}

void EngineWorker::Stop() {
  BeginStop();
  if (thread_.joinable()) thread_.join();
}

absl::Status EngineWorker::Open(EventContext* context) {
  StreamOptions options;
  options.sequencer.has_replay = !engine_.replay.empty();
  options.ledger.adapters = engine_.adapters;
  options.ledger.gpu_removal = engine_.gpu_removal;
  options.ledger.ttl = report_.ttl;
  options.ledger.max_blocks = engine_.max_blocks;
  options.ledger.hashes_are_chained = engine_.kind != EngineKind::kSglang;  // older versions' are not
  if (engine_.block_size > 0) options.ledger.block_size = engine_.block_size;
  for (int32_t rank = 0; rank < engine_.ranks; ++rank) {
    const size_t index = streams_.size();
    if (engine_.ranks > 1) {
      options.rank = rank;
      options.may_take_rank = [this, index](int64_t taken) {
        const bool full = rank_streams_.size() >= static_cast<size_t>(engine_.ranks);
        return !full && rank_streams_.try_emplace(taken, index).second;
      };
    }
    streams_.push_back({std::make_unique<EngineStream>(
        options, [this, index](uint64_t from) { sockets_[index]->RequestReplay(from); })});
    EngineStream* stream = streams_.back().events.get();
    EventSocketHandlers handlers;
    handlers.live = [stream](uint64_t sequence, std::string_view payload) {
      stream->OnLive(sequence, payload, Moment::Now());
    };
    handlers.replayed = [stream](uint64_t sequence, std::string_view payload) {
      stream->OnReplayed(sequence, payload, Moment::Now());
    };
    handlers.replay_ended = [stream] { stream->OnReplayEnd(Moment::Now()); };
    handlers.connected = [this, index, rank] {
      logger_->Info("engine_connected",
                    {{"replica", engine_.replica}, {"rank", rank}, {"events", sockets_[index]->endpoint()}});
    };
    handlers.reconnected = [=, this] {
      logger_->Info("engine_reconnected", {{"replica", engine_.replica}});
      stream->OnReconnected(Moment::Now());
    };
    const std::string replay = engine_.replay.empty() ? "" : EndpointOfRank(engine_.replay, rank);
    ASSIGN_OR_RETURN(
        std::unique_ptr<EventSocket> socket,
        EventSocket::Open(context, EndpointOfRank(engine_.events, rank), replay, engine_.topic, std::move(handlers)));
    logger_->Info("engine_awaited", {{"replica", engine_.replica},
                                     {"kind", EngineKindName(engine_.kind)},
                                     {"rank", rank},
                                     {"events", socket->endpoint()}});
    sockets_.push_back(std::move(socket));
  }
  if (!engine_.metrics_url.empty()) scraper_ = std::make_unique<MetricsScraper>(&engine_, report_.stats_interval);
  return absl::OkStatus();
}

void EngineWorker::Run() {
  while (!stopping_) {
    const absl::Time due = std::min(changed_at_ + report_.batch_interval, SteadyNow() + kIdleWait);
    EventSocket::WaitForAny(sockets_, std::max(due - SteadyNow(), absl::ZeroDuration()));
    for (const auto& socket : sockets_) socket->Receive(kMessagesAtOnce, SteadyNow());
    const Moment now = Moment::Now();
    if (now.steady >= next_tick_) Tick(now);
    if (changed_at_ == absl::InfiniteFuture() && HasChanges()) changed_at_ = now.steady;
    size_t changes = 0;
    for (const auto& [key, replica] : replicas_) changes += replica.state->ledger.changed_blocks();
    const bool waited = now.steady >= changed_at_ + report_.batch_interval;
    if (waited || changes >= report_.batch_blocks) Report(now);
  }
  const Moment now = Moment::Now();
  if (report_.clear_on_exit) {
    ClearAll(now);
  } else {
    Report(now);
  }
  PublishStats(GatherStats());
}

void EngineWorker::Tick(Moment now) {
  next_tick_ = now.steady + kTick;
  for (size_t i = 0; i < streams_.size(); ++i) {
    LookForGoneEngine(i, now);
    // What is gone is not asked for a replay either, until it connects again.
    if (!streams_[i].gone) streams_[i].events->OnTick(now);
  }
  FindReplicas();
  Report(now);
  RebindRanks(now);
  // A lease must reach the daemons well before what it holds up would expire.
  const absl::Duration lease_interval = std::min(report_.lease_interval, report_.ttl / 3);
  if (now.steady >= next_lease_) {
    next_lease_ = now.steady + lease_interval;
    RenewLeases(now);
  }
  if (scraper_ != nullptr) {
    if (const std::optional<EngineStats> stats = scraper_->TakeStats()) ReportStats(*stats, now);
  }
  const Stats stats = GatherStats();
  LogChanges(stats, now.steady);
  PublishStats(stats);
}

void EngineWorker::LookForGoneEngine(size_t index, Moment now) {
  Stream& stream = streams_[index];
  if (sockets_[index]->connected()) {
    stream.lost_at = absl::InfiniteFuture();
    stream.seen = true;
    stream.gone = false;
    return;
  }
  stream.lost_at = std::min(stream.lost_at, now.steady);
  if (stream.gone) return;
  // Without metrics to ask, the connection itself has to fail for as long.
  const bool dead = scraper_ != nullptr ? scraper_->failures_in_a_row() >= engine_.gone_after
                                        : now.steady - stream.lost_at >= report_.stats_interval * engine_.gone_after;
  if (!dead) return;
  stream.gone = true;
  // What an earlier bridge told of one that is not there yet is as void as what was told of one that is gone.
  if (stream.seen) {
    ++times_gone_;
    logger_->Warn("engine_gone", {{"replica", engine_.replica}, {"events", sockets_[index]->endpoint()}});
  } else {
    logger_->Info("engine_absent", {{"replica", engine_.replica}, {"events", sockets_[index]->endpoint()}});
  }
  sockets_[index]->Discard();
  stream.events->OnEngineGone(now);
}

void EngineWorker::FindReplicas() {
  for (size_t i = 0; i < streams_.size(); ++i) {
    const auto& states = streams_[i].events->replicas();
    const bool any_heard = absl::c_any_of(states, [](const auto& entry) { return entry.second->heard(); });
    for (const auto& [rank, state] : states) {
      // A rank that its port does not speak of is cleared in its name, unless the port turns out to be another's.
      if (!state->heard() && (any_heard || rank_streams_.contains(*rank))) {
        replicas_.erase({i, rank});
        continue;
      }
      Replica& replica = replicas_[{i, rank}];
      if (replica.state != nullptr) continue;
      replica.names = NamesOf(rank.has_value() ? absl::StrCat(engine_.replica, "@", *rank) : engine_.replica);
      const auto [account, is_new] = accounts_.try_emplace(replica.names.replica);
      if (is_new) account->second.id = NextReplicaId();
      replica.account = &account->second;
      replica.state = state.get();
      replica.stream = streams_[i].events.get();
      replica.socket = sockets_[i].get();
    }
  }
}

ReplicaNames EngineWorker::NamesOf(const std::string& replica) const {
  return {replica, engine_.model, engine_.tenant, engine_.hash_scheme};
}

void EngineWorker::RebindRanks(Moment now) {
  int64_t starts = times_gone_;
  int64_t refused = 0;
  for (const Stream& stream : streams_) {
    starts += stream.events->sequencer().counts().restarts;
    refused += stream.events->counts().refused_ranks;
  }
  const bool is_stale = std::exchange(refused_seen_, refused) < refused && starts_bound_ < starts;
  if (!is_stale || accounts_.size() >= kMaxReplicaNames) return;
  starts_bound_ = starts;
  for (size_t i = 0; i < streams_.size(); ++i) {
    sockets_[i]->Discard();
    streams_[i].events->OnEngineGone(now);
  }
  Report(now);  // clears
  for (const auto& [key, replica] : replicas_) AddDrops(replica.state->ledger.drops(), &drops_before_);
  replicas_.clear();
  rank_streams_.clear();
  for (const Stream& stream : streams_) stream.events->ForgetReplicas();
}

bool EngineWorker::HasChanges() const {
  return std::any_of(replicas_.begin(), replicas_.end(),
                     [](const auto& entry) { return entry.second.state->ledger.HasChanges(); });
}

void EngineWorker::Report(Moment now) {
  changed_at_ = absl::InfiniteFuture();
  const std::shared_ptr<const DaemonSet::Links> links = daemons_->links();
  for (auto& [key, replica] : replicas_) ReportReplica(&replica, *links, now);
  ClearRetired(*links, now);
}

void EngineWorker::ClearRetired(const DaemonSet::Links& links, Moment now) {
  if (replicas_.size() == accounts_.size()) return;  // each has one, and no two the same: one stream takes a rank
  std::set<const Account*> in_use;
  for (const auto& [key, replica] : replicas_) in_use.insert(replica.account);
  for (auto& [name, account] : accounts_) {
    if (in_use.contains(&account)) continue;
    for (const auto& link : links) {
      if (link->outbox()->NeedOf(account.id) != Outbox::Need::kEverything) continue;
      const ReplicaNames names = NamesOf(name);
      UpdateWriter writer(&names, account.stamps.Now(now), now.steady, report_.batch_blocks, /*clear=*/true);
      link->outbox()->Retire(account.id, writer.Finish());
    }
  }
}

void EngineWorker::ReportReplica(Replica* replica, const DaemonSet::Links& links, Moment now) {
  EngineReplica* state = replica->state;
  StampClock& stamps = replica->account->stamps;
  const ReplicaId id = replica->account->id;
  for (const auto& link : links) stamps.RaiseTo(link->outbox()->FenceOf(id), now);
  // Nothing can be said of an engine before its first sign of life.
  if (!replica->stream->started() && !state->HasVoid()) return;
  const bool everything_to_all = state->TakeVoid();
  if (everything_to_all) {
    const std::vector<icache::Report> reports = WriteAll(replica, now, /*clear=*/true);
    for (const auto& link : links) link->outbox()->Restart(id, reports);
    replica->held_up_at = now;
    return;
  }
  if (state->ledger.HasChanges()) {
    UpdateWriter writer(&replica->names, stamps.At(state->as_of()), now.steady, report_.batch_blocks, /*clear=*/false);
    // The base wire's events evict what no adapter is named for under all of them.
    const bool any_base = absl::c_any_of(links, [](const auto& link) { return link->outbox()->base_wire(); });
    state->ledger.Drain(&writer,
                        any_base ? BlockLedger::BaseEviction::kAllAdapters : BlockLedger::BaseEviction::kThatBlock);
    for (const icache::Report& report : writer.Finish()) {
      for (const auto& link : links) link->outbox()->Push(id, report);
    }
  }
  const bool refresh = state->TakeRefresh(now.steady);
  // Daemons without leases are told again instead.
  const bool refresh_base = MayLease(*replica) && now.steady - replica->refresh_base_at >= report_.ttl / 2;
  if (refresh_base) replica->refresh_base_at = now.steady;
  for (const auto& link : links) {
    Outbox* outbox = link->outbox();
    const Outbox::Need need = outbox->NeedOf(id);
    if (need != Outbox::Need::kChanges) {
      // What an earlier bridge claimed lives on until the lapse ends, if this process cannot tell better.
      const bool clear = need == Outbox::Need::kEverything || !state->claims_unknown();
      outbox->Restart(id, WriteAll(replica, now, clear));
    } else if ((refresh || (refresh_base && outbox->base_wire())) && outbox->MayTellAgain(id)) {
      outbox->PushAgain(id, WriteAll(replica, now, /*clear=*/false));
    }
  }
}

std::vector<icache::Report> EngineWorker::WriteAll(Replica* replica, Moment now, bool clear) {
  // Later than all before: a clear removes nothing that is stamped later, and fences what is stamped earlier.
  StampClock& stamps = replica->account->stamps;
  const absl::Time last = stamps.At(replica->state->as_of());
  const absl::Time at = stamps.At(std::max(stamps.Now(now), last + absl::Microseconds(1)));
  UpdateWriter writer(&replica->names, at, now.steady, report_.batch_blocks, clear);
  replica->state->ledger.ReportAll(&writer);
  return writer.Finish();
}

bool EngineWorker::MayLease(const Replica& replica) {
  // Nothing can be heard through a socket that is lost, removals least of all.
  return replica.socket->connected() && replica.stream->MayLease(*replica.state);
}

void EngineWorker::RenewLeases(Moment now) {
  for (auto& [key, replica] : replicas_) {
    if (!MayLease(replica)) continue;
    const Moment last = std::exchange(replica.held_up_at, now).value_or(now);
    // A clock that nobody sets stands still while the machine is suspended, the wall clock does not.
    if (std::max(now.steady - last.steady, now.wall - last.wall) >= report_.ttl) {  // all has expired meanwhile
      const std::shared_ptr<const DaemonSet::Links> links = daemons_->links();
      for (const auto& link : *links) link->outbox()->Owe(replica.account->id);
    }
    if (replica.state->ledger.held_blocks() == 0) continue;
    const auto lease = EmptyUpdate(replica.names, replica.account->stamps.Now(now));
    lease->set_retains_all(true);
    ++leases_;
    PushToAll(replica, lease, now.steady);
  }
}

void EngineWorker::ReportStats(const EngineStats& stats, Moment now) {
  static const std::string client_version = absl::StrCat("icache-bridge/", CompiledBuild().version);
  for (auto& [key, replica] : replicas_) {
    if (!replica.state->heard()) continue;
    const auto update = EmptyUpdate(replica.names, replica.account->stamps.Now(now));
    auto* wire_stats = update->mutable_stats();
    wire_stats->set_replica_id(replica.names.replica);
    wire_stats->set_cache_memory_bytes(stats.cache_memory_bytes);
    wire_stats->set_hit_rate(stats.hit_rate);
    wire_stats->set_pressure(stats.pressure);
    wire_stats->set_t2_hit_tokens(stats.t2_hit_tokens);
    wire_stats->set_t2_query_tokens(stats.t2_query_tokens);
    wire_stats->set_client_version(client_version);
    PushToAll(replica, update, now.steady);
  }
}

void EngineWorker::PushToAll(const Replica& replica, std::shared_ptr<const CacheStateUpdate> update,
                             absl::Time made_at) {
  const std::shared_ptr<const DaemonSet::Links> links = daemons_->links();
  for (const auto& link : *links) link->outbox()->Push(replica.account->id, {update, 1, made_at});
}

void EngineWorker::ClearAll(Moment now) {
  const std::shared_ptr<const DaemonSet::Links> links = daemons_->links();
  for (auto& [key, replica] : replicas_) {
    const auto clear = EmptyUpdate(replica.names, replica.account->stamps.Now(now));
    clear->set_clear(true);
    for (const auto& link : *links) {
      const bool told = link->outbox()->NeedOf(replica.account->id) != Outbox::Need::kEverythingAtFirst;
      if (told) link->outbox()->Restart(replica.account->id, {{clear, 1, now.steady}});
    }
  }
}

EngineWorker::Stats EngineWorker::GatherStats() const {
  Stats stats;
  stats.connected = stats.in_sync = true;
  stats.drops = drops_before_;
  for (size_t i = 0; i < streams_.size(); ++i) {
    const EngineStream& stream = *streams_[i].events;
    stats.connected &= sockets_[i]->connected();
    stats.in_sync &= sockets_[i]->connected() && stream.sequencer().in_sync();
    Add(stream.sequencer().counts(), &stats.batches);
    Add(stream.counts(), &stats.events);
    stats.malformed_messages += sockets_[i]->malformed_messages();
    stats.resubscriptions += sockets_[i]->resubscriptions();
    stats.waiting_batches += stream.sequencer().waiting_batches();
    stats.last_batch_at = std::max(stats.last_batch_at, stream.last_batch_at());
  }
  for (const auto& [key, replica] : replicas_) {
    const BlockLedger& ledger = replica.state->ledger;
    stats.lapsed |= replica.state->lapsed();
    AddDrops(ledger.drops(), &stats.drops);
    stats.held_blocks += ledger.held_blocks();
    stats.suspect_blocks += ledger.suspect_blocks();
    stats.memory_bytes += ledger.memory_bytes();
  }
  if (scraper_ != nullptr) stats.scrape_failures = scraper_->failures();
  stats.leases = leases_;
  stats.times_gone = times_gone_;
  return stats;
}

void EngineWorker::PublishStats(const Stats& stats) {
  MutexLock lock(&mutex_);
  stats_ = stats;
}

void EngineWorker::LogChanges(const Stats& stats, absl::Time now) {
  if (std::exchange(logged_lapse_, stats.lapsed) != stats.lapsed) {
    if (stats.lapsed) {
      logger_->Warn("events_lost",
                    {{"replica", engine_.replica}, {"effect", "no lease until suspects are sorted out"}});
    } else {
      logger_->Info("lease_resumed", {{"replica", engine_.replica}});
    }
  }
  // How many of `kind` are to be told of: those since the last time, once the interval is over.
  const auto take = [&](std::string_view kind, int64_t count) -> int64_t {
    LoggedCount& logged = logged_counts_[kind];
    if (now - logged.at < kCountLogInterval || count == logged.count) return 0;
    return count - std::exchange(logged, {count, now}).count;
  };
  const auto log = [&](std::string_view kind, int64_t total) {
    const int64_t count = take(kind, total);
    if (count == 0) return;
    logger_->Warn("events_dropped", {{"replica", engine_.replica}, {"kind", kind}, {"count", count}});
  };
  log("malformed_event", stats.events.malformed);
  log("malformed_batch", stats.batches.malformed);
  log("malformed_message", stats.malformed_messages);
  log("refused_rank", stats.events.refused_ranks);
  for (size_t i = 0; i < kBlockDropCount; ++i) log(BlockDropName(static_cast<BlockDrop>(i)), stats.drops[i]);
  if (const int64_t count = take("scrape", stats.scrape_failures); count > 0) {
    const std::string reason = scraper_->last_failure();
    logger_->Warn("scrape_failed", {{"replica", engine_.replica}, {"reason", reason}, {"count", count}});
  }
}

EngineWorker::Stats EngineWorker::stats() const {
  MutexLock lock(&mutex_);
  return stats_;
}

}  // namespace icache
