#include "icache/config/watchers.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "tests/config/temp_folder.h"
#include "tests/testing/fake_clock.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using testing::FakeClock;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempFolder;
using CheckResult = FileWatcher::CheckResult;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

// A policy of `tenant` that is told by its prefix gate, 0 to 99. All texts of one tenant are of one length.
std::string Policy(std::string_view tenant, int minimum_prefix_tokens) {
  return absl::StrFormat(
      "apiVersion: inferencecache.io/v1alpha1\n"
      "kind: CachePolicy\n"
      "metadata: {name: p, namespace: %s}\n"
      "spec: {minimumPrefixTokens: %2d}\n",
      tenant, minimum_prefix_tokens);
}

constexpr char kBadPolicy[] = "kind: Nonsense\n";

// A watcher that is driven by hand, and all that it reported.
class PolicyWatcherTest : public ::testing::Test {
 protected:
  // The watcher of `path`, which must load.
  void Watch(const std::string& path, absl::Duration poll_interval = absl::Milliseconds(10)) {
    auto watcher =
        WatchPolicies(path, poll_interval, &store_, &clock_, [this](const PolicyReload& reload) { OnReload(reload); });
    ASSERT_THAT(watcher, IsOk());
    watcher_ = *std::move(watcher);
  }

  // Looks until nothing is in motion, and returns what the last look that decided something said.
  CheckResult Settle() {
    CheckResult decided = CheckResult::kUnchanged;
    for (int looks = 0; looks < 20; ++looks) {
      const CheckResult result = watcher_->CheckOnce();
      if (result == CheckResult::kUnchanged) return decided;
      if (result != CheckResult::kSettling) decided = result;
    }
    ADD_FAILURE() << "never comes to rest";
    return decided;
  }

  int64_t GateOf(std::string_view tenant) const { return store_.Current()->PolicyFor(tenant).minimum_prefix_tokens; }

  void OnReload(const PolicyReload& reload) {
    {
      std::lock_guard lock(mutex_);
      reloads_.push_back(reload);
    }
    changed_.notify_all();
  }

  // Waits until `count` reloads were reported.
  void WaitForReloads(size_t count) {
    std::unique_lock lock(mutex_);
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(60), [&] { return reloads_.size() >= count; }));
  }

  const TempFolder folder_;
  FakeClock clock_;  // stands long before all file times, so that no stamp is ever trusted
  PolicyStore store_{absl::Minutes(30)};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<PolicyReload> reloads_;
  std::unique_ptr<FileWatcher> watcher_;
};

// A folder as the kubelet mounts a ConfigMap: files are links through "..data", which is a link to the folder in force.
class ConfigMapFolder {
 public:
  explicit ConfigMapFolder(const TempFolder* folder) : folder_(folder) {}

  // Puts a file of this text in force, as the only one.
  void Swap(std::string_view text) {
    const std::string name = absl::StrCat("..", generation_++);
    folder_->Write(name + "/policy.yaml", text);
    std::filesystem::create_symlink(name, *folder_ / "..data_tmp");
    std::error_code error;
    const std::filesystem::path old = std::filesystem::read_symlink(*folder_ / "..data", error);
    std::filesystem::rename(*folder_ / "..data_tmp", *folder_ / "..data");
    if (!error) std::filesystem::remove_all(*folder_ / old.native());
    if (!std::filesystem::is_symlink(*folder_ / "policy.yaml")) {
      std::filesystem::create_symlink("..data/policy.yaml", *folder_ / "policy.yaml");
    }
  }

 private:
  const TempFolder* const folder_;
  int generation_ = 0;
};

TEST_F(PolicyWatcherTest, CreatePublishesAndReportsNoReload) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  EXPECT_EQ(GateOf("a"), 1);
  EXPECT_EQ(store_.Version(), 1u);
  EXPECT_TRUE(reloads_.empty());
}

TEST_F(PolicyWatcherTest, CreateRefusesABadFile) {
  const auto watcher = WatchPolicies(folder_.Write("p.yaml", kBadPolicy), absl::Seconds(1), &store_, &clock_,
                                     [](const PolicyReload&) {});
  EXPECT_THAT(watcher, StatusIs(kBad, HasSubstr("p.yaml:1:7: kind")));
  EXPECT_EQ(store_.Version(), 0u);
}

TEST_F(PolicyWatcherTest, CreateRefusesAMissingPath) {
  EXPECT_THAT(WatchPolicies(folder_ / "none", absl::Seconds(1), &store_, &clock_, [](const PolicyReload&) {}),
              StatusIs(kBad, HasSubstr("cannot be read")));
}

