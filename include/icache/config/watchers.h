// Watchers: what is kept in step with its files while the daemon runs. file_watcher.h tells how changes are seen.
//
// Each loads and publishes its files at once, whole or not at all; InvalidArgument when they are refused. What is
// passed by pointer is not owned and must outlive the watcher. Callbacks come for each later reload, in order, on the
// thread that did it, and must not call the watcher.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/access/access_rules.h"
#include "icache/access/tls_identity.h"
#include "icache/base/clock.h"
#include "icache/base/published.h"
#include "icache/config/access_loader.h"
#include "icache/config/file_watcher.h"
#include "icache/config/tls_loader.h"
#include "icache/policy/policy_store.h"

namespace icache {

// What one reload came to.
struct PolicyReload {
  absl::Status status;      // InvalidArgument with every problem when the files were refused
  absl::Time time;          // when it was decided
  size_t policy_count = 0;  // of the set now in force
  size_t tenant_count = 0;  // likewise
};

// The policies at `path`; "" = none, for ever.
absl::StatusOr<std::unique_ptr<FileWatcher>> WatchPolicies(std::string path, absl::Duration poll_interval,
                                                           PolicyStore* store, const Clock* clock,
                                                           std::function<void(const PolicyReload&)> on_reload);

// The identity in `files`, which must be enabled. A pair of which only one half has been replaced yet is refused, and
// so is what `check` refuses.
absl::StatusOr<std::unique_ptr<FileWatcher>> WatchTlsIdentity(const TlsFiles& files, absl::Duration poll_interval,
                                                              Published<TlsIdentity>* identity, const Clock* clock,
                                                              FileWatcher::ReloadCallback on_reload,
                                                              TlsCheck check = nullptr);

// The rules in the files at `path`, which is not empty.
absl::StatusOr<std::unique_ptr<FileWatcher>> WatchAccess(std::string path, ClientCertificates certificates,
                                                         absl::Duration poll_interval, Published<AccessRules>* rules,
                                                         const Clock* clock, FileWatcher::ReloadCallback on_reload);

}  // namespace icache
