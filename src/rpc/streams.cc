#include "rpc/streams.h"

namespace icache {

namespace wire = ::inferencecache::v1alpha1;

UpdateSink::UpdateSink(const RpcBackend& backend, size_t max_recycled_bytes)
    : index_(backend.index),
      clock_(backend.clock),
      observer_(backend.ingest_observer),
      max_recycled_bytes_(max_recycled_bytes),
      message_(max_recycled_bytes) {}

grpc::Status UpdateSink::Apply(grpc::ByteBuffer* update) {
  const absl::Time now = clock_->Now();
  if (grpc::Status status = message_.Parse(update); !status.ok()) return status;
  const StateUpdate& state_update = view_.Read(message_.message());
  const ApplyResult result = index_->ApplyUpdate(state_update, now);
  if (observer_ != nullptr) observer_->OnUpdate(state_update.model_id, result);
  view_.Trim(max_recycled_bytes_);
  message_.Trim();
  return grpc::Status::OK;
}

void ReportStream::OnProgress(bool ok) {
  if (!ok) {  // half-closed, or broken: then nobody reads the status
    End(grpc::Status::OK);
  } else if (const grpc::Status status = sink_->Apply(&update_); !status.ok()) {
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

void LookupStream::OnProgress(bool ok) {
  if (!ok) {  // half-closed, or broken: then nobody reads the status
    End(grpc::Status::OK);
    return;
  }
  grpc::ByteBuffer answer;
  if (const grpc::Status status = lookup_->Serve(context_, &message_, &answer); !status.ok()) {
    End(status);
  } else {
    stream_.Write(answer, BeginWrite(&context_, answer.Length()));
  }
}

void LookupStream::OnWritten(bool ok) {
  if (ok) {
    stream_.Read(&message_, Begin());
  } else {
    End(grpc::Status::OK);
  }
}

void ObserverStream::Post() {
  context_.AsyncNotifyWhenDone(tag());
  request_call_(&context_, &request_, &writer_, queue_, Begin());
}

}  // namespace icache
