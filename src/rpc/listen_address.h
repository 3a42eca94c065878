// Addresses to listen on, "HOST:PORT" or "unix:/path": what gRPC leaves to us.
//
// It replaces the file of a Unix socket even while another server listens on it, and tells the reason of a failure to
// its log only.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace icache {

// To be called before gRPC binds `address`. Removes a Unix socket that no one listens on any more; Unavailable when
// something else is in the way of one.
absl::Status PrepareToListen(const std::string& address);

// To be called after gRPC has failed to bind `address`: Unavailable, with the reason as far as trying again tells it.
absl::Status WhyNotListening(const std::string& address);

// `address` with the port that was taken for it.
std::string BoundAddress(const std::string& address, int port);

}  // namespace icache
