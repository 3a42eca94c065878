#include "icache/config/policy_watcher.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "config/policy_files.h"
#include "icache/base/status_macros.h"
#include "icache/config/policy_loader.h"

namespace icache {
namespace {

// How old the last change must be for a stamp to be trusted: longer than a tick of any file system's clock.
constexpr absl::Duration kTrustedAge = absl::Seconds(2);
// Time between two looks while a change settles.
constexpr absl::Duration kSettlingInterval = absl::Milliseconds(50);
// Files that differ at each of so many looks in a row are taken as they are.
constexpr int kMaxUnsettledLooks = 4;

}  // namespace

struct PolicyWatcher::Content {
  PolicyStamp stamp;  // from before the bytes were read, so that a later change shows
  bool stamp_is_trusted = false;
  absl::StatusOr<std::vector<PolicyFile>> files;  // or why they cannot be read

  // Looks at the files now.
  static std::unique_ptr<const Content> Read(const std::string& path, const Clock& clock) {
    auto content = std::make_unique<Content>();
    content->stamp = StampPolicyFiles(path);
    content->stamp_is_trusted = clock.Now() - content->stamp.LastChange() > kTrustedAge;
    content->files = ReadPolicyFiles(path);
    return content;
  }

  bool SaysTheSameAs(const Content& other) const {
    return files.status() == other.files.status() && (!files.ok() || *files == *other.files);
  }

  absl::StatusOr<std::shared_ptr<const PolicySet>> Load() const {
    RETURN_IF_ERROR(files.status());
    return ParsePolicies(*files);
  }
};

absl::StatusOr<std::unique_ptr<PolicyWatcher>> PolicyWatcher::Create(std::string path, absl::Duration poll_interval,
                                                                     PolicyStore* store, const Clock* clock,
                                                                     ReloadCallback on_reload) {
  std::unique_ptr<const Content> content = Content::Read(path, *clock);
  ASSIGN_OR_RETURN(std::shared_ptr<const PolicySet> set, content->Load());
  store->Publish(std::move(set));
  return std::unique_ptr<PolicyWatcher>(
      new PolicyWatcher(std::move(path), poll_interval, store, clock, std::move(on_reload), std::move(content)));
}

PolicyWatcher::PolicyWatcher(std::string path, absl::Duration poll_interval, PolicyStore* store, const Clock* clock,
                             ReloadCallback on_reload, std::unique_ptr<const Content> content)
    : path_(std::move(path)),
      poll_interval_(poll_interval),
      store_(store),
      clock_(clock),
      on_reload_(std::move(on_reload)),
      judged_(std::move(content)) {}

PolicyWatcher::~PolicyWatcher() { Stop(); }

void PolicyWatcher::Start() { thread_ = std::thread(&PolicyWatcher::Run, this); }

void PolicyWatcher::Stop() {
  {
    MutexLock lock(&stop_mutex_);
    stopping_ = true;
  }
  stop_changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void PolicyWatcher::Run() {
  pthread_setname_np(pthread_self(), "policy-watcher");
  absl::Duration pause = poll_interval_;
  for (;;) {
    {
      MutexLock lock(&stop_mutex_);
      // A wake-up for no reason only makes a look come early.
      if (!stopping_) stop_changed_.wait_for(stop_mutex_, absl::ToChronoNanoseconds(std::min(pause, absl::Hours(24))));
      if (stopping_) return;
    }
    const CheckResult result = CheckOnce();
    pause = result == CheckResult::kSettling ? std::min(poll_interval_, kSettlingInterval) : poll_interval_;
  }
}

PolicyWatcher::CheckResult PolicyWatcher::CheckOnce() {
  MutexLock lock(&check_mutex_);
  if (unsettled_ == nullptr && judged_->stamp_is_trusted && StampPolicyFiles(path_) == judged_->stamp) {
    return CheckResult::kUnchanged;
  }
  std::unique_ptr<const Content> content = Content::Read(path_, *clock_);
  if (content->SaysTheSameAs(*judged_)) {
    judged_ = std::move(content);  // its stamp is newer
    unsettled_ = nullptr;
    unsettled_looks_ = 0;
    return CheckResult::kUnchanged;
  }
  const bool settled = unsettled_ != nullptr && content->SaysTheSameAs(*unsettled_);
  if (!settled && unsettled_looks_ < kMaxUnsettledLooks) {
    unsettled_ = std::move(content);
    ++unsettled_looks_;
    return CheckResult::kSettling;
  }
  return Judge(std::move(content)).ok() ? CheckResult::kReloaded : CheckResult::kRefused;
}

absl::Status PolicyWatcher::Reload() {
  MutexLock lock(&check_mutex_);
  return Judge(Content::Read(path_, *clock_));
}

absl::Status PolicyWatcher::Judge(std::unique_ptr<const Content> content) {
  absl::StatusOr<std::shared_ptr<const PolicySet>> set = content->Load();
  judged_ = std::move(content);
  unsettled_ = nullptr;
  unsettled_looks_ = 0;
  if (set.ok()) store_->Publish(*set);
  const std::shared_ptr<const PolicySet> in_force = store_->Current();
  on_reload_({.status = set.status(),
              .time = clock_->Now(),
              .policy_count = in_force->policy_count(),
              .tenant_count = in_force->tenant_count()});
  return set.status();
}

}  // namespace icache
