// Connection: a gRPC channel to a daemon and the calls that the load program makes one at a time.
//
// Thread-safe, as the stub is. Calls block until the answer is there or `timeout` has passed.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"

namespace icache {

// How long one call may take, and the daemon to answer at all.
inline constexpr absl::Duration kCallTimeout = absl::Seconds(10);

namespace wire = ::inferencecache::v1alpha1;

// How a daemon is to be sure of us, and we of it. Paths of files, "" = none.
struct Security {
  bool tls = false;
  std::string tls_ca_file = {};    // certificates that sign the daemon's; "" = the system's
  std::string tls_cert_file = {};  // of this client, with its key
  std::string tls_key_file = {};
  std::string tls_server_name = {};  // expected in the daemon's certificate; "" = the address's host
  std::string token_file = {};       // holds a bearer token
};

// Whom a command talks to, and under which names.
struct Target {
  std::string address = "127.0.0.1:9090";  // "HOST:PORT" or "unix:/path"
  Security security = {};
  std::string tenant = "load";
  std::string model = "load-model";
  std::string scheme = "vllm";
};

// A gRPC outcome as a status of the same code, its message led by `what`.
absl::Status StatusFromGrpc(const grpc::Status& status, std::string_view what);

class Connection {
 public:
  // To the target's address. Every connection has a TCP connection of its own.
  // Errors: NotFound for a file that cannot be read; Unavailable when nothing answers there within `timeout`.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const Target& target, absl::Duration timeout);

  // Gives a call that is about to be made by stub() what the daemon knows us by.
  void Prepare(grpc::ClientContext* context) const;

  absl::Status Lookup(const wire::LookupRouteRequest& request, wire::LookupRouteResponse* response) const;

  // Sends the updates in order on one ReportCacheState stream, ends it, and waits for the Ack. The daemon sends that
  // after it has applied them all, so the next lookup sees them.
  // Errors: those of the stream; FailedPrecondition when the daemon does not accept.
  absl::Status Report(absl::Span<const wire::CacheStateUpdate> updates) const;

  absl::StatusOr<wire::GetCacheStateResponse> CacheState(const std::string& tenant, const std::string& model) const;

  wire::InferenceCache::Stub* stub() const { return stub_.get(); }

 private:
  Connection(std::unique_ptr<wire::InferenceCache::Stub> stub, std::string authorization, absl::Duration timeout)
      : stub_(std::move(stub)), authorization_(std::move(authorization)), timeout_(timeout) {}

  const std::unique_ptr<wire::InferenceCache::Stub> stub_;
  const std::string authorization_;  // "" = none
  const absl::Duration timeout_;
};

}  // namespace icache
