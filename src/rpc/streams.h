// The streaming methods of the service, one object per call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "icache/base/clock.h"
#include "icache/index/ingest_observer.h"
#include "icache/index/prefix_index.h"
#include "icache/rpc/conversions.h"
#include "icache/rpc/rpc_server.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"
#include "rpc/door.h"
#include "rpc/recycled_message.h"
#include "rpc/rpc_service.h"
#include "rpc/stream_pool.h"
#include "rpc/unary_call.h"

namespace icache {

// Applies the updates of one queue's report streams to the index, one at a time, through one message.
class UpdateSink {
 public:
  // `door` decides who may report, and for which tenants. Nothing is owned.
  UpdateSink(Door* door, const RpcBackend& backend, size_t max_recycled_bytes);

  // Whether the caller may report at all.
  grpc::Status Admit(const grpc::ServerContext& context) const;
  // Tells of a call that was refused before it was open.
  void ReportRefused(const grpc::ServerContext& context, const grpc::Status& status) const;
  // Empties `update`, which came by the call of `context`. INTERNAL when it cannot be parsed, and what the door says.
  grpc::Status Apply(const grpc::ServerContext& context, grpc::ByteBuffer* update);

 private:
  Door* const door_;
  PrefixIndex* const index_;
  const Clock* const clock_;
  IngestObserver* const observer_;
  const size_t max_recycled_bytes_;
  RecycledMessage<inferencecache::v1alpha1::CacheStateUpdate> message_;
  StateUpdateView view_;
};

// ReportCacheState: reads updates, applies each as it comes, and acknowledges when the client has closed its side.
class ReportStream final : public StreamCall {
 public:
  // Nothing is owned.
  ReportStream(StreamPool* pool, RpcService* service, grpc::ServerCompletionQueue* queue, UpdateSink* sink)
      : StreamCall(pool), service_(service), queue_(queue), sink_(sink), reader_(&context_) {}

  void Post() override { service_->RequestReportCacheState(&context_, &reader_, queue_, queue_, Begin()); }

 private:
  void OnOpen() override;
  void OnRefused(const grpc::Status& status) override { sink_->ReportRefused(context_, status); }
  void OnProgress(bool ok) override;
  void Finish(const grpc::Status& status) override;

  RpcService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  UpdateSink* const sink_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  grpc::ByteBuffer update_;
};

// LookupRouteStream: reads a request, answers it, and only then reads the next, so a client that does not read its
// answers is not served any more.
class LookupStream final : public StreamCall {
 public:
  // Nothing is owned. `door` is the one of `lookup`, which may be shared by the streams of one queue.
  LookupStream(StreamPool* pool, RpcService* service, grpc::ServerCompletionQueue* queue, Door* door,
               UnaryMethod* lookup)
      : StreamCall(pool), service_(service), queue_(queue), door_(door), lookup_(lookup), stream_(&context_) {}

  void Post() override { service_->RequestLookupRouteStream(&context_, &stream_, queue_, queue_, Begin()); }
  bool BringsLookup() const override { return reading_; }
  void Shed() override;

 private:
  void Read();
  void OnOpen() override;
  void OnRefused(const grpc::Status& status) override;
  void OnProgress(bool ok) override;
  void OnWritten(bool ok) override;
  void Finish(const grpc::Status& status) override { stream_.Finish(status, Begin()); }

  RpcService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  Door* const door_;
  UnaryMethod* const lookup_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<grpc::ByteBuffer, grpc::ByteBuffer> stream_;
  grpc::ByteBuffer message_;
  bool reading_ = false;
  bool shed_ = false;  // what is being read
};

// A call that answers one request with messages until the client cancels it or the pool drains.
class ObserverStream : public StreamCall {
 public:
  using Writer = grpc::ServerAsyncWriter<grpc::ByteBuffer>;

  // `pool` and `queue` are not owned.
  ObserverStream(StreamPool* pool, RequestCall<Writer> request_call, grpc::ServerCompletionQueue* queue)
      : StreamCall(pool), request_call_(std::move(request_call)), queue_(queue), writer_(&context_) {}

  void Post() final;

 protected:
  void OnTaken() final { Begin(); }  // the notification that Post() asked for; it comes for every call that is taken
  const grpc::ServerContext& context() const { return context_; }
  // Sends the headers, without waiting for the first message. Counts as a write.
  void WriteHeaders() { writer_.SendInitialMetadata(BeginWrite(&context_, 0)); }
  // `more` = another one follows at once, for which this one may wait.
  void Write(const grpc::ByteBuffer& message, bool more = false) {
    grpc::WriteOptions options;
    if (more) options.set_buffer_hint();
    writer_.Write(message, options, BeginWrite(&context_, message.Length()));
  }

  grpc::ByteBuffer request_;

 private:
  void OnProgress(bool /*ok*/) final { SetOver(); }  // that notification: the client is gone
  void Finish(const grpc::Status& status) final { writer_.Finish(status, Begin()); }

  const RequestCall<Writer> request_call_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  Writer writer_;
};

}  // namespace icache
