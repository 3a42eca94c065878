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
#include "icache/base/host_port.h"

namespace icache {
namespace {

constexpr std::string_view kDnsPrefix = "dns:";
constexpr int kMissingForGood = 3;
constexpr size_t kMaxResolved = 64;                        // addresses of one name
constexpr absl::Duration kLook = absl::Milliseconds(100);  // how often a lookup looks whether it is told to stop

// Whether the host is an IP address.
bool IsNumeric(const std::string& host) {
  in_addr address;
  return host.starts_with("[") || inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ResolveBySystem(const std::string& host_port,
                                                         const std::function<bool()>& stopping) {
  // What the C library works on beside us; it may be at it still when nobody waits for it any more.
  struct Lookup {
    std::string host;
    std::string port;
    addrinfo hints = {};
    gaicb request = {};
    ~Lookup() {
      if (request.ar_result != nullptr) freeaddrinfo(request.ar_result);
    }
  };
  auto lookup = std::make_unique<Lookup>();
  lookup->host = std::string(HostOf(host_port));
  lookup->port = host_port.substr(lookup->host.size() + 1);
  lookup->hints.ai_socktype = SOCK_STREAM;
  lookup->hints.ai_flags = AI_NUMERICSERV;
  lookup->request.ar_name = lookup->host.c_str();
  lookup->request.ar_service = lookup->port.c_str();
  lookup->request.ar_request = &lookup->hints;
  gaicb* requests[] = {&lookup->request};
  int error = getaddrinfo_a(GAI_NOWAIT, requests, 1, nullptr);
  while (error == 0 && (error = gai_error(&lookup->request)) == EAI_INPROGRESS) {
    if (stopping()) {
      if (gai_cancel(&lookup->request) != EAI_CANCELED) (void)lookup.release();  // the library's for good
      return absl::UnavailableError("told to stop");
    }
    const timespec wait = absl::ToTimespec(kLook);
    gai_suspend(requests, 1, &wait);
    error = 0;
  }
  if (error != 0) return absl::UnavailableError(gai_strerror(error));
  std::set<std::string> addresses;
  for (const addrinfo* one = lookup->request.ar_result; one != nullptr && addresses.size() < kMaxResolved;
       one = one->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(one->ai_addr, one->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) continue;
    const bool v6 = one->ai_family == AF_INET6;
    addresses.insert(v6 ? absl::StrCat("[", text, "]:", lookup->port) : absl::StrCat(text, ":", lookup->port));
  }
  return std::vector<std::string>(addresses.begin(), addresses.end());
}

DaemonSet::DaemonSet(const ReportOptions* options, Logger* logger, Resolver resolver)
    : options_(options), logger_(logger), resolver_(std::move(resolver)) {
  for (const std::string& daemon : options_->daemons) {
    if (daemon.starts_with(kDnsPrefix)) {
      names_.push_back(daemon.substr(kDnsPrefix.size()));
      continue;
    }
    const bool is_host = !daemon.starts_with("unix:") && !IsNumeric(std::string(HostOf(daemon)));
    std::shared_ptr<DaemonLink>& link = (is_host ? host_links_ : fixed_links_)[daemon];
    if (link == nullptr) link = std::make_shared<DaemonLink>(daemon, "", options_, logger_);
  }
  PublishLinks();
  const bool may_be_doubles = !host_links_.empty() && host_links_.size() + fixed_links_.size() > 1;
  if (names_.empty() && !may_be_doubles) return;
  thread_ = std::thread([this] { Run(); });
  pthread_setname_np(thread_.native_handle(), "resolver");
}

DaemonSet::~DaemonSet() { StopResolving(); }

void DaemonSet::StopResolving() {
  stop_.Give();
  if (thread_.joinable()) thread_.join();
}

void DaemonSet::Run() {
  const auto interval = absl::ToChronoNanoseconds(options_->resolve_interval);
  do {
    Resolve();
  } while (!stop_.AwaitUntil(std::chrono::steady_clock::now() + interval));
}

void DaemonSet::Resolve() {
  Links gone;  // ends outside of the locks
  MutexLock resolving(&resolving_);
  if (!ResolveNames(&gone)) return;
  MergeHosts(&gone);
  PublishLinks();
}

bool DaemonSet::ResolveNames(Links* gone) {
  std::map<std::string, std::shared_ptr<DaemonLink>> found;
  for (const std::string& name : names_) {
    const absl::StatusOr<std::vector<std::string>> answer = resolver_(name, [this] { return stop_.IsGiven(); });
    if (stop_.IsGiven()) return false;
    std::map<std::string, int>& known = resolved_[name];
    if (!answer.ok() || answer->empty()) {
      if (unresolved_.insert(name).second) logger_->Warn("daemons_unresolved", {{"name", name}});
    } else {
      unresolved_.erase(name);
      for (auto& [address, missing] : known) ++missing;
      for (const std::string& address : *answer) known[address] = 0;
      std::erase_if(known, [](const auto& one) { return one.second >= kMissingForGood; });
    }
    for (const auto& [address, missing] : known) {
      if (fixed_links_.contains(address)) continue;
      std::shared_ptr<DaemonLink>& link = found[address];
      if (link == nullptr) link = std::move(resolved_links_[address]);
      if (link != nullptr) continue;
      logger_->Info("daemon_found", {{"name", name}, {"address", address}});
      link = std::make_shared<DaemonLink>(address, std::string(HostOf(name)), options_, logger_);
    }
  }
  for (auto& [address, link] : resolved_links_) {
    if (link == nullptr) continue;
    logger_->Info("daemon_gone", {{"address", address}});
    gone->push_back(std::move(link));
  }
  resolved_links_ = std::move(found);
  return true;
}

void DaemonSet::MergeHosts(Links* gone) {
  std::map<std::string, std::string> owners;  // by address: what is configured that stands for it
  for (const auto& [address, link] : fixed_links_) owners[address] = address;
  for (const auto& [name, addresses] : resolved_) {
    for (const auto& [address, missing] : addresses) owners.try_emplace(address, name);
  }
  for (auto& [host, link] : host_links_) {
    const absl::StatusOr<std::vector<std::string>> answer = resolver_(host, [this] { return stop_.IsGiven(); });
    if (!answer.ok()) continue;  // its link says so
    const auto owner =
        std::find_if(answer->begin(), answer->end(), [&](const auto& one) { return owners.contains(one); });
    if (owner != answer->end()) {
      if (link == nullptr) continue;
      logger_->Warn("daemon_named_twice", {{"address", host}, {"other", owners[*owner]}});
      gone->push_back(std::move(link));
      continue;
    }
    for (const std::string& address : *answer) owners[address] = host;
    if (link == nullptr) link = std::make_shared<DaemonLink>(host, "", options_, logger_);
  }
}

void DaemonSet::PublishLinks() {
  auto links = std::make_shared<Links>();
  for (const auto* all : {&fixed_links_, &host_links_, &resolved_links_}) {
    for (const auto& [address, link] : *all) {
      if (link != nullptr) links->push_back(link);
    }
  }
  links_.Publish(std::move(links));
}

void DaemonSet::Flush(absl::Time deadline) {
  StopResolving();
  const std::shared_ptr<const Links> all = links();
  for (const auto& link : *all) link->BeginFlush(deadline);
  for (const auto& link : *all) link->WaitForFlush();
}

}  // namespace icache
