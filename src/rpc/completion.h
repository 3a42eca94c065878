// Completion: what every tag on a completion queue points to.
#pragma once

namespace icache {

class Completion {
 public:
  virtual ~Completion() = default;
  // The operation that carried this tag is over. `ok` as gRPC defines it per operation. Runs on the queue's thread.
  virtual void OnCompletion(bool ok) = 0;

  // Whether it brings a lookup, when `ok`. Such a one may be let wait, which AwaitTurn() says, before
  // OnCompletion(true) or, instead of that, Shed() is called.
  virtual bool BringsLookup() const { return false; }
  virtual void AwaitTurn() {}
  // Answers that there is no hint, without looking.
  virtual void Shed() {}

  // What is to be handed to gRPC as the tag.
  void* tag() { return this; }
};

}  // namespace icache