TEST_F(PolicyWatcherTest, UnchangedContentIsNotReloaded) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  folder_.Write("p.yaml", Policy("a", 1));  // other times, same bytes
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  folder_.Write("next", Policy("a", 1));
  std::filesystem::rename(folder_ / "next", folder_ / "p.yaml");  // another inode, same bytes
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  EXPECT_EQ(store_.Version(), 1u);
  EXPECT_TRUE(reloads_.empty());
}

TEST_F(PolicyWatcherTest, TakesUpARenamedFile) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  folder_.Write("next", Policy("a", 2));
  std::filesystem::rename(folder_ / "next", folder_ / "p.yaml");
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kSettling);
  EXPECT_EQ(GateOf("a"), 1);
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kUnchanged);
  ASSERT_EQ(reloads_.size(), 1u);
  EXPECT_THAT(reloads_[0].status, IsOk());
  EXPECT_EQ(reloads_[0].time, clock_.Now());
  EXPECT_EQ(reloads_[0].policy_count, 1u);
}

TEST_F(PolicyWatcherTest, TakesUpEveryRewriteInPlace) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  for (int gate = 2; gate < 50; ++gate) {
    folder_.Write("p.yaml", Policy("a", gate));  // same length, and often the same clock tick
    EXPECT_EQ(Settle(), CheckResult::kReloaded);
    EXPECT_EQ(GateOf("a"), gate);
  }
}

TEST_F(PolicyWatcherTest, TakesUpARewriteThatSetsTheTimesBack) {
  const std::string path = folder_.Write("p.yaml", Policy("a", 1));
  const auto time = std::filesystem::last_write_time(path);
  clock_.Advance(absl::Hours(24 * 365 * 100));  // stamps are trusted
  Watch(path);
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kUnchanged);
  // The clock of the file system ticks before the write, or this would be the case that trusting is about.
  struct stat before;
  ASSERT_EQ(stat(path.c_str(), &before), 0);
  struct stat after = before;
  while (after.st_ctim.tv_sec == before.st_ctim.tv_sec && after.st_ctim.tv_nsec == before.st_ctim.tv_nsec) {
    folder_.Write("p.yaml", Policy("a", 2));
    std::filesystem::last_write_time(path, time);
    ASSERT_EQ(stat(path.c_str(), &after), 0);
  }
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
}

TEST_F(PolicyWatcherTest, FollowsFilesThatComeAndGo) {
  folder_.Write("a.yaml", Policy("a", 1));
  Watch(folder_.path());
  folder_.Write("b.yaml", Policy("b", 2));
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("b"), 2);
  std::filesystem::remove(folder_ / "a.yaml");
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 0);  // back to the default
  EXPECT_EQ(GateOf("b"), 2);
  std::filesystem::remove(folder_ / "b.yaml");
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(reloads_.back().policy_count, 0u);
}

TEST_F(PolicyWatcherTest, ARenamedFileWithTheSameBytesIsAChange) {
  folder_.Write("a.yaml", kBadPolicy);
  std::filesystem::rename(folder_ / "a.yaml", folder_ / ".a.yaml");
  folder_.Write("b.yaml", Policy("b", 1));
  Watch(folder_.path());
  std::filesystem::rename(folder_ / ".a.yaml", folder_ / "c.yaml");
  EXPECT_EQ(Settle(), CheckResult::kRefused);
}

TEST_F(PolicyWatcherTest, ABadFileLeavesThePoliciesInForce) {
  folder_.Write("a.yaml", Policy("a", 1));
  Watch(folder_.path());
  folder_.Write("a.yaml", Policy("a", 2));
  folder_.Write("b.yaml", kBadPolicy);
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(GateOf("a"), 1);
  EXPECT_EQ(store_.Version(), 1u);
  ASSERT_EQ(reloads_.size(), 1u);
  EXPECT_THAT(reloads_[0].status, StatusIs(kBad, HasSubstr("b.yaml:1:7: kind")));
  EXPECT_EQ(reloads_[0].policy_count, 1u);
}

TEST_F(PolicyWatcherTest, RefusesEachBadContentOnce) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  folder_.Write("p.yaml", kBadPolicy);
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  folder_.Write("p.yaml", kBadPolicy);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  folder_.Write("p.yaml", "kind: [");
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(reloads_.size(), 2u);
  folder_.Write("p.yaml", Policy("a", 1));
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(reloads_.size(), 3u);
}

