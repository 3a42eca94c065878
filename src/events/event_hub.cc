#include "icache/events/event_hub.h"

#include <algorithm>
#include <utility>

#include "icache/base/block_hash.h"

namespace icache {

// An IndexChange that owns what it says.
struct EventSubscription::Change {
  explicit Change(const IndexChange& change)
      : type(change.type),
        tenant_id(change.tenant_id),
        model_id(change.model_id),
        replica_id(change.replica_id),
        adapter_id(change.adapter_id),
        at(change.at) {
    hash_ends.reserve(change.hashes.size());
    for (const BlockHash& hash : change.hashes) {
      if (hash.IsPacked()) {
        hash_bytes.resize(hash_bytes.size() + kPackedHashBytes);
        StoreBigEndian64(hash.packed(), hash_bytes.data() + hash_bytes.size() - kPackedHashBytes);
      } else {
        hash_bytes += hash.wide();
      }
      hash_ends.push_back(hash_bytes.size());
    }
  }

  // A change of a whole replica is one event without a hash.
  size_t events() const { return std::max<size_t>(hash_ends.size(), 1); }
  std::string_view hash(size_t i) const {
    if (hash_ends.empty()) return {};
    const size_t begin = i == 0 ? 0 : hash_ends[i - 1];
    return std::string_view(hash_bytes).substr(begin, hash_ends[i] - begin);
  }

  const CacheEventType type;
  const std::string tenant_id;
  const std::string model_id;
  const std::string replica_id;
  const std::string adapter_id;
  const absl::Time at;
  std::string hash_bytes;         // one behind the other
  std::vector<size_t> hash_ends;  // where each ends
};

EventSubscription::EventSubscription(EventHub* hub, EventFilter filter, std::function<void()> on_news)
    : hub_(hub), filter_(std::move(filter)), on_news_(std::move(on_news)) {}

EventSubscription::~EventSubscription() {
  MutexLock lock(&hub_->mutex_);
  std::erase(hub_->subscriptions_, this);
  hub_->Listen();
}

bool EventSubscription::Wants(const IndexChange& change) const {
  const auto wants = [](const std::string& wanted, std::string_view name) { return wanted.empty() || wanted == name; };
  return wants(filter_.model_id, change.model_id) && wants(filter_.tenant_id, change.tenant_id) &&
         (filter_.types.empty() ||
          std::find(filter_.types.begin(), filter_.types.end(), change.type) != filter_.types.end());
}

bool EventSubscription::Next(HubEvent* event) {
  *event = HubEvent();
  MutexLock lock(&hub_->mutex_);
  if (lost_ > 0) {
    StoreBigEndian64(std::exchange(lost_, 0), lost_text_.data());
    event->prefix_hash = std::string_view(lost_text_.data(), lost_text_.size());
    event->at = hub_->clock_->Now();
    return true;
  }
  if (changes_.empty()) return false;
  current_ = changes_.front();
  event->type = current_->type;
  event->tenant_id = current_->tenant_id;
  event->model_id = current_->model_id;
  event->replica_id = current_->replica_id;
  event->adapter_id = current_->adapter_id;
  event->prefix_hash = current_->hash(taken_);
  event->at = current_->at;
  --queued_;
  if (++taken_ == current_->events()) {
    changes_.pop_front();
    taken_ = 0;
  }
  return true;
}

bool EventSubscription::HasNext() const {
  MutexLock lock(&hub_->mutex_);
  return lost_ > 0 || !changes_.empty();
}

std::unique_ptr<EventSubscription> EventHub::Subscribe(EventFilter filter, std::function<void()> on_news) {
  std::unique_ptr<EventSubscription> subscription(new EventSubscription(this, std::move(filter), std::move(on_news)));
  MutexLock lock(&mutex_);
  subscriptions_.push_back(subscription.get());
  Listen();
  return subscription;
}

void EventHub::Listen() {
  uint32_t types = 0;
  for (const EventSubscription* subscriber : subscriptions_) {
    if (subscriber->filter_.types.empty()) types = kAllTypes;
    for (const CacheEventType type : subscriber->filter_.types) types |= BitOf(type);
  }
  SetListening(types);
}

void EventHub::OnChange(const IndexChange& change) {
  MutexLock lock(&mutex_);
  std::shared_ptr<const EventSubscription::Change> owned;
  for (EventSubscription* subscriber : subscriptions_) {
    if (!subscriber->Wants(change)) continue;
    if (owned == nullptr) owned = std::make_shared<const EventSubscription::Change>(change);
    const bool first = subscriber->queued_ == 0 && subscriber->lost_ == 0;
    subscriber->changes_.push_back(owned);
    subscriber->queued_ += owned->events();
    while (subscriber->queued_ > max_queued_) {
      const size_t left = subscriber->changes_.front()->events() - subscriber->taken_;
      const size_t lost = std::min(left, subscriber->queued_ - max_queued_);
      subscriber->taken_ += lost;
      if (lost == left) {
        subscriber->changes_.pop_front();
        subscriber->taken_ = 0;
      }
      subscriber->queued_ -= lost;
      subscriber->lost_ += lost;
      lost_.fetch_add(static_cast<int64_t>(lost), std::memory_order_relaxed);
    }
    if (first) subscriber->on_news_();
  }
}

}  // namespace icache
