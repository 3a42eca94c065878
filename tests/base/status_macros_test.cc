#include "icache/base/status_macros.h"

#include <gmock/gmock.h>

#include <memory>
#include <utility>

#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::icache::testing::IsOk;
using ::icache::testing::StatusIs;

// Counts how often its argument is evaluated.
struct Source {
  absl::Status status;
  int calls = 0;

  absl::Status Next() {
    ++calls;
    return status;
  }
  absl::StatusOr<std::unique_ptr<int>> NextValue(int value) {
    ++calls;
    if (!status.ok()) return status;
    return std::make_unique<int>(value);
  }
};

absl::Status Forward(Source* source, bool* reached) {
  RETURN_IF_ERROR(source->Next());
  *reached = true;
  return absl::OkStatus();
}

absl::StatusOr<int> Sum(Source* source) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> a, source->NextValue(1));
  std::unique_ptr<int> b;
  ASSIGN_OR_RETURN(b, source->NextValue(2));
  return *a + *b;
}

TEST(ReturnIfErrorTest, GoesOnWhenOk) {
  Source source;
  bool reached = false;
  EXPECT_THAT(Forward(&source, &reached), IsOk());
  EXPECT_TRUE(reached);
}

TEST(ReturnIfErrorTest, ReturnsTheErrorAtOnce) {
  Source source{absl::NotFoundError("gone")};
  bool reached = false;
  EXPECT_THAT(Forward(&source, &reached), StatusIs(absl::StatusCode::kNotFound, "gone"));
  EXPECT_FALSE(reached);
}

TEST(ReturnIfErrorTest, EvaluatesItsArgumentOnce) {
  Source source{absl::NotFoundError("gone")};
  bool reached = false;
  Forward(&source, &reached).IgnoreError();
  EXPECT_EQ(source.calls, 1);
}

TEST(AssignOrReturnTest, MovesTheValueIntoNewAndExistingVariables) {
  Source source;
  const absl::StatusOr<int> sum = Sum(&source);
  ASSERT_THAT(sum, IsOk());
  EXPECT_EQ(*sum, 3);
}

TEST(AssignOrReturnTest, ReturnsTheErrorAtOnce) {
  Source source{absl::UnavailableError("later")};
  EXPECT_THAT(Sum(&source), StatusIs(absl::StatusCode::kUnavailable, "later"));
  EXPECT_EQ(source.calls, 1);
}

}  // namespace
}  // namespace icache
