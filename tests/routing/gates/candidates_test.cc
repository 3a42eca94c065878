#include "routing/gates/candidates.h"

#include <gmock/gmock.h>

#include <string>

#include "tests/testing/fake_index.h"

namespace icache {
namespace {

using ::icache::testing::FakeIndex;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// `names` followed by enough strangers to make a list that is hashed.
std::vector<std::string> Padded(std::vector<std::string> names) {
  for (size_t i = 0; i <= CandidateFilter::kScanLimit; ++i) names.push_back("stranger-" + std::to_string(i));
  return names;
}

// The list as it is and padded: scanned and hashed lists must behave alike.
class CandidateFilterTest : public ::testing::TestWithParam<bool> {
 protected:
  void Set(std::vector<std::string> names) {
    names_ = GetParam() ? Padded(std::move(names)) : std::move(names);
    views_.assign(names_.begin(), names_.end());
    filter_.Set(views_);
  }
  std::vector<std::string_view> Present(std::vector<std::string> replicas) {
    index_.replicas = std::move(replicas);
    std::vector<std::string_view> present = {"left over"};
    filter_.ListPresent(index_.view(), &present);
    return present;
  }

  CandidateFilter filter_;

 private:
  std::vector<std::string> names_;
  std::vector<std::string_view> views_;
  FakeIndex index_;
};

INSTANTIATE_TEST_SUITE_P(ScannedAndHashed, CandidateFilterTest, ::testing::Bool());

TEST_P(CandidateFilterTest, AdmitsExactlyTheListed) {
  Set({"a", "bb", ""});
  EXPECT_FALSE(filter_.AdmitsAll());
  EXPECT_TRUE(filter_.Admits("a"));
  EXPECT_TRUE(filter_.Admits("bb"));
  EXPECT_TRUE(filter_.Admits(""));
  EXPECT_FALSE(filter_.Admits("b"));
  EXPECT_FALSE(filter_.Admits("A"));
}

TEST_P(CandidateFilterTest, FilterKeepsTheOrder) {
  Set({"a", "c", "d"});
  const std::vector<ReplicaMatch> matches = {
      {.replica_id = "a"}, {.replica_id = "b"}, {.replica_id = "c"}, {.replica_id = "d"}};
  std::vector<ScoredReplica> rows;
  for (const uint32_t match : {3, 1, 2, 0}) rows.emplace_back().match = match;
  filter_.Filter(matches, &rows);
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0].match, 3u);
  EXPECT_EQ(rows[1].match, 2u);
  EXPECT_EQ(rows[2].match, 0u);
}

TEST_P(CandidateFilterTest, ListsThePresentSortedAndOnce) {
  Set({"r2", "r10", "gone", "r2", "r1"});
  EXPECT_THAT(Present({"r1", "r10", "r2", "r3"}), ElementsAre("r1", "r10", "r2"));
}

TEST_P(CandidateFilterTest, ListsThePresentOfALargeScope) {
  Set({"r2", "r1", "gone", "r1"});
  std::vector<std::string> replicas;
  for (int i = 0; i < 100; ++i) replicas.push_back("q" + std::to_string(100 + i));
  replicas.insert(replicas.end(), {"r0", "r1", "r2"});
  EXPECT_THAT(Present(replicas), ElementsAre("r1", "r2"));
}

TEST_P(CandidateFilterTest, ListsNobodyWhenNoneIsPresent) {
  Set({"gone"});
  EXPECT_THAT(Present({"r1", "r2"}), IsEmpty());
  EXPECT_THAT(Present({}), IsEmpty());
}

TEST_P(CandidateFilterTest, SetForgetsTheListBefore) {
  Set({"a"});
  Set({"b"});
  EXPECT_FALSE(filter_.Admits("a"));
  EXPECT_TRUE(filter_.Admits("b"));
}

TEST(EmptyCandidateFilterTest, AdmitsAll) {
  CandidateFilter filter;
  const std::vector<std::string> names = Padded({});
  const std::vector<std::string_view> views(names.begin(), names.end());
  filter.Set(views);
  filter.Set({});
  EXPECT_TRUE(filter.AdmitsAll());
  EXPECT_TRUE(filter.Admits("anyone"));
  std::vector<ScoredReplica> rows(2);
  filter.Filter({}, &rows);
  EXPECT_EQ(rows.size(), 2u);
}

}  // namespace
}  // namespace icache
