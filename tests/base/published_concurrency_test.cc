#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "icache/base/published.h"

namespace icache {
namespace {

constexpr int kLast = 2000;

// Both are equal in every value that is published.
struct Pair {
  int first;
  int second;
};

TEST(PublishedConcurrencyTest, ReadersSeeWholeValuesInTheirOrder) {
  Published<Pair> published;
  published.Publish(std::make_shared<const Pair>(Pair{0, 0}));
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&published] {
      Published<Pair>::Reader reader;
      for (int last = 0; last < kLast;) {
        const Pair& pair = *reader.Current(published);
        EXPECT_EQ(pair.first, pair.second);
        EXPECT_GE(pair.first, last);
        last = pair.first;
      }
    });
  }
  for (int number = 1; number <= kLast; ++number) published.Publish(std::make_shared<const Pair>(Pair{number, number}));
  for (std::thread& reader : readers) reader.join();
}

// A reader that is told by other means that a value has been published finds that one or a later one.
TEST(PublishedConcurrencyTest, WhoHearsOfAPublishSeesIt) {
  Published<int> published;
  published.Publish(std::make_shared<const int>(0));
  std::atomic<int> told = 0;
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      Published<int>::Reader reader;
      for (int heard = 0; heard < kLast;) {
        heard = told.load();
        EXPECT_GE(*reader.Current(published), heard);
      }
    });
  }
  for (int number = 1; number <= kLast; ++number) {
    published.Publish(std::make_shared<const int>(number));
    told.store(number);
  }
  for (std::thread& reader : readers) reader.join();
}

TEST(PublishedConcurrencyTest, TheLastOfManyPublishersWins) {
  Published<int> published;
  std::vector<std::thread> publishers;
  for (int i = 0; i < 4; ++i) {
    publishers.emplace_back([&published] {
      for (int number = 0; number < kLast; ++number) published.Publish(std::make_shared<const int>(number));
    });
  }
  for (std::thread& publisher : publishers) publisher.join();
  EXPECT_EQ(Published<int>::Reader().Current(published), published.Current().get());
}

}  // namespace
}  // namespace icache
