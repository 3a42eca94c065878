// RpcService: the generated service in the shape that the queues use, every method asynchronous and "raw".
//
// Raw means that gRPC hands over a request's bytes instead of parsing them itself: we then choose the message that they
// are parsed into, see their length, and answer for those that cannot be parsed.
#pragma once

#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {

using WireService = inferencecache::v1alpha1::InferenceCache;

using RpcService = WireService::WithRawMethod_RenderTemplate<
    WireService::WithRawMethod_LookupRoute<WireService::WithRawMethod_LookupPDRoute<
        WireService::WithRawMethod_GetCacheState<WireService::WithRawMethod_ReportCacheState<
            WireService::WithRawMethod_PublishEvent<WireService::WithRawMethod_StreamCacheEvents<
                WireService::WithRawMethod_StreamMetrics<WireService::Service>>>>>>>>;

}  // namespace icache
