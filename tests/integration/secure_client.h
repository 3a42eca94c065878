// SecureClient: a client of a daemon that serves over TLS or asks for tokens, on a connection of its own.
#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <string>

#include "inferencecache/v1alpha1/inferencecache.grpc.pb.h"
#include "tests/testing/certificates.h"

namespace icache::testing {

namespace wire = ::inferencecache::v1alpha1;

// What a client shows of itself.
struct ClientIdentity {
  std::string ca = "";           // file; "" = connects without TLS
  std::string certificate = "";  // files; "" = none
  std::string key = "";
  std::string token = "";  // "" = none
};

class SecureClient {
 public:
  SecureClient(const std::string& address, const ClientIdentity& identity) : token_(identity.token) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetSslTargetNameOverride("localhost");
    channel_ = grpc::CreateCustomChannel(address, CredentialsOf(identity), arguments);
    stub_ = wire::InferenceCache::NewStub(channel_);
  }

  wire::InferenceCache::Stub* stub() { return stub_.get(); }
  const std::shared_ptr<grpc::Channel>& channel() { return channel_; }

  // Gives `context` the token and a deadline.
  void Prepare(grpc::ClientContext* context) const {
    if (!token_.empty()) context->AddMetadata("authorization", "Bearer " + token_);
    context->set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
  }

  grpc::Status Lookup(const std::string& tenant = "tenant") {
    wire::LookupRouteRequest request;
    request.set_tenant_id(tenant);
    request.set_model_id("model");
    request.set_hash_scheme("scheme");
    return Call(&wire::InferenceCache::Stub::LookupRoute, request, wire::LookupRouteResponse());
  }

  template <typename Method, typename Request, typename Response>
  grpc::Status Call(Method method, const Request& request, Response response) {
    grpc::ClientContext context;
    Prepare(&context);
    return (stub_.get()->*method)(&context, request, &response);
  }

 private:
  static std::shared_ptr<grpc::ChannelCredentials> CredentialsOf(const ClientIdentity& identity) {
    if (identity.ca.empty()) return grpc::InsecureChannelCredentials();
    grpc::SslCredentialsOptions options;
    options.pem_root_certs = TextOfFile(identity.ca);
    if (!identity.certificate.empty()) {
      options.pem_cert_chain = TextOfFile(identity.certificate);
      options.pem_private_key = TextOfFile(identity.key);
    }
    return grpc::SslCredentials(options);
  }

  const std::string token_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<wire::InferenceCache::Stub> stub_;
};

}  // namespace icache::testing
