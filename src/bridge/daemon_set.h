// DaemonSet: links to all the daemons that are configured, and to all that a DNS name resolves to now; one to each
// address, however often it is named. A configured host that turns out to be an address that has a link already gets
// none of its own.
//
// Names are resolved again and again. An address that is new gets a link; one that has been missing from several
// answers in a row loses it. A name that does not resolve changes nothing. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bridge/daemon_link.h"
#include "bridge/options.h"
#include "icache/base/mutex.h"
#include "icache/base/published.h"
#include "icache/base/stop_signal.h"
#include "icache/telemetry/logging.h"

namespace icache {

// The addresses of "HOST:PORT", each as "IP:PORT". Waits no longer once `stopping` holds. Errors: Unavailable.
using Resolver = std::function<absl::StatusOr<std::vector<std::string>>(const std::string& host_port,
                                                                        const std::function<bool()>& stopping)>;
absl::StatusOr<std::vector<std::string>> ResolveBySystem(const std::string& host_port,
                                                         const std::function<bool()>& stopping);

class DaemonSet {
 public:
  using Links = std::vector<std::shared_ptr<DaemonLink>>;

  // `options` and `logger` are not owned and must outlive it.
  DaemonSet(const ReportOptions* options, Logger* logger, Resolver resolver = ResolveBySystem);
  ~DaemonSet();
  DaemonSet(const DaemonSet&) = delete;
  DaemonSet& operator=(const DaemonSet&) = delete;

  // The links of now; they live as long as they are held.
  std::shared_ptr<const Links> links() const { return links_.Current(); }

  // Resolves the names once. Called by a thread of its own; tests may call it too.
  void Resolve() ABSL_LOCKS_EXCLUDED(resolving_);
  // Sends what is queued, to all at once, and ends the links; at `deadline`, of the steady clock, at
  // the latest.
  void Flush(absl::Time deadline);

 private:
  void Run();
  // What the names resolve to now, in place of resolved_links_. False when told to stop.
  bool ResolveNames(Links* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(resolving_);
  // Takes the links of hosts that stand for a daemon that another link has, and gives those of others back.
  void MergeHosts(Links* gone) ABSL_EXCLUSIVE_LOCKS_REQUIRED(resolving_);
  void PublishLinks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(resolving_);
  void StopResolving();

  const ReportOptions* const options_;
  Logger* const logger_;
  const Resolver resolver_;
  std::vector<std::string> names_;                                  // to resolve; fixed
  std::map<std::string, std::shared_ptr<DaemonLink>> fixed_links_;  // by address, an IP's or a socket's; fixed

  Mutex resolving_;
  // By name and address: answers in a row without it.
  std::map<std::string, std::map<std::string, int>> resolved_ ABSL_GUARDED_BY(resolving_);
  std::map<std::string, std::shared_ptr<DaemonLink>> resolved_links_ ABSL_GUARDED_BY(resolving_);  // by address
  // By host; null while it is merged into another's.
  std::map<std::string, std::shared_ptr<DaemonLink>> host_links_ ABSL_GUARDED_BY(resolving_);
  std::set<std::string> unresolved_ ABSL_GUARDED_BY(resolving_);  // names that the last attempt found nothing for

  Published<Links> links_;
  StopSignal stop_;
  std::thread thread_;  // last; not there without names or hosts to resolve
};

}  // namespace icache
