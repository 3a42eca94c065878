// What tests of the whole daemon share: policy files, HTTP, and waiting for what must happen.
#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <httplib.h>

#include <cstdio>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache::testing {

namespace wire = ::inferencecache::v1alpha1;

// Whether `condition` comes true before a test's patience ends.
inline bool Eventually(const std::function<bool()>& condition) {
  const absl::Time give_up_at = absl::Now() + absl::Seconds(60);
  while (!condition()) {
    if (absl::Now() > give_up_at) return false;
    std::this_thread::yield();
  }
  return true;
}

struct HttpAnswer {
  int status = 0;  // 0: none came
  std::string body;
};

inline HttpAnswer HttpGet(int port, const std::string& path) {
  httplib::Client client("127.0.0.1", port);
  const httplib::Result result = client.Get(path.c_str());
  return result ? HttpAnswer{result->status, result->body} : HttpAnswer{};
}

inline std::unique_ptr<wire::InferenceCache::Stub> ConnectTo(const std::string& address) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return wire::InferenceCache::NewStub(
      grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
}

// The reason code of a lookup for "tenant", or "ERROR".
inline std::string Reason(wire::InferenceCache::Stub* stub) {
  grpc::ClientContext context;
  wire::LookupRouteRequest request;
  request.set_tenant_id("tenant");
  request.set_model_id("model");
  request.set_hash_scheme("scheme");
  request.set_prefix_hash("hash");
  wire::LookupRouteResponse response;
  return stub->LookupRoute(&context, request, &response).ok() ? response.reason_code() : "ERROR";
}

// A file of its own that is gone with the object.
class TempFile {
 public:
  explicit TempFile(const std::string& name) : path_(::testing::TempDir() + name + "-" + std::to_string(getpid())) {}
  ~TempFile() { std::remove(path_.c_str()); }

  const std::string& path() const { return path_; }
  // Replaces the file as editors and Kubernetes do, by a rename.
  void Write(const std::string& text) const {
    const std::string draft = path_ + ".draft";
    std::ofstream(draft) << text;
    std::rename(draft.c_str(), path_.c_str());
  }

 private:
  const std::string path_;
};

// A policy for "tenant" that answers every lookup without a chain with POLICY_REQUIRES_CHAIN.
inline constexpr char kRequireChainPolicy[] = R"(
apiVersion: inferencecache.io/v1alpha1
kind: CachePolicy
metadata: {name: p, namespace: tenant}
spec: {strategy: {requireChain: true}}
)";
inline constexpr char kBadPolicy[] = "kind: Nonsense\n";

}  // namespace icache::testing
