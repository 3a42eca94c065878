#include "bridge/queue_waker.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>

namespace icache {
namespace {

int tag_memory = 0;
void* const kTag = &tag_memory;

// How often the tag comes out of a queue that is shut down.
int Drain(grpc::CompletionQueue* queue) {
  int tags = 0;
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) tags += tag == kTag;
  return tags;
}

TEST(QueueWakerTest, WakesOnceUntilItIsWoken) {
  QueueWaker waker(kTag);
  grpc::CompletionQueue queue;
  waker.Attach(&queue);
  for (int turn = 0; turn < 3; ++turn) {
    waker.Wake();
    waker.Wake();
    void* tag = nullptr;
    bool ok = false;
    ASSERT_TRUE(queue.Next(&tag, &ok));
    EXPECT_EQ(tag, kTag);
    waker.OnWoken();
  }
  waker.Detach();
  queue.Shutdown();
  EXPECT_EQ(Drain(&queue), 0);
}

TEST(QueueWakerTest, WithoutAQueueNothingHappens) {
  QueueWaker waker(kTag);
  waker.Wake();
  grpc::CompletionQueue queue;
  waker.Attach(&queue);
  waker.Detach();
  waker.Wake();
  queue.Shutdown();
  EXPECT_EQ(Drain(&queue), 0);
}

// gRPC's thread of timers may be about to put the tag into the queue.
TEST(QueueWakerTest, AQueueMayGoWhileItsThreadIsBeingWoken) {
  QueueWaker waker(kTag);
  for (int turn = 0; turn < 2000; ++turn) {
    auto queue = std::make_unique<grpc::CompletionQueue>();
    waker.Attach(queue.get());
    waker.Wake();
    waker.Detach();
    queue->Shutdown();
    ASSERT_EQ(Drain(queue.get()), 1);
  }
}

}  // namespace
}  // namespace icache
