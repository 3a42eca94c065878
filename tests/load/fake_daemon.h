// FakeDaemon: an in-process gRPC server that knows just enough of the wire for a client to be tested against it: it
// keeps the packed hashes that replicas report, and ranks replicas by how many leading blocks of a packed chain they
// hold.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "icache/base/block_hash.h"
#include "icache/base/mutex.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache::testing {

class FakeDaemon final : public inferencecache::v1alpha1::InferenceCache::Service {
 public:
  FakeDaemon() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeDaemon() override { server_->Shutdown(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  // (replica, hash) pairs over all tenants and models.
  size_t EntryCount() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    size_t entries = 0;
    for (const auto& [scope, replicas] : scopes_) {
      for (const auto& [replica, held] : replicas) entries += held.size();
    }
    return entries;
  }

  // Blocks stored since the start, by all updates.
  int64_t StoredBlocks() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return stored_blocks_;
  }

  grpc::Status LookupRoute(grpc::ServerContext*, const inferencecache::v1alpha1::LookupRouteRequest* request,
                           inferencecache::v1alpha1::LookupRouteResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    response->set_lookup_latency_us(7);
    response->set_reason_code("NO_HINT");
    for (const auto& [replica, held] : scopes_[{request->tenant_id(), request->model_id()}]) {
      int blocks = 0;
      for (const uint64_t hash : request->block_hashes_u64()) {
        if (!held.contains(hash)) break;
        ++blocks;
      }
      for (int i = 0; i < request->block_hashes_size(); ++i) {
        if (!held.contains(LoadBigEndian64(request->block_hashes(i).data()))) break;
        ++blocks;
      }
      if (blocks == 0) continue;
      response->set_reason_code("PREFIX_MATCH");
      auto* row = response->add_replica_scores();
      row->set_replica_id(replica);
      row->set_matched_tokens(blocks * 16);
      row->set_score(static_cast<float>(blocks) * 16 * 0.5f);
      row->set_estimated_cache_hit_prob(0.5f);
    }
    return grpc::Status::OK;
  }

  // Ends each lookup stream after so many answers, if set, with UNAVAILABLE.
  std::atomic<int> answers_per_stream = std::numeric_limits<int>::max();

  grpc::Status LookupRouteStream(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<inferencecache::v1alpha1::LookupRouteResponse,
                               inferencecache::v1alpha1::LookupRouteRequest>* stream) override {
    inferencecache::v1alpha1::LookupRouteRequest request;
    for (int left = answers_per_stream; left > 0 && stream->Read(&request); --left) {
      inferencecache::v1alpha1::LookupRouteResponse response;
      LookupRoute(context, &request, &response);
      stream->Write(response);
    }
    const bool half_closed = answers_per_stream == std::numeric_limits<int>::max();
    return half_closed ? grpc::Status::OK : grpc::Status(grpc::StatusCode::UNAVAILABLE, "enough");
  }

  grpc::Status ReportCacheState(grpc::ServerContext*,
                                grpc::ServerReader<inferencecache::v1alpha1::CacheStateUpdate>* reader,
                                inferencecache::v1alpha1::Ack* ack) override ABSL_LOCKS_EXCLUDED(mutex_) {
    inferencecache::v1alpha1::CacheStateUpdate update;
    while (reader->Read(&update)) {
      MutexLock lock(&mutex_);
      std::set<uint64_t>& held = scopes_[{update.tenant_id(), update.model_id()}][update.replica_id()];
      if (update.clear()) held.clear();
      for (const uint64_t hash : update.evicted_hashes_u64()) held.erase(hash);
      for (const auto& prefix : update.prefixes()) {
        held.insert(prefix.block_hashes_u64().begin(), prefix.block_hashes_u64().end());
        for (const std::string& hash : prefix.block_hashes()) held.insert(LoadBigEndian64(hash.data()));
        stored_blocks_ += prefix.block_hashes_u64_size() + prefix.block_hashes_size();
      }
    }
    ack->set_accepted(true);
    return grpc::Status::OK;
  }

  grpc::Status GetCacheState(grpc::ServerContext*, const inferencecache::v1alpha1::GetCacheStateRequest* request,
                             inferencecache::v1alpha1::GetCacheStateResponse* response) override
      ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    std::set<uint64_t> distinct;
    for (const auto& [replica, held] : scopes_[{request->tenant_id(), request->model_id()}]) {
      distinct.insert(held.begin(), held.end());
    }
    response->mutable_summary()->set_total_prefixes(static_cast<int64_t>(distinct.size()));
    return grpc::Status::OK;
  }

 private:
  using Replicas = std::map<std::string, std::set<uint64_t>>;

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
  Mutex mutex_;
  std::map<std::pair<std::string, std::string>, Replicas> scopes_ ABSL_GUARDED_BY(mutex_);  // by tenant and model
  int64_t stored_blocks_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace icache::testing
