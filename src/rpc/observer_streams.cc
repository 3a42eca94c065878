#include "rpc/observer_streams.h"

#include "icache/rpc/conversions.h"
#include "rpc/call_report.h"

namespace icache {

namespace wire = ::inferencecache::v1alpha1;

namespace {

constexpr char kEventMethod[] = "StreamCacheEvents";
constexpr char kMetricMethod[] = "StreamMetrics";

}  // namespace

// ---- Events ---------------------------------------------------------------------------------------------------------

void EventStream::OnOpen() {
  RecycledMessage<wire::StreamEventsRequest> request(0);
  if (const grpc::Status status = door_->Admit(context(), &request_, &request); !status.ok()) {
    Refuse(status);
    return;
  }
  ReportCall(door_->calls(), kEventMethod, context(), request.message(), message_, grpc::Status::OK,
             absl::ZeroDuration());
  subscription_ = hub_->Subscribe(EventFilterFromWire(request.message()), Waker());
  WriteHeaders();
}

void EventStream::OnRefused(const grpc::Status& status) {
  ReportRefusal(door_->calls(), kEventMethod, context(), status);
}

void EventStream::OnWake() {
  if (!writing()) WriteNext();
}

void EventStream::OnWritten(bool ok) {
  if (ok) WriteNext();  // else the client is gone
}

void EventStream::WriteNext() {
  HubEvent event;
  if (!subscription_->Next(&event)) return;
  HubEventToWire(event, &message_);
  Write(ToByteBuffer(message_), subscription_->HasNext());
}

// ---- Metrics --------------------------------------------------------------------------------------------------------

void MetricStream::OnOpen() {
  RecycledMessage<wire::StreamMetricsRequest> request(0);
  if (const grpc::Status status = door_->Admit(context(), &request_, &request); !status.ok()) {
    Refuse(status);
    return;
  }
  ReportCall(door_->calls(), kMetricMethod, context(), request.message(), message_, grpc::Status::OK,
             absl::ZeroDuration());
  names_.insert(request.message().names().begin(), request.message().names().end());
  BeginRound();
  WriteHeaders();
}

void MetricStream::OnRefused(const grpc::Status& status) {
  ReportRefusal(door_->calls(), kMetricMethod, context(), status);
}

void MetricStream::OnWritten(bool ok) {
  if (ok) WriteNext();  // else the client is gone
}

void MetricStream::OnOver() {
  samples_.reset();
  alarm_.Cancel();
}

void MetricStream::BeginRound() {
  next_round_ = gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_seconds(1, GPR_TIMESPAN));
  taken_at_ = clock_->Now();
  samples_ = (*source_)();
  next_ = NextWanted(0);
}

size_t MetricStream::NextWanted(size_t from) const {
  const auto wants = [this](const MetricSample& sample) {
    return names_.empty() || names_.contains(sample.family) || names_.contains(sample.name);
  };
  while (from < samples_->size() && !wants((*samples_)[from])) ++from;
  return from;
}

void MetricStream::WriteNext() {
  if (next_ == samples_->size()) {
    samples_.reset();
    BeginOther();
    alarm_.Set(queue_, next_round_, tick_.tag());
    return;
  }
  MetricSampleToWire((*samples_)[next_], taken_at_, &message_);
  next_ = NextWanted(next_ + 1);
  Write(ToByteBuffer(message_), next_ < samples_->size());
}

void MetricStream::OnTick(bool ok) {
  if (ok && IsOpen()) {
    BeginRound();
    WriteNext();
  }
  EndOther();
}

}  // namespace icache
