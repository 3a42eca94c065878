// What observers open: StreamCacheEvents and StreamMetrics, one object per call.
#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "icache/base/metric_sample.h"
#include "icache/events/event_hub.h"
#include "icache/rpc/rpc_server.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"
#include "rpc/door.h"
#include "rpc/streams.h"

namespace icache {

// StreamCacheEvents: what the hub tells, for those that the door lets in. The headers are sent once it listens.
class EventStream final : public ObserverStream {
 public:
  // Nothing is owned.
  EventStream(StreamPool* pool, RequestCall<Writer> request_call, grpc::ServerCompletionQueue* queue, Door* door,
              EventHub* hub)
      : ObserverStream(pool, std::move(request_call), queue), door_(door), hub_(hub) {}

  void OnWake() override;

 private:
  void OnOpen() override;
  void OnRefused(const grpc::Status& status) override;
  void OnWritten(bool ok) override;
  void OnOver() override { subscription_.reset(); }
  void WriteNext();

  Door* const door_;
  EventHub* const hub_;
  std::unique_ptr<EventSubscription> subscription_;
  inferencecache::v1alpha1::CacheEvent message_;  // scratch
};

// StreamMetrics: the series asked for, at once and then a second after each round began, or when it has been written if
// that takes longer.
class MetricStream final : public ObserverStream {
 public:
  // Nothing is owned.
  MetricStream(StreamPool* pool, RequestCall<Writer> request_call, grpc::ServerCompletionQueue* queue, Door* door,
               const RpcBackend& backend)
      : ObserverStream(pool, std::move(request_call), queue),
        queue_(queue),
        door_(door),
        clock_(backend.clock),
        source_(&backend.metrics) {}

 private:
  class Tick final : public Completion {
   public:
    explicit Tick(MetricStream* stream) : stream_(stream) {}
    void OnCompletion(bool ok) override { stream_->OnTick(ok); }

   private:
    MetricStream* const stream_;
  };

  void OnOpen() override;
  void OnRefused(const grpc::Status& status) override;
  void OnWritten(bool ok) override;
  void OnOver() override;
  void OnTick(bool ok);
  void BeginRound();
  void WriteNext();
  // The first of samples_ from there on that the observer wants, or the end.
  size_t NextWanted(size_t from) const;

  grpc::ServerCompletionQueue* const queue_;
  Door* const door_;
  const Clock* const clock_;
  const MetricSource* const source_;
  absl::flat_hash_set<std::string> names_;  // of families or series; empty = all
  std::shared_ptr<const std::vector<MetricSample>> samples_;
  size_t next_ = 0;      // of samples_
  absl::Time taken_at_;  // samples_
  gpr_timespec next_round_ = {};
  inferencecache::v1alpha1::Metric message_;  // scratch
  grpc::Alarm alarm_;
  Tick tick_{this};
};

}  // namespace icache
