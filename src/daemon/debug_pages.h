// DebugPages: what /debug/config, /debug/policies and /debug/index answer, as JSON.
//
// Every list comes in pages of at most kMaxRows rows, so that an answer and the work behind it are bounded whatever the
// daemon holds. A parameter that is unknown, given twice or out of its range is an InvalidArgument that says so. Names
// and texts that are no UTF-8 show U+FFFD in place of what is none; links carry names byte for byte.
//
// docs/operations.md has the pages' parameters and fields. Thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/base/clock.h"
#include "icache/base/mutex.h"
#include "icache/config/daemon_options.h"
#include "icache/http/http_server.h"

namespace icache {

class PolicyStore;
class PrefixIndex;

class DebugPages {
 public:
  static constexpr size_t kDefaultRows = 100;
  static constexpr size_t kMaxRows = 1000;

  // Nothing is owned; all must outlive the object.
  DebugPages(const DaemonOptions* options, const PolicyStore* policies, const PrefixIndex* index, const Clock* clock)
      : options_(*options), policies_(*policies), index_(*index), clock_(*clock) {}

  // What became of the policy files, at the start or at a reload, decided now.
  void RecordPolicyLoad(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);

  absl::StatusOr<std::string> Config(const HttpQuery& query) const;
  absl::StatusOr<std::string> Policies(const HttpQuery& query) const ABSL_LOCKS_EXCLUDED(mutex_);
  absl::StatusOr<std::string> Index(const HttpQuery& query) const;

 private:
  const DaemonOptions& options_;
  const PolicyStore& policies_;
  const PrefixIndex& index_;
  const Clock& clock_;

  mutable Mutex mutex_;
  absl::Time in_force_since_ ABSL_GUARDED_BY(mutex_);
  absl::Time refused_at_ ABSL_GUARDED_BY(mutex_);
  std::string refusal_ ABSL_GUARDED_BY(mutex_);  // of the last reload; "" = it was accepted
};

}  // namespace icache
