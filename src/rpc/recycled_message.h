// RecycledMessage: one protobuf message that is parsed into again and again, so that its strings and arrays keep their
// capacity and a call allocates nothing, without letting one huge request pin memory for ever.
//
// What a message holds is exactly measured, which costs a walk over its elements, only when enough bytes have been
// parsed since the last time. Between two measurements it can outgrow the limit by what a quarter of the limit's worth
// of wire bytes unpacks to, at most some seven times the limit.
//
// Not thread-safe.
#pragma once

#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/status.h>

#include <cstddef>

namespace icache {

template <typename Message>
class RecycledMessage {
 public:
  explicit RecycledMessage(size_t max_bytes) : max_bytes_(max_bytes) {}

  // Replaces the message by what `bytes` hold, and empties `bytes`. INTERNAL when they are no such message, which is
  // then in no particular state.
  grpc::Status Parse(grpc::ByteBuffer* bytes) {
    unmeasured_bytes_ += bytes->Length();
    if (grpc::SerializationTraits<Message>::Deserialize(bytes, &message_).ok()) return grpc::Status::OK;
    Trim();
    return {grpc::StatusCode::INTERNAL, "the request cannot be parsed"};
  }

  // Valid until the next Parse() or Trim().
  const Message& message() const { return message_; }

  // To be called once the message has been used. Frees it when it has grown beyond the limit.
  void Trim() {
    if (unmeasured_bytes_ < max_bytes_ / 4) return;
    unmeasured_bytes_ = 0;
    if (message_.SpaceUsedLong() > max_bytes_) message_ = Message();
  }

 private:
  const size_t max_bytes_;
  size_t unmeasured_bytes_ = 0;  // parsed since the message was last measured
  Message message_;
};

// `message` as bytes to be sent.
template <typename Message>
grpc::ByteBuffer ToByteBuffer(const Message& message) {
  grpc::ByteBuffer bytes;
  bool own_buffer = false;
  // Fails only for messages beyond 2 GiB, which are then sent empty.
  (void)grpc::SerializationTraits<Message>::Serialize(message, &bytes, &own_buffer);
  return bytes;
}

}  // namespace icache
