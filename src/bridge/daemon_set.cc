#include "bridge/daemon_set.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

namespace icache {
namespace {

constexpr std::string_view kDnsPrefix = "dns:";
constexpr int kMissingForGood = 3;
constexpr size_t kMaxResolved = 64;  // addresses of one name

std::string HostOf(const std::string& host_port) { return host_port.substr(0, host_port.rfind(':')); }

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveBySystem(const std::string& host_port) {
  const std::string host = HostOf(host_port);
  const std::string port = host_port.substr(host.size() + 1);
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return absl::UnavailableError(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::set<std::string> addresses;
  for (const addrinfo* one = found; one != nullptr && addresses.size() < kMaxResolved; one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const bool v6 = one->ai_family == AF_INET6;
    addresses.insert(v6 ? absl::StrCat("[", text, "]:", port) : absl::StrCat(text, ":", port));
  }
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

DaemonSet::DaemonSet(const ReportOptions* options, Logger* logger, Resolver resolver)
    : options_(options), logger_(logger), resolver_(std::move(resolver)) {
  for (const std::string& daemon : options_->daemons) {
    if (daemon.starts_with(kDnsPrefix)) {
      names_.push_back(daemon.substr(kDnsPrefix.size()));
    } else {
      fixed_links_.push_back(std::make_shared<DaemonLink>(daemon, "", options_, logger_));
    }
  }
  {
    MutexLock lock(&mutex_);
    links_ = std::make_shared<Links>(fixed_links_);
  }
  if (names_.empty()) return;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "resolver");
}

DaemonSet::~DaemonSet() { StopResolving(); }

void DaemonSet::StopResolving() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::shared_ptr<const DaemonSet::Links> DaemonSet::links() const {
  MutexLock lock(&mutex_);
  return links_;
}

void DaemonSet::Run() {
  while (true) {
    Resolve();
    const auto wake_at = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(options_->resolve_interval);
    MutexLock lock(&mutex_);
    while (!stopping_ && stopped_.wait_until(mutex_, wake_at) != std::cv_status::timeout) {
    }
    if (stopping_) return;
  }
}

void DaemonSet::Resolve() {
  Links gone;  // ends outside of the locks
  MutexLock resolving(&resolving_);
  for (const std::string& name : names_) {
    const absl::StatusOr<std::vector<std::string>> answer = resolver_(name);
    if (!answer.ok() || answer->empty()) {
      if (unresolved_.insert(name).second) logger_->Warn("daemons_unresolved", {{"name", name}});
      continue;
    }
    unresolved_.erase(name);
    std::map<std::string, Resolved>& known = resolved_[name];
    for (const std::string& address : *answer) {
      Resolved& one = known[address];
      one.missing = 0;
      if (one.link != nullptr) continue;
      logger_->Info("daemon_found", {{"name", name}, {"address", address}});
      one.link = std::make_shared<DaemonLink>(address, HostOf(name), options_, logger_);
    }
    for (auto one = known.begin(); one != known.end();) {
      const bool there = std::find(answer->begin(), answer->end(), one->first) != answer->end();
      if (there || ++one->second.missing < kMissingForGood) {
        ++one;
        continue;
      }
      logger_->Info("daemon_gone", {{"name", name}, {"address", one->first}});
      gone.push_back(std::move(one->second.link));
      one = known.erase(one);
    }
  }
  auto links = std::make_shared<Links>(fixed_links_);
  for (const auto& [name, addresses] : resolved_) {
    for (const auto& [address, one] : addresses) links->push_back(one.link);
  }
  MutexLock lock(&mutex_);
  links_ = std::move(links);
}

void DaemonSet::Flush(absl::Time deadline) {
  StopResolving();
  const std::shared_ptr<const Links> all = links();
  for (const auto& link : *all) link->BeginFlush(deadline);
  for (const auto& link : *all) link->WaitForFlush();
}

}  // namespace icache
