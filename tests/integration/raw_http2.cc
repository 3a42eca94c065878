#include "tests/integration/raw_http2.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

namespace icache::testing {
namespace {

constexpr size_t kFrameHeaderBytes = 9;

// `number` in big-endian order.
std::string BigEndian(uint64_t number, int bytes) {
  std::string result;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) result += static_cast<char>(number >> shift);
  return result;
}

uint64_t ReadBigEndian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<uint8_t>(byte);
  return number;
}

// A header field as HPACK writes one without any table: a literal of new name, each string with its length before it.
std::string HeaderField(const std::string& name, const std::string& value) {
  return BigEndian(0, 1) + BigEndian(name.size(), 1) + name + BigEndian(value.size(), 1) + value;
}

}  // namespace

RawConnection::RawConnection(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const timeval patience = {.tv_sec = 1, .tv_usec = 0};
  setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
}

RawConnection::~RawConnection() {
  if (fd_ >= 0) close(fd_);
}

bool RawConnection::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(sent);
  }
  return true;
}

std::string RawConnection::Receive(std::chrono::milliseconds patience) {
  pollfd readable = {.fd = fd_, .events = POLLIN, .revents = 0};
  if (poll(&readable, 1, static_cast<int>(patience.count())) != 1) return "";
  std::string bytes(64 << 10, '\0');
  const ssize_t size = recv(fd_, bytes.data(), bytes.size(), 0);
  bytes.resize(size > 0 ? size : 0);
  return bytes;
}

std::string RawConnection::ReceiveAll() {
  std::string all;
  for (std::string more = Receive(); !more.empty(); more = Receive()) all += more;
  return all;
}

void RawConnection::CloseSending() { shutdown(fd_, SHUT_WR); }

void RawConnection::Reset() {
  const linger at_once = {.l_onoff = 1, .l_linger = 0};
  setsockopt(fd_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close(std::exchange(fd_, -1));
}

std::string EncodeFrame(const Frame& frame) {
  return BigEndian(frame.payload.size(), 3) + BigEndian(static_cast<uint8_t>(frame.type), 1) +
         BigEndian(frame.flags, 1) + BigEndian(frame.stream, 4) + frame.payload;
}

std::string EncodeCall(uint32_t stream, const std::string& method) {
  return EncodeFrame({.type = FrameType::kHeaders,
                      .flags = kEndHeaders,
                      .stream = stream,
                      .payload = HeaderField(":method", "POST") + HeaderField(":scheme", "http") +
                                 HeaderField(":path", method) + HeaderField(":authority", "localhost") +
                                 HeaderField("te", "trailers") + HeaderField("content-type", "application/grpc")});
}

std::string EncodeMessage(uint32_t stream, const std::string& message, bool end_stream) {
  return EncodeFrame({.type = FrameType::kData,
                      .flags = end_stream ? kEndStream : uint8_t{0},
                      .stream = stream,
                      .payload = BigEndian(0, 1) + BigEndian(message.size(), 4) + message});
}

RawHttp2::RawHttp2(int port) : connection_(port) {
  connection_.Send(kHttp2Preface);
  Send({.type = FrameType::kSettings});
}

std::optional<Frame> RawHttp2::Receive(std::chrono::milliseconds patience) {
  const auto size = [this] {
    if (received_.size() < kFrameHeaderBytes) return kFrameHeaderBytes;
    return kFrameHeaderBytes + ReadBigEndian(std::string_view(received_).substr(0, 3));
  };
  while (received_.size() < size()) {
    const std::string more = connection_.Receive(patience);
    if (more.empty()) return std::nullopt;
    received_ += more;
  }
  Frame frame{.type = static_cast<FrameType>(received_[3]),
              .flags = static_cast<uint8_t>(received_[4]),
              .stream = static_cast<uint32_t>(ReadBigEndian(std::string_view(received_).substr(5, 4))),
              .payload = received_.substr(kFrameHeaderBytes, size() - kFrameHeaderBytes)};
  received_.erase(0, size());
  return frame;
}

std::optional<Frame> RawHttp2::Await(FrameType type, uint8_t flags) {
  for (std::optional<Frame> frame = Receive(); frame.has_value(); frame = Receive()) {
    if (frame->type == type && frame->flags == flags) return frame;
    if (frame->type == FrameType::kGoAway) break;
  }
  return std::nullopt;
}

}  // namespace icache::testing
