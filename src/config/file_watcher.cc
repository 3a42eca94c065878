#include "icache/config/file_watcher.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "icache/base/status_macros.h"

namespace icache {
namespace {

// How old the last change must be for a stamp to be trusted: longer than a tick of any file system's clock.
constexpr absl::Duration kTrustedAge = absl::Seconds(2);
// Time between two looks while a change settles.
constexpr absl::Duration kSettlingInterval = absl::Milliseconds(50);
// Files that differ at each of so many looks in a row are taken as they are.
constexpr int kMaxUnsettledLooks = 4;

}  // namespace

struct FileWatcher::Content {
  FileSetStamp stamp;  // from before the bytes were read, so that a later change shows
  bool stamp_is_trusted = false;
  absl::StatusOr<std::vector<TextFile>> files;  // or why they cannot be read

  // Looks at the files now.
  static std::unique_ptr<const Content> Read(const FileWatcherOptions& options, const Clock& clock) {
    auto content = std::make_unique<Content>();
    content->stamp = StampFileSet(options.paths, options.folders);
    content->files = ReadFileSet(options.paths, options.folders);
    content->stamp_is_trusted = content->files.ok() && clock.Now() - content->stamp.LastChange() > kTrustedAge;
    return content;
  }

  bool SaysTheSameAs(const Content& other) const {
    return files.status() == other.files.status() && (!files.ok() || *files == *other.files);
  }

  absl::Status Load(const Judge& judge) const {
    RETURN_IF_ERROR(files.status());
    return judge(*files);
  }
};

absl::StatusOr<std::unique_ptr<FileWatcher>> FileWatcher::Create(FileWatcherOptions options, const Clock* clock,
                                                                 Judge judge, ReloadCallback on_reload) {
  std::unique_ptr<const Content> content = Content::Read(options, *clock);
  RETURN_IF_ERROR(content->Load(judge));
  return std::unique_ptr<FileWatcher>(
      new FileWatcher(std::move(options), clock, std::move(judge), std::move(on_reload), std::move(content)));
}

FileWatcher::FileWatcher(FileWatcherOptions options, const Clock* clock, Judge judge, ReloadCallback on_reload,
                         std::unique_ptr<const Content> content)
    : options_(std::move(options)),
      clock_(clock),
      judge_(std::move(judge)),
      on_reload_(std::move(on_reload)),
      judged_(std::move(content)) {}

FileWatcher::~FileWatcher() { Stop(); }

void FileWatcher::Start() { thread_ = std::thread(&FileWatcher::Run, this); }

void FileWatcher::Stop() {
  {
    MutexLock lock(&stop_mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void FileWatcher::RequestReload() {
  {
    MutexLock lock(&stop_mutex_);
    reload_requested_ = true;
  }
  woken_.notify_all();
}

void FileWatcher::Run() {
  pthread_setname_np(pthread_self(), options_.thread_name.c_str());
  absl::Duration pause = options_.poll_interval;
  for (;;) {
    bool reload = false;
    {
      MutexLock lock(&stop_mutex_);
      // A wake-up for no reason only makes a look come early.
      if (!stopping_ && !reload_requested_) {
        woken_.wait_for(stop_mutex_, absl::ToChronoNanoseconds(std::min(pause, absl::Hours(24))));
      }
      if (stopping_) return;
      std::swap(reload, reload_requested_);
    }
    if (reload) (void)Reload();  // told to the callback
    const bool settling = CheckOnce() == CheckResult::kSettling;
    pause = settling ? std::min(options_.poll_interval, kSettlingInterval) : options_.poll_interval;
  }
}

FileWatcher::CheckResult FileWatcher::CheckOnce() {
  MutexLock lock(&check_mutex_);
  if (unsettled_ == nullptr && judged_->stamp_is_trusted &&
      StampFileSet(options_.paths, options_.folders) == judged_->stamp) {
    return CheckResult::kUnchanged;
  }
  std::unique_ptr<const Content> content = Content::Read(options_, *clock_);
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
  return Take(std::move(content)).ok() ? CheckResult::kReloaded : CheckResult::kRefused;
}

absl::Status FileWatcher::Reload() {
  MutexLock lock(&check_mutex_);
  return Take(Content::Read(options_, *clock_));
}

absl::Status FileWatcher::Take(std::unique_ptr<const Content> content) {
  judged_ = std::move(content);
  unsettled_ = nullptr;
  unsettled_looks_ = 0;
  absl::Status status = judged_->Load(judge_);
  on_reload_(status);
  return status;
}

}  // namespace icache
