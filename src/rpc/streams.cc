#include "rpc/streams.h"

#include "rpc/call_report.h"

namespace icache {

namespace wire = ::inferencecache::v1alpha1;

namespace {

constexpr char kReportMethod[] = "ReportCacheState";

}  // namespace

UpdateSink::UpdateSink(Door* door, const RpcBackend& backend, size_t max_recycled_bytes)
    : door_(door),
      index_(backend.index),
      clock_(backend.clock),
      observer_(backend.ingest_observer),
      max_recycled_bytes_(max_recycled_bytes),
      message_(max_recycled_bytes) {}

grpc::Status UpdateSink::Admit(const grpc::ServerContext& context) const { return door_->Admit(context); }

grpc::Status UpdateSink::Apply(const grpc::ServerContext& context, grpc::ByteBuffer* update) {
  const absl::Time now = clock_->Now();
  const grpc::Status status = door_->Admit(context, update, &message_);
  if (status.ok()) {
    const StateUpdate& state_update = view_.Read(message_.message());
    const ApplyResult result = index_->ApplyUpdate(state_update, now);
    if (observer_ != nullptr) observer_->OnUpdate(state_update.model_id, result);
  }
  if (CallObserver* const calls = door_->calls(); calls != nullptr) {
    ReportCall(calls, kReportMethod, context, message_.message(), wire::Ack(), status, clock_->Now() - now);
  }
  view_.Trim(max_recycled_bytes_);
  message_.Trim();
  return status;
}

void UpdateSink::ReportRefused(const grpc::ServerContext& context, const grpc::Status& status) const {
  ReportRefusal(door_->calls(), kReportMethod, context, status);
}

void ReportStream::OnOpen() {
  if (const grpc::Status status = sink_->Admit(context_); !status.ok()) {
    Refuse(status);
  } else {
    reader_.Read(&update_, Begin());
  }
}

void ReportStream::OnProgress(bool ok) {
  if (!ok) {  // half-closed, or broken: then nobody reads the status
    End(grpc::Status::OK);
  } else if (const grpc::Status status = sink_->Apply(context_, &update_); !status.ok()) {
    End(status);
  } else {
    reader_.Read(&update_, Begin());
  }
}

void ReportStream::Finish(const grpc::Status& status) {
  if (!status.ok()) {
    reader_.FinishWithError(status, Begin());
    return;
  }
  wire::Ack ack;
  ack.set_accepted(true);
  reader_.Finish(ToByteBuffer(ack), status, Begin());
}

void LookupStream::OnOpen() {
  if (const grpc::Status status = door_->Admit(context_); !status.ok()) {
    Refuse(status);
  } else {
    Read();
  }
}

void LookupStream::OnRefused(const grpc::Status& status) {
  ReportRefusal(door_->calls(), "LookupRouteStream", context_, status);
}

void LookupStream::Read() {
  reading_ = true;
  stream_.Read(&message_, Begin());
}

void LookupStream::Shed() {
  shed_ = true;
  OnCompletion(true);
}

void LookupStream::OnProgress(bool ok) {
  reading_ = false;
  if (!ok) {  // half-closed, or broken: then nobody reads the status
    End(grpc::Status::OK);
    return;
  }
  grpc::ByteBuffer answer;
  const grpc::Status status = std::exchange(shed_, false) ? lookup_->Shed(context_, &message_, &answer)
                                                          : lookup_->Serve(context_, &message_, &answer);
  if (!status.ok()) {
    End(status);
  } else {
    stream_.Write(answer, BeginWrite(&context_, answer.Length()));
  }
}

void LookupStream::OnWritten(bool ok) {
  if (ok) {
    Read();
  } else {
    End(grpc::Status::OK);
  }
}

void ObserverStream::Post() {
  context_.AsyncNotifyWhenDone(tag());
  request_call_(&context_, &request_, &writer_, queue_, Begin());
}

}  // namespace icache
