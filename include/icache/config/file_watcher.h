// FileWatcher: keeps what was made of some files in step with them.
//
// It looks at the files at a fixed interval. A change (of a file, of a folder's files, or of a symlink on the way to
// them) is taken up once two looks in a row have read the same bytes, so that a set that is just being written is not
// applied half-way; files that never come to rest are taken up as they are after a few looks. The whole set is then
// handed to its judge: accepted, it replaces what is in force; refused, that stays. Content that has been judged is not
// judged again until it changes.
//
// How a change is seen: the stamps of the files (inode, size, times) tell most changes without reading anything. A
// stamp taken shortly after the last change cannot be trusted, since a second write within the same clock tick leaves
// it as it was; until it can be, the bytes are read and compared. Nor does a stamp tell why files could not be read,
// which may have passed without a trace on them (no descriptor was left): they are tried again at each look.
//
// The bytes are compared by their digest and kept for no longer than a look takes, then wiped: they may be secrets.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/clock.h"
#include "icache/base/mutex.h"
#include "icache/config/file_set.h"

namespace icache {

struct FileWatcherOptions {
  std::string thread_name;         // at most 15 bytes
  std::vector<std::string> paths;  // file_set.h
  absl::Duration poll_interval = absl::Milliseconds(250);
  Folders folders = Folders::kRefused;
};

// Thread-safe.
class FileWatcher {
 public:
  // Puts `files` in force, or says why it does not.
  using Judge = std::function<absl::Status(absl::Span<const TextFile> files)>;
  // Told what each reload came to, in order: the judge's status, or why the files cannot be read. Both are called on
  // the thread that reloads, one at a time, and must not call the watcher.
  using ReloadCallback = std::function<void(const absl::Status&)>;

  enum class CheckResult {
    kUnchanged,
    kSettling,  // something changed; the next look tells whether it has come to rest
    kReloaded,
    kRefused,
  };

  // Reads the files and has them judged; this first load is no reload. Errors: InvalidArgument when they cannot be
  // read, and the judge's. `clock` is compared with file times; it is not owned.
  static absl::StatusOr<std::unique_ptr<FileWatcher>> Create(FileWatcherOptions options, const Clock* clock,
                                                             Judge judge, ReloadCallback on_reload);
  ~FileWatcher();
  FileWatcher(const FileWatcher&) = delete;
  FileWatcher& operator=(const FileWatcher&) = delete;

  // Begins to look at the files on a thread of its own. At most once.
  void Start();
  // Ends that thread, waiting for a look or a reload that is under way but for nothing else. Idempotent; also done on
  // destruction.
  void Stop() ABSL_LOCKS_EXCLUDED(stop_mutex_);

  // One look. What the thread does again and again; tests call it instead of starting the thread.
  CheckResult CheckOnce() ABSL_LOCKS_EXCLUDED(check_mutex_);

  // Loads at once, changed or not, and reports it either way. Returns the reload's status.
  absl::Status Reload() ABSL_LOCKS_EXCLUDED(check_mutex_);
  // Has the thread do that as soon as it can; does not wait. Requests that it has not come to yet are one.
  void RequestReload() ABSL_LOCKS_EXCLUDED(stop_mutex_);

 private:
  // What is kept of a look at the files. Their texts, which may hold secrets, are not.
  struct Content {
    FileSetStamp stamp;  // from before the bytes were read, so that a later change shows
    bool stamp_is_trusted = false;
    absl::Status status;  // why they could not be read
    std::string digest;   // of the bytes; "" when they could not

    bool SaysTheSameAs(const Content& other) const { return status == other.status && digest == other.digest; }
  };
  struct Look;

  FileWatcher(FileWatcherOptions options, const Clock* clock, Judge judge, ReloadCallback on_reload, Content content);

  void Run() ABSL_LOCKS_EXCLUDED(stop_mutex_);
  // Has what `look` brought judged and reports. Returns the reload's status.
  absl::Status Take(Look look) ABSL_EXCLUSIVE_LOCKS_REQUIRED(check_mutex_);

  const FileWatcherOptions options_;
  const Clock* const clock_;
  const Judge judge_;
  const ReloadCallback on_reload_;

  Mutex check_mutex_;  // held for a whole look or reload
  Content judged_ ABSL_GUARDED_BY(check_mutex_);
  std::optional<Content> unsettled_ ABSL_GUARDED_BY(check_mutex_);  // when the last look saw a change
  int unsettled_looks_ ABSL_GUARDED_BY(check_mutex_) = 0;           // in a row

  Mutex stop_mutex_;
  std::condition_variable_any woken_;
  bool stopping_ ABSL_GUARDED_BY(stop_mutex_) = false;
  bool reload_requested_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;  // touched by Start and Stop alone, which the owner calls in turn
};

}  // namespace icache
