// The generated services in the shape that the queues use, every method asynchronous and "raw".
//
// Raw means that gRPC hands over a request's bytes instead of parsing them itself: we then choose the message that they
// are parsed into, see their length, and answer for those that cannot be parsed.
#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>

#include "grpc/health/v1/health.grpc.pb.h"
#include "inferencecache/ops/v1alpha1/ops.grpc.pb.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {

using WireService = inferencecache::v1alpha1::InferenceCache;

using RpcService = WireService::WithRawMethod_RenderTemplate<WireService::WithRawMethod_LookupRoute<
    WireService::WithRawMethod_LookupRouteStream<WireService::WithRawMethod_LookupPDRoute<
        WireService::WithRawMethod_GetCacheState<WireService::WithRawMethod_ReportCacheState<
            WireService::WithRawMethod_PublishEvent<WireService::WithRawMethod_StreamCacheEvents<
                WireService::WithRawMethod_StreamMetrics<WireService::Service>>>>>>>>>;

using WireOps = inferencecache::ops::v1alpha1::Ops;

using OpsService = WireOps::WithRawMethod_ExplainRoute<WireOps::Service>;

using WireHealth = grpc::health::v1::Health;

using HealthService = WireHealth::WithRawMethod_Check<WireHealth::WithRawMethod_Watch<WireHealth::Service>>;

// Asks gRPC for the next call of one method; `tag` comes out of `queue` when there is one.
template <typename Responder>
using RequestCall = std::function<void(grpc::ServerContext* context, grpc::ByteBuffer* request, Responder* responder,
                                       grpc::ServerCompletionQueue* queue, void* tag)>;

// The calls of `method`, one of the generated Request… functions. `service` is not owned.
template <typename Service, typename Owner, typename Responder>
RequestCall<Responder> CallsOf(Service* service,
                               void (Owner::*method)(grpc::ServerContext*, grpc::ByteBuffer*, Responder*,
                                                     grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*)) {
  return [service, method](grpc::ServerContext* context, grpc::ByteBuffer* request, Responder* responder,
                           grpc::ServerCompletionQueue* queue,
                           void* tag) { (service->*method)(context, request, responder, queue, queue, tag); };
}

}  // namespace icache
