// Sockets and HTTP/2 frames by hand, for clients that no library would let misbehave so.
//
// A frame is 9 bytes of header (24 bits of length, type, flags, stream) and its payload. Source: RFC 9113.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace icache::testing {

// One TCP connection to a port of this host. Thread-compatible.
class RawConnection {
 public:
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // False when the peer takes no more: it has hung up, or does not read either.
  bool Send(std::string_view bytes);
  // What has come, at least one byte; "" when the peer hangs up or `patience` ends first.
  std::string Receive(std::chrono::milliseconds patience = std::chrono::seconds(60));
  // Everything until the peer hangs up.
  std::string ReceiveAll();
  // Nothing more will be sent.
  void CloseSending();
  // Closes with a reset instead of a goodbye.
  void Reset();

 private:
  int fd_;
};

enum class FrameType : uint8_t {
  kData = 0,
  kHeaders = 1,
  kResetStream = 3,
  kSettings = 4,
  kPushPromise = 5,
  kPing = 6,
  kGoAway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};
inline constexpr uint8_t kEndStream = 1;   // DATA, HEADERS
inline constexpr uint8_t kAck = 1;         // SETTINGS, PING
inline constexpr uint8_t kEndHeaders = 4;  // HEADERS, CONTINUATION

inline constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

struct Frame {
  FrameType type = FrameType::kData;
  uint8_t flags = 0;
  uint32_t stream = 0;
  std::string payload = "";
};

std::string EncodeFrame(const Frame& frame);
// HEADERS that open a gRPC call of `method`, a full name of less than 127 bytes.
std::string EncodeCall(uint32_t stream, const std::string& method);
// DATA with one gRPC message.
std::string EncodeMessage(uint32_t stream, const std::string& message, bool end_stream);

// An HTTP/2 connection past its preface. Acknowledges nothing by itself.
class RawHttp2 {
 public:
  explicit RawHttp2(int port);

  RawConnection& connection() { return connection_; }
  bool Send(const Frame& frame) { return connection_.Send(EncodeFrame(frame)); }
  // The next frame; nullopt when the peer hangs up or `patience` ends first.
  std::optional<Frame> Receive(std::chrono::milliseconds patience = std::chrono::seconds(60));
  // Reads on to a frame of the type, dropping others. nullopt also when the peer goes away (GOAWAY) instead.
  std::optional<Frame> Await(FrameType type, uint8_t flags);

 private:
  RawConnection connection_;
  std::string received_;  // the beginning of the next frame
};

}  // namespace icache::testing