TEST_F(PolicyWatcherTest, AMissingPathIsRefusedOnceUntilItReturns) {
  const std::string path = folder_.Write("p.yaml", Policy("a", 1));
  Watch(path);
  std::filesystem::remove(path);
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  EXPECT_EQ(GateOf("a"), 1);
  ASSERT_EQ(reloads_.size(), 1u);
  EXPECT_THAT(reloads_[0].status, StatusIs(kBad, path + ": cannot be read: No such file or directory"));
  folder_.Write("p.yaml", Policy("a", 2));
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
}

TEST_F(PolicyWatcherTest, AFileThatCouldNotBeReadIsTriedAgainAtEachLook) {
  const std::string path = folder_.Write("p.yaml", Policy("a", 1));
  clock_.Advance(absl::Hours(24 * 365 * 100));  // stamps are trusted
  Watch(path);
  folder_.Write("p.yaml", Policy("a", 2));
  rlimit descriptors;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &descriptors), 0);
  const rlimit none = {.rlim_cur = 0, .rlim_max = descriptors.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);  // and is reported once
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &descriptors), 0);
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
  EXPECT_EQ(reloads_.size(), 2u);
}

TEST_F(PolicyWatcherTest, AFileThatIsAwayForAMomentIsNoChange) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  std::filesystem::rename(folder_ / "p.yaml", folder_ / "p.yaml~");
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kSettling);
  std::filesystem::rename(folder_ / "p.yaml~", folder_ / "p.yaml");
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kUnchanged);
  EXPECT_TRUE(reloads_.empty());
}

TEST_F(PolicyWatcherTest, AHalfWrittenFileIsNotTakenUp) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  folder_.Write("p.yaml", "");  // truncated, and about to be written
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kSettling);
  folder_.Write("p.yaml", Policy("a", 2));
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kSettling);
  EXPECT_EQ(GateOf("a"), 1);
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
  EXPECT_EQ(reloads_.size(), 1u);
}

TEST_F(PolicyWatcherTest, FilesThatNeverRestAreTakenUpAllTheSame) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  int looks = 0;
  CheckResult result = CheckResult::kSettling;
  for (; result == CheckResult::kSettling && looks < 20; ++looks) {
    folder_.Write("p.yaml", Policy("a", 10 + looks));
    result = watcher_->CheckOnce();
  }
  EXPECT_EQ(result, CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 10 + looks - 1);
}

TEST_F(PolicyWatcherTest, FollowsConfigMapSwaps) {
  ConfigMapFolder config_map(&folder_);
  config_map.Swap(Policy("a", 1));
  Watch(folder_.path());
  for (int gate = 2; gate <= 4; ++gate) {
    config_map.Swap(Policy("a", gate));
    EXPECT_EQ(Settle(), CheckResult::kReloaded);
    EXPECT_EQ(GateOf("a"), gate);
  }
  EXPECT_EQ(reloads_.size(), 3u);
}

TEST_F(PolicyWatcherTest, FollowsConfigMapSwapsOfOneFile) {
  ConfigMapFolder config_map(&folder_);
  config_map.Swap(Policy("a", 1));
  Watch(folder_ / "policy.yaml");
  for (int gate = 2; gate <= 4; ++gate) {
    config_map.Swap(Policy("a", gate));
    EXPECT_EQ(Settle(), CheckResult::kReloaded);
    EXPECT_EQ(GateOf("a"), gate);
  }
}

TEST_F(PolicyWatcherTest, SurvivesABadConfigMapBetweenTwoGoodOnes) {
  ConfigMapFolder config_map(&folder_);
  config_map.Swap(Policy("a", 1));
  Watch(folder_.path());
  config_map.Swap(kBadPolicy);
  EXPECT_EQ(Settle(), CheckResult::kRefused);
  EXPECT_EQ(GateOf("a"), 1);
  config_map.Swap(Policy("a", 2));
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
}

TEST_F(PolicyWatcherTest, FollowsALinkToAnotherFolder) {
  folder_.Write("one/p.yaml", Policy("a", 1));
  folder_.Write("two/p.yaml", Policy("a", 2));
  std::filesystem::create_symlink("one", folder_ / "current");
  Watch(folder_ / "current");
  std::filesystem::create_symlink("two", folder_ / "next");
  std::filesystem::rename(folder_ / "next", folder_ / "current");
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
}

TEST_F(PolicyWatcherTest, TrustedStampsStillShowSwaps) {
  ConfigMapFolder config_map(&folder_);
  config_map.Swap(Policy("a", 1));
  clock_.Advance(absl::Hours(24 * 365 * 100));
  Watch(folder_.path());
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kUnchanged);
  config_map.Swap(Policy("a", 2));
  EXPECT_EQ(Settle(), CheckResult::kReloaded);
  EXPECT_EQ(GateOf("a"), 2);
}

