// ConnectionObserver: is told of connections, and requests on them, that come to nothing before a handler sees them.
#pragma once

#include <string_view>

namespace icache {

// Why a server has ended a connection by itself.
enum class Cut {
  kSlow,  // it has not asked for anything, or not taken its answer, in time
  kRoom,  // others need the room, and it was the oldest that had not asked, or the oldest of all
};

// Thread-safe.
class ConnectionObserver {
 public:
  virtual ~ConnectionObserver() = default;

  // One waits and cannot be taken for want of descriptors or memory; `error` is an errno. Told again at each try.
  virtual void OnAcceptFailed(int error) = 0;
  // One has ended before its TLS handshake was done. What is not known is "".
  virtual void OnHandshakeFailed(std::string_view client_address, std::string_view why) = 0;
  virtual void OnCut(Cut why) = 0;
  // A request was refused since it is compressed.
  virtual void OnCompressedRequest() = 0;
};

}  // namespace icache
