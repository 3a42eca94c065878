// Between the wire's messages and core's values. Nothing is checked here: core judges content.
//
// What is made from a message points into it: no hash, name or token is copied, so the message must outlive its value.
// Wire times become absl::Time here and nowhere else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "icache/base/metric_sample.h"
#include "icache/events/event_hub.h"
#include "icache/index/observation.h"
#include "icache/index/prefix_index.h"
#include "icache/routing/explanation.h"
#include "icache/routing/lookup.h"
#include "inferencecache/ops/v1alpha1/ops.pb.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

// The time that a `timestamp_us` names; nullopt for 0, which means unstamped. A time before 1970 becomes 1970, so that
// differences of times cannot overflow.
std::optional<absl::Time> StampFromWire(int64_t timestamp_us);

// Makes LookupRequests one after the other, in buffers that it keeps. Not thread-safe.
class LookupRequestView {
 public:
  // Valid until the next call, and as long as `message` is unchanged.
  const LookupRequest& Read(const inferencecache::v1alpha1::LookupRouteRequest& message, absl::Time deadline);
  // Ends the value's validity and frees the buffers if they are larger than that together.
  void Trim(size_t max_bytes);

 private:
  std::vector<std::string_view> block_hashes_;
  std::vector<std::string_view> candidates_;
  LookupRequest request_;
};

// Makes StateUpdates one after the other, in buffers that it keeps. Not thread-safe.
class StateUpdateView {
 public:
  // Valid until the next call, and as long as `message` is unchanged.
  const StateUpdate& Read(const inferencecache::v1alpha1::CacheStateUpdate& message);
  // Ends the value's validity and frees the buffers if they are larger than that together.
  void Trim(size_t max_bytes);

 private:
  std::vector<std::string_view> hashes_;  // of all prefixes, then the evicted ones
  std::vector<PrefixReport> prefixes_;
  StateUpdate update_;
};

// Valid as long as `message` is unchanged.
CacheEvent CacheEventFromWire(const inferencecache::v1alpha1::CacheEvent& message);

// Replaces `message`; rows and strings that it holds from an earlier answer keep their capacity.
void LookupAnswerToWire(const LookupAnswer& answer, absl::Duration latency,
                        inferencecache::v1alpha1::LookupRouteResponse* message);

// Replaces `message`.
void CacheStateToWire(const CacheState& state, inferencecache::v1alpha1::GetCacheStateResponse* message);

EventFilter EventFilterFromWire(const inferencecache::v1alpha1::StreamEventsRequest& message);
// Replaces `message`.
void HubEventToWire(const HubEvent& event, inferencecache::v1alpha1::CacheEvent* message);
// Replaces `message`. `taken_at` is when the sample was.
void MetricSampleToWire(const MetricSample& sample, absl::Time taken_at, inferencecache::v1alpha1::Metric* message);

// Replaces `message`; the daemon's version is left out.
void ExplanationToWire(const Explanation& explanation, inferencecache::ops::v1alpha1::ExplainRouteResponse* message);

}  // namespace icache
