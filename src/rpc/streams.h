// The streaming methods of the service, one object per call.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>

#include "icache/base/clock.h"
#include "icache/index/ingest_observer.h"
#include "icache/index/prefix_index.h"
#include "icache/rpc/conversions.h"
#include "icache/rpc/rpc_server.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"
#include "rpc/recycled_message.h"
#include "rpc/rpc_service.h"
#include "rpc/stream_pool.h"

namespace icache {

// Applies the updates of one queue's report streams to the index, one at a time, through one message.
class UpdateSink {
 public:
  UpdateSink(const RpcBackend& backend, size_t max_recycled_bytes);

  // Empties `update`. INTERNAL when it cannot be parsed.
  grpc::Status Apply(grpc::ByteBuffer* update);

 private:
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
  void OnOpen() override { reader_.Read(&update_, Begin()); }
  void OnProgress(bool ok) override;
  void Finish(const grpc::Status& status) override;

  RpcService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  UpdateSink* const sink_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReader<grpc::ByteBuffer, grpc::ByteBuffer> reader_;
  grpc::ByteBuffer update_;
};

// StreamCacheEvents and StreamMetrics: stays open and silent until the client cancels it or the pool drains.
class SilentStream final : public StreamCall {
 public:
  // Asks gRPC for the next call of one method.
  using RequestFunction = void (RpcService::*)(grpc::ServerContext*, grpc::ByteBuffer*,
                                               grpc::ServerAsyncWriter<grpc::ByteBuffer>*, grpc::CompletionQueue*,
                                               grpc::ServerCompletionQueue*, void*);

  // Nothing is owned.
  SilentStream(StreamPool* pool, RpcService* service, RequestFunction request_function,
               grpc::ServerCompletionQueue* queue)
      : StreamCall(pool), service_(service), request_function_(request_function), queue_(queue), writer_(&context_) {}

  void Post() override;

 private:
  void OnOpen() override { Begin(); }  // the notification that Post() asked for; it comes for every call that is taken
  void OnProgress(bool /*ok*/) override { SetOver(); }  // that notification: the client is gone
  void Finish(const grpc::Status& status) override { writer_.Finish(status, Begin()); }

  RpcService* const service_;
  const RequestFunction request_function_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ServerAsyncWriter<grpc::ByteBuffer> writer_;
  grpc::ByteBuffer request_;
};

}  // namespace icache
