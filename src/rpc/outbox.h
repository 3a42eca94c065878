// Outbox: the messages of one queue that are on their way to clients.
//
// A message leaves only when its client lets it, so clients that do not read make messages pile up. They may hold a
// bounded number of bytes; whoever adds more makes the oldest ones go, whose calls are cancelled. Well-behaved clients
// never come near that: their messages are on their way for microseconds.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <list>

namespace icache {

class Outbox {
 private:
  struct Message {
    grpc::ServerContext* context;
    size_t bytes;
    bool cancelled;
  };

 public:
  using Place = std::list<Message>::iterator;

  // What gRPC holds for a call beside the message, at least.
  static constexpr size_t kCallBytes = 16 << 10;

  explicit Outbox(size_t max_bytes) : max_bytes_(max_bytes) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // A message of `bytes` of the call of `context`, which is not owned, sets off. The newest one may go beyond the
  // bound by itself.
  Place Add(grpc::ServerContext* context, size_t bytes) {
    messages_.push_back({.context = context, .bytes = bytes + kCallBytes, .cancelled = false});
    bytes_ += messages_.back().bytes;
    while (bytes_ > max_bytes_ && messages_.size() > 1) {
      Message& oldest = messages_.front();
      oldest.context->TryCancel();
      oldest.cancelled = true;
      bytes_ -= oldest.bytes;
      cancelled_.splice(cancelled_.end(), messages_, messages_.begin());
    }
    return std::prev(messages_.end());
  }

  // It has arrived, or never will.
  void Remove(Place place) {
    if (place->cancelled) {
      cancelled_.erase(place);
    } else {
      bytes_ -= place->bytes;
      messages_.erase(place);
    }
  }

 private:
  const size_t max_bytes_;
  size_t bytes_ = 0;              // of messages_
  std::list<Message> messages_;   // oldest first
  std::list<Message> cancelled_;  // gRPC has yet to say so
};

}  // namespace icache
