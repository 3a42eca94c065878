// The locks under contention. Nothing here is timed: a lock that starves a side makes its test hang until ctest ends
// it.
#include "icache/base/mutex.h"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

namespace icache {
namespace {

template <typename Body>
std::vector<std::thread> StartThreads(int count, Body body) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(body);
  return threads;
}

void JoinAll(std::vector<std::thread> threads) {
  for (std::thread& thread : threads) thread.join();
}

class Counter {
 public:
  void Add() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    ++value_;
  }
  int Value() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return value_;
  }

 private:
  Mutex mutex_;
  int value_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, ExcludesOtherHolders) {
  Counter counter;
  JoinAll(StartThreads(4, [&counter] {
    for (int i = 0; i < 10'000; ++i) counter.Add();
  }));
  EXPECT_EQ(counter.Value(), 40'000);
}

TEST(MutexTest, WorksWithTheStandardLocks) {
  Mutex mutex;
  { std::lock_guard<Mutex> lock(mutex); }
  std::unique_lock<Mutex> lock(mutex);
  EXPECT_TRUE(lock.owns_lock());
}

// Two numbers that are equal whenever no writer is at work.
class Pair {
 public:
  void Write() ABSL_LOCKS_EXCLUDED(mutex_) {
    WriterLock lock(&mutex_);
    ++a_;
    ++b_;
  }
  std::pair<int, int> Read() ABSL_LOCKS_EXCLUDED(mutex_) {
    ReaderLock lock(&mutex_);
    return {a_, b_};
  }

 private:
  SharedMutex mutex_;
  int a_ ABSL_GUARDED_BY(mutex_) = 0;
  int b_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST(SharedMutexTest, ReadersNeverSeeHalfAWrite) {
  Pair pair;
  std::atomic<bool> torn = false;
  std::vector<std::thread> writers = StartThreads(2, [&pair] {
    for (int i = 0; i < 5'000; ++i) pair.Write();
  });
  std::vector<std::thread> readers = StartThreads(2, [&pair, &torn] {
    for (int i = 0; i < 5'000; ++i) {
      const auto [a, b] = pair.Read();
      if (a != b) torn = true;
    }
  });
  JoinAll(std::move(writers));
  JoinAll(std::move(readers));
  EXPECT_FALSE(torn);
  EXPECT_EQ(pair.Read(), std::make_pair(10'000, 10'000));
}

TEST(SharedMutexTest, ReadersHoldItTogether) {
  SharedMutex mutex;
  std::atomic<int> inside = 0;
  JoinAll(StartThreads(3, [&mutex, &inside] {
    ReaderLock lock(&mutex);
    ++inside;
    while (inside < 3) std::this_thread::yield();  // leaves only once all are in
  }));
  EXPECT_EQ(inside, 3);
}

TEST(SharedMutexTest, ReadersDoNotStarveAWriter) {
  SharedMutex mutex;
  std::atomic<bool> written = false;
  std::atomic<int> reading = 0;
  std::vector<std::thread> readers = StartThreads(4, [&] {
    while (!written) {
      ReaderLock lock(&mutex);
      ++reading;
      std::this_thread::yield();
    }
  });
  while (reading < 4) std::this_thread::yield();
  {
    WriterLock lock(&mutex);
    written = true;
  }
  JoinAll(std::move(readers));
  EXPECT_TRUE(written);
}

TEST(SharedMutexTest, WritersDoNotStarveAReader) {
  SharedMutex mutex;
  std::atomic<bool> read = false;
  std::atomic<int> writing = 0;
  std::vector<std::thread> writers = StartThreads(4, [&] {
    while (!read) {
      WriterLock lock(&mutex);
      ++writing;
      std::this_thread::yield();
    }
  });
  while (writing < 4) std::this_thread::yield();
  {
    ReaderLock lock(&mutex);
    read = true;
  }
  JoinAll(std::move(writers));
  EXPECT_TRUE(read);
}

}  // namespace
}  // namespace icache
