// PolicyWatcher: keeps the policies in force in step with the policy files.
//
// It looks at the files at a fixed interval. A change (of the file, of any file in the folder, or of a symlink on the
// way to them) is taken up once two looks in a row have read the same bytes, so that a set that is just being written
// is not applied half-way; files that never come to rest are taken up as they are after a few looks. The whole set is
// then loaded: accepted, it replaces the one in force; refused, that one stays. Content that has been judged is not
// judged again until it changes.
//
// How a change is seen: the stamps of the files (inode, size, times) tell most changes without reading anything. A
// stamp taken shortly after the last change cannot be trusted, since a second write within the same clock tick leaves
// it as it was; until it can be, the bytes are read and compared.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "icache/base/mutex.h"
#include "icache/policy/policy_store.h"

namespace icache {

// What one reload came to.
struct PolicyReload {
  absl::Status status;      // InvalidArgument with every problem when the files were refused
  absl::Time time;          // when it was decided
  size_t policy_count = 0;  // of the set now in force
  size_t tenant_count = 0;  // likewise
};

// Thread-safe.
class PolicyWatcher {
 public:
  // Called for each reload, in order, on the thread that did it. Must not call the watcher.
  using ReloadCallback = std::function<void(const PolicyReload&)>;

  enum class CheckResult {
    kUnchanged,
    kSettling,  // something changed; the next look tells whether it has come to rest
    kReloaded,
    kRefused,
  };

  // Loads the policies at `path` ("" = none, for ever) and publishes them; this first load is no reload.
  // InvalidArgument when they are refused. `store` and `clock` are not owned and must outlive the watcher; `clock` is
  // compared with file times.
  static absl::StatusOr<std::unique_ptr<PolicyWatcher>> Create(std::string path, absl::Duration poll_interval,
                                                               PolicyStore* store, const Clock* clock,
                                                               ReloadCallback on_reload);
  ~PolicyWatcher();

  PolicyWatcher(const PolicyWatcher&) = delete;
  PolicyWatcher& operator=(const PolicyWatcher&) = delete;

  // Begins to look at the files on a thread of its own. At most once.
  void Start();
  // Ends that thread, waiting for a look that is under way but not for the interval. Idempotent; also done on
  // destruction.
  void Stop() ABSL_LOCKS_EXCLUDED(stop_mutex_);

  // One look. What the thread does again and again; tests call it instead of starting the thread.
  CheckResult CheckOnce() ABSL_LOCKS_EXCLUDED(check_mutex_);

  // Loads at once, changed or not, and reports it either way. Returns the reload's status. For SIGHUP.
  absl::Status Reload() ABSL_LOCKS_EXCLUDED(check_mutex_);

 private:
  // What one look at the files brought.
  struct Content;

  PolicyWatcher(std::string path, absl::Duration poll_interval, PolicyStore* store, const Clock* clock,
                ReloadCallback on_reload, std::unique_ptr<const Content> content);

  void Run() ABSL_LOCKS_EXCLUDED(stop_mutex_);
  // Loads `content`, publishes the set if it is accepted, and reports. Returns the reload's status.
  absl::Status Judge(std::unique_ptr<const Content> content) ABSL_EXCLUSIVE_LOCKS_REQUIRED(check_mutex_);

  const std::string path_;
  const absl::Duration poll_interval_;
  PolicyStore* const store_;
  const Clock* const clock_;
  const ReloadCallback on_reload_;

  Mutex check_mutex_;                                                       // held for a whole look or reload
  std::unique_ptr<const Content> judged_ ABSL_GUARDED_BY(check_mutex_);     // never null
  std::unique_ptr<const Content> unsettled_ ABSL_GUARDED_BY(check_mutex_);  // null unless the last look saw a change
  int unsettled_looks_ ABSL_GUARDED_BY(check_mutex_) = 0;                   // in a row

  Mutex stop_mutex_;
  std::condition_variable_any stop_changed_;
  bool stopping_ ABSL_GUARDED_BY(stop_mutex_) = false;
  std::thread thread_;  // touched by Start and Stop alone, which the owner calls in turn
};

}  // namespace icache
