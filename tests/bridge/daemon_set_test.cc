#include "bridge/daemon_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/time/clock.h"
#include "icache/base/moment.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::string> AddressesOf(const DaemonSet& daemons) {
  std::vector<std::string> addresses;
  const auto links = daemons.links();
  for (const auto& link : *links) addresses.push_back(link->address());
  return addresses;
}

class DaemonSetTest : public ::testing::Test {
 protected:
  static ReportOptions Options() {
    ReportOptions options;
    options.daemons = {"127.0.0.1:1", "dns:icached:9090", "127.0.0.1:1", "dns:again:9090"};
    options.resolve_interval = absl::Hours(1);  // by hand
    return options;
  }

  const ReportOptions options_ = Options();
  NullLogger logger_;
  Mutex mutex_;
  absl::StatusOr<std::vector<std::string>> answer_ = std::vector<std::string>{};
  std::optional<absl::StatusOr<std::vector<std::string>>> again_;  // of another name; nullopt: the same
  DaemonSet daemons_{&options_, &logger_, [this](const std::string& host_port, const std::function<bool()>&) {
                       EXPECT_THAT(host_port, AnyOf("icached:9090", "again:9090"));
                       MutexLock lock(&mutex_);
                       return host_port == "again:9090" && again_.has_value() ? *again_ : answer_;
                     }};

  void Answer(absl::StatusOr<std::vector<std::string>> answer) {
    {
      MutexLock lock(&mutex_);
      answer_ = std::move(answer);
    }
    daemons_.Resolve();
  }
};

TEST_F(DaemonSetTest, ANameStandsForAllItsAddresses) {
  Answer(std::vector<std::string>{"10.0.0.1:9090", "10.0.0.2:9090"});
  EXPECT_THAT(AddressesOf(daemons_), UnorderedElementsAre("127.0.0.1:1", "10.0.0.1:9090", "10.0.0.2:9090"));
}

TEST_F(DaemonSetTest, AnAddressThatStaysKeepsItsLink) {
  Answer(std::vector<std::string>{"10.0.0.1:9090"});
  const auto before = daemons_.links();
  Answer(std::vector<std::string>{"10.0.0.1:9090", "10.0.0.3:9090"});
  EXPECT_THAT(*daemons_.links(), Contains(before->back()));
}

TEST_F(DaemonSetTest, AnAddressGoesWhenItIsMissingForGood) {
  Answer(std::vector<std::string>{"10.0.0.1:9090", "10.0.0.2:9090"});
  for (int i = 0; i < 2; ++i) Answer(std::vector<std::string>{"10.0.0.2:9090"});
  EXPECT_EQ(daemons_.links()->size(), 3);
  Answer(std::vector<std::string>{"10.0.0.2:9090"});
  EXPECT_THAT(AddressesOf(daemons_), ElementsAre("127.0.0.1:1", "10.0.0.2:9090"));
}

TEST_F(DaemonSetTest, ANameThatDoesNotResolveChangesNothing) {
  Answer(std::vector<std::string>{"10.0.0.1:9090"});
  for (int i = 0; i < 5; ++i) Answer(absl::UnavailableError("no such name"));
  EXPECT_EQ(daemons_.links()->size(), 2);
}

TEST_F(DaemonSetTest, AnAddressThatIsNamedTwiceHasOneLink) {
  Answer(std::vector<std::string>{"127.0.0.1:1", "10.0.0.1:9090"});
  EXPECT_THAT(AddressesOf(daemons_), UnorderedElementsAre("127.0.0.1:1", "10.0.0.1:9090"));
}

TEST_F(DaemonSetTest, AnAddressStaysWhileSomeNameStandsForIt) {
  Answer(std::vector<std::string>{"10.0.0.1:9090"});
  const auto before = daemons_.links();
  for (int i = 0; i < 5; ++i) {
    again_ = std::vector<std::string>{"10.0.0.1:9090"};
    Answer(std::vector<std::string>{"10.0.0.2:9090"});
  }
  EXPECT_THAT(*daemons_.links(), Contains(before->back()));
}