TEST_F(PolicyWatcherTest, ReloadIsForced) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  EXPECT_THAT(watcher_->Reload(), IsOk());
  EXPECT_THAT(watcher_->Reload(), IsOk());
  EXPECT_EQ(reloads_.size(), 2u);
  folder_.Write("p.yaml", Policy("a", 2));
  EXPECT_THAT(watcher_->Reload(), IsOk());
  EXPECT_EQ(GateOf("a"), 2);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
  EXPECT_EQ(reloads_.size(), 3u);
}

TEST_F(PolicyWatcherTest, ReloadOfBadContentIsReportedEachTime) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  folder_.Write("p.yaml", kBadPolicy);
  EXPECT_THAT(watcher_->Reload(), StatusIs(kBad));
  EXPECT_THAT(watcher_->Reload(), StatusIs(kBad));
  EXPECT_EQ(GateOf("a"), 1);
  EXPECT_EQ(reloads_.size(), 2u);
  EXPECT_EQ(Settle(), CheckResult::kUnchanged);
}

TEST_F(PolicyWatcherTest, NoPathIsAnEmptySetForEver) {
  Watch("");
  EXPECT_EQ(watcher_->CheckOnce(), CheckResult::kUnchanged);
  EXPECT_THAT(watcher_->Reload(), IsOk());
  EXPECT_EQ(reloads_.size(), 1u);
}

TEST_F(PolicyWatcherTest, ThreadTakesUpChanges) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)));
  watcher_->Start();
  for (int gate = 2; gate <= 4; ++gate) {
    folder_.Write("next", Policy("a", gate));
    std::filesystem::rename(folder_ / "next", folder_ / "p.yaml");
    WaitForReloads(static_cast<size_t>(gate - 1));
    EXPECT_EQ(GateOf("a"), gate);
  }
}

TEST_F(PolicyWatcherTest, RequestedReloadIsForcedAndTheThreadsAffair) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)), absl::Hours(1));
  watcher_->Start();
  watcher_->RequestReload();
  WaitForReloads(1);
  watcher_->RequestReload();
  WaitForReloads(2);
}

TEST_F(PolicyWatcherTest, RequestDoesNotWaitForTheReload) {
  absl::Notification loading;
  absl::Notification go_on;
  bool first = true;
  const auto judge = [&](absl::Span<const TextFile>) {
    if (!std::exchange(first, false)) {
      loading.Notify();
      go_on.WaitForNotification();
    }
    return absl::OkStatus();
  };
  auto watcher = FileWatcher::Create({"watcher", {folder_.Write("p.yaml", "")}, absl::Hours(1)}, &clock_, judge,
                                     [](const absl::Status&) {});
  ASSERT_THAT(watcher, IsOk());
  (*watcher)->Start();
  (*watcher)->RequestReload();
  loading.WaitForNotification();  // on the watcher's thread: this one has come back
  go_on.Notify();
}

TEST_F(PolicyWatcherTest, StopDoesNotWaitForTheInterval) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)), absl::Hours(1));
  watcher_->Start();
  watcher_->Stop();
  watcher_->Stop();
  watcher_.reset();  // would time out if any of these waited
}

TEST_F(PolicyWatcherTest, DestructionStopsTheThread) {
  Watch(folder_.Write("p.yaml", Policy("a", 1)), absl::Hours(1));
  watcher_->Start();
  watcher_.reset();
}

// A writer that replaces the set whole, a thread that watches, forced reloads and readers, all at once: every snapshot
// is one of the sets that were written.
TEST_F(PolicyWatcherTest, ReadersNeverSeeAMixture) {
  ConfigMapFolder config_map(&folder_);
  const auto both = [](int gate) { return absl::StrCat(Policy("a", gate), "---\n", Policy("b", gate)); };
  config_map.Swap(both(1));
  Watch(folder_.path(), absl::Milliseconds(10));
  watcher_->Start();
  std::atomic<bool> done = false;
  std::thread reader([&] {
    while (!done.load()) {
      const std::shared_ptr<const PolicySet> set = store_.Current();
      EXPECT_EQ(set->PolicyFor("a").minimum_prefix_tokens, set->PolicyFor("b").minimum_prefix_tokens);
    }
  });
  for (int gate = 2; gate < 40; ++gate) {
    config_map.Swap(both(gate));
    EXPECT_THAT(watcher_->Reload(), IsOk());
    EXPECT_EQ(GateOf("b"), gate);
  }
  done.store(true);
  reader.join();
}

}  // namespace
}  // namespace icache
