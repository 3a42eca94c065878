#include "icache/base/published.h"

#include <gtest/gtest.h>

#include <memory>
#include <optional>

namespace icache {
namespace {

TEST(PublishedTest, HoldsNothingBeforeTheFirstPublish) {
  const Published<int> published;
  EXPECT_EQ(published.Current(), nullptr);
  EXPECT_EQ(Published<int>::Reader().Current(published), nullptr);
}

TEST(PublishedTest, WhatWasTakenOutlivesThePublishThatReplacesIt) {
  Published<int> published;
  published.Publish(std::make_shared<const int>(1));
  const std::shared_ptr<const int> taken = published.Current();
  published.Publish(std::make_shared<const int>(2));
  EXPECT_EQ(*taken, 1);
  EXPECT_EQ(*published.Current(), 2);
}

TEST(PublishedTest, AReaderSeesEveryPublish) {
  Published<int> published;
  Published<int>::Reader reader;
  for (int value = 0; value < 100; ++value) {  // the allocator gives old addresses again
    published.Publish(std::make_shared<const int>(value));
    EXPECT_EQ(*reader.Current(published), value);
    EXPECT_EQ(*reader.Current(published), value);
  }
  published.Publish(nullptr);
  EXPECT_EQ(reader.Current(published), nullptr);
}

TEST(PublishedTest, AReaderSharesTheValueOfThePublisher) {
  Published<int> published;
  published.Publish(std::make_shared<const int>(1));
  Published<int>::Reader reader;
  EXPECT_EQ(reader.Current(published), published.Current().get());
}

TEST(PublishedTest, AReaderLetsGoOfTheValueBefore) {
  Published<int> published;
  Published<int>::Reader reader;
  const auto first = std::make_shared<const int>(1);
  published.Publish(first);
  reader.Current(published);
  published.Publish(std::make_shared<const int>(2));
  reader.Current(published);
  EXPECT_EQ(first.use_count(), 1);
}

TEST(PublishedTest, AReaderTellsPublishersApart) {
  Published<int>::Reader reader;
  for (int value = 0; value < 100; ++value) {
    std::optional<Published<int>> published(std::in_place);  // at the same address each time
    published->Publish(std::make_shared<const int>(value));
    EXPECT_EQ(*reader.Current(*published), value);
  }
}

}  // namespace
}  // namespace icache