// Keeps the warnings.
class WarningLogger final : public Logger {
 public:
  void Log(LogSeverity severity, std::string_view event, absl::Span<const LogField> fields) override {
    if (severity != LogSeverity::kWarn || event != "daemon_named_twice") return;
    MutexLock lock(&mutex_);
    for (const LogField& field : fields) texts_.emplace_back(std::get<std::string_view>(field.value));
  }
  std::vector<std::string> texts() {
    MutexLock lock(&mutex_);
    return texts_;
  }

 private:
  Mutex mutex_;
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

TEST(DaemonSetDoublesTest, AHostAndItsAddressAreOneDaemon) {
  ReportOptions options;
  options.daemons = {"127.0.0.1:1", "one:1", "two:1", "[::1]:1"};
  options.resolve_interval = absl::Hours(1);
  WarningLogger logger;
  std::atomic<bool> moved = false;
  DaemonSet daemons(&options, &logger, [&](const std::string& host, const auto&) {
    return std::vector<std::string>{host == "one:1" && !moved ? "127.0.0.1:1" : "127.0.0.2:1"};
  });
  for (int i = 0; i < 3; ++i) daemons.Resolve();
  EXPECT_THAT(logger.texts(), ElementsAre("one:1", "127.0.0.1:1"));
  EXPECT_THAT(AddressesOf(daemons), UnorderedElementsAre("127.0.0.1:1", "two:1", "[::1]:1"));
  moved = true;  // to where the other host is
  daemons.Resolve();
  EXPECT_THAT(AddressesOf(daemons), UnorderedElementsAre("127.0.0.1:1", "one:1", "[::1]:1"));
}

TEST(DaemonSetDoublesTest, AHostWhoseNameDoesNotResolveKeepsItsLink) {
  ReportOptions options;
  options.daemons = {"127.0.0.1:1", "one:1"};
  options.resolve_interval = absl::Hours(1);
  NullLogger logger;
  DaemonSet daemons(&options, &logger, [](const auto&, const auto&) -> absl::StatusOr<std::vector<std::string>> {
    return absl::UnavailableError("not now");
  });
  daemons.Resolve();
  EXPECT_THAT(AddressesOf(daemons), UnorderedElementsAre("127.0.0.1:1", "one:1"));
}

TEST(DaemonSetStopTest, ANameThatNobodyResolvesDelaysNoEnd) {
  ReportOptions options;
  options.daemons = {"dns:icached:9090"};
  NullLogger logger;
  DaemonSet daemons(
      &options, &logger,
      [](const std::string&, const std::function<bool()>& stopping) -> absl::StatusOr<std::vector<std::string>> {
        while (!stopping()) absl::SleepFor(absl::Milliseconds(1));
        return absl::UnavailableError("told to stop");
      });
  daemons.Flush(SteadyNow() + absl::Hours(1));
  EXPECT_THAT(*daemons.links(), IsEmpty());
}

// The C library resolves on threads of its own, in which the thread sanitizer cannot even allocate.
class ResolveBySystemTest : public ::testing::Test {
 protected:
#if defined(__SANITIZE_THREAD__)
  void SetUp() override { GTEST_SKIP() << "not under the thread sanitizer"; }
#endif
};

TEST_F(ResolveBySystemTest, ResolvesANumber) {
  const auto addresses = ResolveBySystem("127.0.0.1:9090", [] { return false; });
  ASSERT_THAT(addresses, testing::IsOk());
  EXPECT_THAT(*addresses, ElementsAre("127.0.0.1:9090"));
}

TEST_F(ResolveBySystemTest, ResolvesALocalName) {
  const auto addresses = ResolveBySystem("localhost:9090", [] { return false; });
  ASSERT_THAT(addresses, testing::IsOk());
  EXPECT_THAT(*addresses, Contains("127.0.0.1:9090"));
}

TEST_F(ResolveBySystemTest, ANameThatIsNoneIsUnavailable) {
  EXPECT_THAT(ResolveBySystem("no..name:9090", [] { return false; }),
              testing::StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace icache
