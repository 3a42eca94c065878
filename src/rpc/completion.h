// Completion: what every tag on a completion queue points to.
#pragma once

namespace icache {

class Completion {
 public:
  virtual ~Completion() = default;
  // The operation that carried this tag is over. `ok` as gRPC defines it per operation. Runs on the queue's thread.
  virtual void OnCompletion(bool ok) = 0;

  // What is to be handed to gRPC as the tag.
  void* tag() { return this; }
};

}  // namespace icache
