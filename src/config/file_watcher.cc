#include "icache/config/file_watcher.h"

#include <openssl/evp.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "icache/base/status_macros.h"
#include "icache/base/wipe.h"

namespace icache {
namespace {

// How old the last change must be for a stamp to be trusted: longer than a tick of any file system's clock.
constexpr absl::Duration kTrustedAge = absl::Seconds(2);
// Time between two looks while a change settles.
constexpr absl::Duration kSettlingInterval = absl::Milliseconds(50);
// Files that differ at each of so many looks in a row are taken as they are.
constexpr int kMaxUnsettledLooks = 4;

// SHA-256 of the names and texts of `files`.
std::string DigestOf(absl::Span<const TextFile> files) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr);
  for (const TextFile& file : files) {
    for (const std::string* const part : {&file.path, &file.text}) {
      const uint64_t size = part->size();
      EVP_DigestUpdate(context.get(), &size, sizeof(size));
      EVP_DigestUpdate(context.get(), part->data(), part->size());
    }
  }
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context.get(), digest, &size);
  return {reinterpret_cast<const char*>(digest), size};
}

}  // namespace

// What one look at the files brought.
struct FileWatcher::Look {
  absl::StatusOr<std::vector<TextFile>> files;  // or why they cannot be read
  Content content;

  explicit Look(const FileWatcherOptions& options, const Clock& clock) {
    content.stamp = StampFileSet(options.paths, options.folders);
    files = ReadFileSet(options.paths, options.folders);
    content.stamp_is_trusted = files.ok() && clock.Now() - content.stamp.LastChange() > kTrustedAge;
    content.status = files.status();
    if (files.ok()) content.digest = DigestOf(*files);
  }

  absl::Status Load(const Judge& judge) const {
    RETURN_IF_ERROR(files.status());
    return judge(*files);
  }
};

absl::StatusOr<std::unique_ptr<FileWatcher>> FileWatcher::Create(FileWatcherOptions options, const Clock* clock,
                                                                 Judge judge, ReloadCallback on_reload) {
  const WipeFreedMemory wipe;
  Look look(options, *clock);
  RETURN_IF_ERROR(look.Load(judge));
  return std::unique_ptr<FileWatcher>(
      new FileWatcher(std::move(options), clock, std::move(judge), std::move(on_reload), std::move(look.content)));
}

FileWatcher::FileWatcher(FileWatcherOptions options, const Clock* clock, Judge judge, ReloadCallback on_reload,
                         Content content)
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
  if (!unsettled_.has_value() && judged_.stamp_is_trusted &&
      StampFileSet(options_.paths, options_.folders) == judged_.stamp) {
    return CheckResult::kUnchanged;
  }
  const WipeFreedMemory wipe;
  Look look(options_, *clock_);
  if (look.content.SaysTheSameAs(judged_)) {
    judged_ = std::move(look.content);  // its stamp is newer
    unsettled_.reset();
    unsettled_looks_ = 0;
    return CheckResult::kUnchanged;
  }
  const bool settled = unsettled_.has_value() && look.content.SaysTheSameAs(*unsettled_);
  if (!settled && unsettled_looks_ < kMaxUnsettledLooks) {
    unsettled_ = std::move(look.content);
    ++unsettled_looks_;
    return CheckResult::kSettling;
  }
  return Take(std::move(look)).ok() ? CheckResult::kReloaded : CheckResult::kRefused;
}

absl::Status FileWatcher::Reload() {
  MutexLock lock(&check_mutex_);
  const WipeFreedMemory wipe;
  return Take(Look(options_, *clock_));
}

absl::Status FileWatcher::Take(Look look) {
  judged_ = std::move(look.content);
  unsettled_.reset();
  unsettled_looks_ = 0;
  absl::Status status = look.Load(judge_);
  on_reload_(status);
  return status;
}

}  // namespace icache
