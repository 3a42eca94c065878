// The unary methods of the service, one object per method and queue.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "icache/base/clock.h"
#include "icache/index/ingest_observer.h"
#include "icache/index/prefix_index.h"
#include "icache/routing/router.h"
#include "icache/rpc/conversions.h"
#include "icache/rpc/rpc_server.h"
#include "inferencecache/ops/v1alpha1/ops.pb.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"
#include "rpc/unary_call.h"

namespace icache {

class LookupRouteMethod final : public MessageMethod<inferencecache::v1alpha1::LookupRouteRequest,
                                                     inferencecache::v1alpha1::LookupRouteResponse> {
 public:
  LookupRouteMethod(Door* door, const RpcBackend& backend, size_t max_recycled_bytes)
      : MessageMethod(door, backend.clock, max_recycled_bytes), router_(backend.router) {}

  bool CanShed() const override { return true; }
  // NO_HINT to whoever may look up at all.
  grpc::Status Shed(const grpc::ServerContext& context, grpc::ByteBuffer* request, grpc::ByteBuffer* response) override;

 private:
  std::string_view name() const override { return "LookupRoute"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::LookupRouteRequest& request,
              inferencecache::v1alpha1::LookupRouteResponse* response) override;

  const Router* const router_;
  LookupScratch scratch_;
  LookupRequestView view_;
  LookupAnswer answer_;
};

class GetCacheStateMethod final : public MessageMethod<inferencecache::v1alpha1::GetCacheStateRequest,
                                                       inferencecache::v1alpha1::GetCacheStateResponse> {
 public:
  GetCacheStateMethod(Door* door, const RpcBackend& backend, size_t max_recycled_bytes)
      : MessageMethod(door, backend.clock, max_recycled_bytes), index_(backend.index) {}

 private:
  std::string_view name() const override { return "GetCacheState"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::GetCacheStateRequest& request,
              inferencecache::v1alpha1::GetCacheStateResponse* response) override;

  const PrefixIndex* const index_;
};

class PublishEventMethod final
    : public MessageMethod<inferencecache::v1alpha1::CacheEvent, inferencecache::v1alpha1::Ack> {
 public:
  PublishEventMethod(Door* door, const RpcBackend& backend, size_t max_recycled_bytes)
      : MessageMethod(door, backend.clock, max_recycled_bytes),
        index_(backend.index),
        observer_(backend.ingest_observer) {}

 private:
  std::string_view name() const override { return "PublishEvent"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::CacheEvent& request, inferencecache::v1alpha1::Ack* response) override;

  PrefixIndex* const index_;
  IngestObserver* const observer_;
};

class RenderTemplateMethod final : public MessageMethod<inferencecache::v1alpha1::RenderTemplateRequest,
                                                        inferencecache::v1alpha1::RenderTemplateResponse> {
 public:
  using MessageMethod::MessageMethod;

 private:
  std::string_view name() const override { return "RenderTemplate"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::RenderTemplateRequest& request,
              inferencecache::v1alpha1::RenderTemplateResponse* response) override;
};

class LookupPDRouteMethod final : public MessageMethod<inferencecache::v1alpha1::LookupPDRouteRequest,
                                                       inferencecache::v1alpha1::LookupPDRouteResponse> {
 public:
  using MessageMethod::MessageMethod;

 private:
  std::string_view name() const override { return "LookupPDRoute"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::LookupPDRouteRequest& request,
              inferencecache::v1alpha1::LookupPDRouteResponse* response) override;
};

class ExplainRouteMethod final : public MessageMethod<inferencecache::v1alpha1::LookupRouteRequest,
                                                      inferencecache::ops::v1alpha1::ExplainRouteResponse> {
 public:
  // `version` is the daemon's.
  ExplainRouteMethod(Door* door, const RpcBackend& backend, std::string version, size_t max_recycled_bytes)
      : MessageMethod(door, backend.clock, max_recycled_bytes), router_(backend.router), version_(std::move(version)) {}

 private:
  std::string_view name() const override { return "ExplainRoute"; }
  void Handle(const grpc::ServerContext& context, absl::Time received_at,
              const inferencecache::v1alpha1::LookupRouteRequest& request,
              inferencecache::ops::v1alpha1::ExplainRouteResponse* response) override;

  const Router* const router_;
  const std::string version_;
  LookupScratch scratch_;
  LookupRequestView view_;
};

}  // namespace icache
