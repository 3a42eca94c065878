#include "icache/config/watchers.h"

#include <utility>

#include "icache/base/status_macros.h"
#include "icache/config/policy_loader.h"

namespace icache {

absl::StatusOr<std::unique_ptr<FileWatcher>> WatchPolicies(std::string path, absl::Duration poll_interval,
                                                           PolicyStore* store, const Clock* clock,
                                                           std::function<void(const PolicyReload&)> on_reload) {
  const auto publish = [store](absl::Span<const TextFile> files) {
    ASSIGN_OR_RETURN(std::shared_ptr<const PolicySet> set, ParsePolicies(files));
    store->Publish(std::move(set));
    return absl::OkStatus();
  };
  const auto report = [store, clock, on_reload = std::move(on_reload)](const absl::Status& status) {
    const std::shared_ptr<const PolicySet> in_force = store->Current();
    on_reload({.status = status,
               .time = clock->Now(),
               .policy_count = in_force->policy_count(),
               .tenant_count = in_force->tenant_count()});
  };
  return FileWatcher::Create({"policy-watcher", {std::move(path)}, poll_interval, Folders::kRead}, clock, publish,
                             report);
}

absl::StatusOr<std::unique_ptr<FileWatcher>> WatchTlsIdentity(const TlsFiles& files, absl::Duration poll_interval,
                                                              Published<TlsIdentity>* identity, const Clock* clock,
                                                              FileWatcher::ReloadCallback on_reload, TlsCheck check) {
  const auto publish = [identity, check = std::move(check)](absl::Span<const TextFile> read) {
    ASSIGN_OR_RETURN(std::shared_ptr<const TlsIdentity> parsed, ParseTlsIdentity(read, check));
    identity->Publish(std::move(parsed));
    return absl::OkStatus();
  };
  return FileWatcher::Create({"tls-watcher", {files.certificate, files.key, files.client_ca}, poll_interval}, clock,
                             publish, std::move(on_reload));
}

absl::StatusOr<std::unique_ptr<FileWatcher>> WatchAccess(std::string path, ClientCertificates certificates,
                                                         absl::Duration poll_interval, Published<AccessRules>* rules,
                                                         const Clock* clock, FileWatcher::ReloadCallback on_reload) {
  const auto publish = [rules, certificates](absl::Span<const TextFile> read) {
    ASSIGN_OR_RETURN(std::shared_ptr<const AccessRules> parsed, ParseAccess(read, certificates));
    rules->Publish(std::move(parsed));
    return absl::OkStatus();
  };
  return FileWatcher::Create({"access-watcher", {std::move(path)}, poll_interval, Folders::kRead}, clock, publish,
                             std::move(on_reload));
}

}  // namespace icache
