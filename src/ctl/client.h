// Client: the calls that icachectl makes, one at a time. The only part of it that knows gRPC.
//
// Calls block until the answer is there or the settings' timeout has passed. Their errors are for the operator, and say
// what to do: InvalidArgument when the request holds text that is no UTF-8, which is not sent, and Unavailable for all
// that the daemon or the way to it makes fail.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ctl/settings.h"
#include "inferencecache/ops/v1alpha1/ops.pb.h"
#include "inferencecache/v1alpha1/inferencecache.pb.h"

namespace icache {

namespace ops = ::inferencecache::ops::v1alpha1;
namespace wire = ::inferencecache::v1alpha1;

// Thread-safe.
class Client {
 public:
  // Connects at the first call. Errors: InvalidArgument for a file of the settings that cannot be used.
  static absl::StatusOr<std::unique_ptr<Client>> Create(const Settings& settings);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  absl::StatusOr<wire::LookupRouteResponse> Lookup(const wire::LookupRouteRequest& request) const;
  absl::StatusOr<ops::ExplainRouteResponse> Explain(const wire::LookupRouteRequest& request) const;
  absl::StatusOr<wire::GetCacheStateResponse> CacheState(const std::string& tenant, const std::string& model) const;
  absl::StatusOr<wire::Ack> Publish(const wire::CacheEvent& event) const;
  // On one stream; the timeout holds for all of it.
  absl::StatusOr<wire::Ack> Report(absl::Span<const wire::CacheStateUpdate> updates) const;
  // Whether the daemon's health service says SERVING.
  absl::StatusOr<bool> IsServing() const;

  // Calls `on_open` once the daemon listens, hands events to `on_event` as they come, until `stopping` (looked at a few
  // times a second) says so or the daemon ends the stream. OK when it was stopped.
  absl::Status Watch(const wire::StreamEventsRequest& request, const std::function<void()>& on_open,
                     const std::function<void(const wire::CacheEvent&)>& on_event,
                     const std::function<bool()>& stopping) const;

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace icache
