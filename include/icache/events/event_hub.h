// EventHub: brings the changes of the index to those who have subscribed, each through a bounded queue of its own.
//
// A subscriber that does not keep up loses the oldest events, and is told how many it has lost where they are missing.
// A change of many blocks is kept once, for all subscribers, and taken apart as each of them reads it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "icache/base/mutex.h"
#include "icache/index/change_observer.h"
#include "icache/index/observation.h"

namespace icache {

// What a subscriber wants. Empty = all.
struct EventFilter {
  std::string model_id;
  std::string tenant_id;
  std::vector<CacheEventType> types;
};

// An event of one block or replica. Views are valid until the subscription is asked for the next one.
//
// Or the news that events are missing here: then the type is kUnspecified, `at` is now, `prefix_hash` is their number
// in 8 bytes, most significant first, and there are no names.
struct HubEvent {
  CacheEventType type = CacheEventType::kUnspecified;
  std::string_view tenant_id;
  std::string_view model_id;
  std::string_view replica_id;
  std::string_view adapter_id;
  std::string_view prefix_hash;  // 1 to 64 bytes; "" for events of a whole replica
  absl::Time at;
};

class EventHub;

// Events from its making on. Thread-compatible; the hub must outlive it.
class EventSubscription {
 public:
  ~EventSubscription();
  EventSubscription(const EventSubscription&) = delete;
  EventSubscription& operator=(const EventSubscription&) = delete;

  // Takes the next event. False when there is none for now: then the callback says when there is one again.
  bool Next(HubEvent* event);
  // Whether another one waits.
  bool HasNext() const;

 private:
  friend class EventHub;
  struct Change;

  EventSubscription(EventHub* hub, EventFilter filter, std::function<void()> on_news);
  bool Wants(const IndexChange& change) const;

  EventHub* const hub_;
  const EventFilter filter_;
  const std::function<void()> on_news_;

  // Guarded by the hub's mutex.
  std::deque<std::shared_ptr<const Change>> changes_;
  size_t taken_ = 0;   // events of the first change that have been read or lost
  size_t queued_ = 0;  // events in changes_ that have not
  uint64_t lost_ = 0;  // since the last Next()

  std::shared_ptr<const Change> current_;         // what the last event points into
  std::array<char, sizeof(uint64_t)> lost_text_;  // likewise
};

// Thread-safe.
class EventHub final : public ChangeObserver {
 public:
  // A subscriber may be `max_queued_events`, >= 1, behind. `clock` is not owned.
  EventHub(const Clock* clock, size_t max_queued_events) : clock_(clock), max_queued_(max_queued_events) {}

  // `on_news` is called, on any thread and under locks, when the first event has come after Next() was false or was not
  // called yet. It must be quick and must call neither the hub nor the index.
  std::unique_ptr<EventSubscription> Subscribe(EventFilter filter, std::function<void()> on_news)
      ABSL_LOCKS_EXCLUDED(mutex_);

  void OnChange(const IndexChange& change) override ABSL_LOCKS_EXCLUDED(mutex_);

  // Events that subscribers have lost so far.
  int64_t lost() const { return lost_.load(std::memory_order_relaxed); }

 private:
  friend class EventSubscription;

  // For what the subscribers want, taken together.
  void Listen() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Clock* const clock_;
  const size_t max_queued_;
  mutable Mutex mutex_;
  std::vector<EventSubscription*> subscriptions_ ABSL_GUARDED_BY(mutex_);
  std::atomic<int64_t> lost_ = 0;
};

}  // namespace icache
