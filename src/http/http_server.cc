#include "icache/http/http_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "http/tls_sessions.h"
#include "icache/base/status_macros.h"
#include "icache/net/listening_sockets.h"

namespace icache {

namespace {

using SteadyClock = std::chrono::steady_clock;
using SteadyTime = SteadyClock::time_point;

// The large body of an answer.
struct Page {
  std::string body;
  SteadyTime made;
};

// One connection, from when it is accepted until the library has closed it.
struct Client {
  int socket;
  std::string address;
  SteadyTime since;
  SteadyTime due;                                     // when its request, and then its answer, has to be through
  bool has_asked = false;                             // the head of its request has been read
  bool is_ending = false;                             // by our own will
  bool in_handshake = false;                          // of TLS
  std::shared_ptr<const TlsCredentials> credentials;  // live as long as it does; null without TLS
  std::shared_ptr<const Page> page;                   // likewise; null when its answer has none
};

}  // namespace

// What the server's thread works with.
struct HttpServing {
  HttpServing(HttpHandlers own_handlers, const HttpServerOptions& own_options)
      : handlers(std::move(own_handlers)), options(own_options), sessions(options.tls) {}

  // Serves until `stop` can be read.
  void Run(MHD_Daemon* daemon);

  // Accepts what waits at one of the sockets, as long as there is room, and not too many at once. False when resources
  // have run out.
  bool AcceptWaiting(MHD_Daemon* daemon, int listening_fd);
  // Whether others are left their descriptors when one more is taken.
  bool HasDescriptor() const;
  // From when on one more connection has room: min(), once one that is there has had its time and can be ended for it,
  // or once the library has closed some of those that have been ended.
  SteadyTime HasRoomFrom();
  // Ends those that have not asked, or taken their answer, in time; when unsent pages take too many bytes, all to whom
  // one is sent and who have had their least stay. Returns when the next one is due.
  SteadyTime EndSlow(SteadyTime now);
  // Ends a connection in favour of one from `address`: of the address's if they are as many as its share, else of all
  // if it `is_full`.
  void MakeRoomFor(const std::string& address, bool is_full);
  // Ends the connection that goes first of all, if it has had its least stay.
  void EndFirst();
  // The connection that goes first for want of room, of all or of one address's: the oldest, of those that have had
  // their least stay if there is one, of those that have not asked if there is one. Null when there is none.
  Client* FirstToGo(const std::string* address);
  // A page that counts among the unsent ones as long as somebody holds it.
  std::shared_ptr<const Page> Keep(std::string body);
  // Ends those whose clients have gone before they had asked. Where a client's last bytes and its end arrive at once,
  // the library reads the bytes and does not look for the end.
  void EndGone();
  void End(Client* client, Cut why);
  // The library closes what has been shut down.
  static void ShutDown(Client* client);

  const HttpHandlers handlers;
  const HttpServerOptions options;
  TlsSessions sessions;  // unused without TLS
  ListeningSockets sockets{"HTTP"};
  int port = 0;
  OwnedFd stop;                       // an eventfd
  size_t unsent_bytes = 0;            // of pages
  std::weak_ptr<const Page> metrics;  // the latest one; null once nobody is sent it
  std::list<Client> clients;          // the oldest first
};

namespace {

constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kJson[] = "application/json";
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";

// What GnuTLS negotiates: its own choice, of TLS 1.2 and 1.3 alone.
constexpr char kTlsPriorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

constexpr size_t kMaxTargetBytes = 8 << 10;
constexpr std::ptrdiff_t kMaxParameters = 64;

constexpr uint64_t kLongestWaitMs = 60'000;
// While a TLS handshake is under way.
constexpr uint64_t kLeastWaitMs = 2;
// How often, while there is no room, it is looked for clients who have gone.
constexpr int kLookForGoneMs = 50;
// At one socket at a time, so that clients who only connect do not keep all others from being served. As many may have
// been ended and not be closed yet.
constexpr int kMaxAcceptsAtOnce = 64;

// Of the descriptors that may be open, connections get a part, and none of the last ones, which policies and grants are
// read with. gRPC leaves twice as many.
constexpr rlim_t kConnectionsShare = 4;
constexpr rlim_t kLeastConnections = 16;
constexpr rlim_t kReservedShare = 32;
constexpr rlim_t kMaxReserved = 32;

rlim_t DescriptorLimit() {
  rlimit limit;
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : RLIM_INFINITY;
}

// `text` as one line.
std::string OneLine(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  return line + "\n";
}

struct Reply {
  unsigned status;
  std::string body;
  const char* content_type = kPlainText;
  std::shared_ptr<const Page> page = nullptr;  // in place of the body, if it is not null
};

bool OnlyReads(std::string_view method) { return method == MHD_HTTP_METHOD_GET || method == MHD_HTTP_METHOD_HEAD; }

// What a request gets for whose page there is no room.
Reply RefuseForRoom(const HttpHandlers& handlers) {
  if (handlers.connection_observer != nullptr) handlers.connection_observer->OnCut(Cut::kRoom);
  return {MHD_HTTP_SERVICE_UNAVAILABLE, "too many answers are being sent\n"};
}

// Scrapers who come while another is sent a page share it as long as it is new: however many ask, and however slowly
// they read, pages are neither made nor kept for each.
Reply MetricsReply(HttpServing* serving) {
  std::shared_ptr<const Page> page = serving->metrics.lock();
  const auto lasts = absl::ToChronoNanoseconds(serving->options.metrics_shared_for);
  if (page == nullptr || page->made + lasts <= SteadyClock::now()) {
    if (serving->unsent_bytes >= serving->options.max_unsent_bytes) return RefuseForRoom(serving->handlers);
    page = serving->Keep(serving->handlers.metrics());
    serving->metrics = page;
  }
  return {MHD_HTTP_OK, "", kPrometheusText, std::move(page)};
}

// What the paths of probes and scrapers answer, whoever asks; nullopt for other paths.
std::optional<Reply> ReplyToAll(std::string_view method, std::string_view path, HttpServing* serving) {
  const bool health = path == "/healthz";
  const bool metrics = path == "/metrics";
  if (!health && !metrics && path != "/readyz") return std::nullopt;
  if (!OnlyReads(method)) return Reply{MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n"};
  if (metrics) return MetricsReply(serving);
  const absl::Status status = health ? absl::OkStatus() : serving->handlers.ready();
  if (status.ok()) return Reply{MHD_HTTP_OK, "ok\n"};
  const absl::string_view why = status.message();
  return Reply{MHD_HTTP_SERVICE_UNAVAILABLE, OneLine({why.data(), why.size()})};
}

// The TLS session of a connection; null without TLS.
gnutls_session_t SessionOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
  return info == nullptr ? nullptr : static_cast<gnutls_session_t>(info->tls_session);
}

// An IPv4 address that comes by a socket of both families is written as what it is.
std::string TextOf(const sockaddr* client) {
  char text[INET6_ADDRSTRLEN] = "";
  if (client->sa_family != AF_INET6) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(client)->sin_addr, text, sizeof(text));
    return text;
  }
  const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(client)->sin6_addr;
  const bool is_v4 = IN6_IS_ADDR_V4MAPPED(&address);
  inet_ntop(is_v4 ? AF_INET : AF_INET6, is_v4 ? &address.s6_addr[12] : address.s6_addr, text, sizeof(text));
  return text;
}

// Called by the TLS library before and after it takes in or sends a message of a handshake. An error ends that.
int OnMessage(gnutls_session_t session, unsigned type, unsigned when, unsigned incoming,
              const gnutls_datum_t* /*message*/) {
  if (incoming == 0) return 0;
  if (type == GNUTLS_HANDSHAKE_CERTIFICATE_VERIFY && when == GNUTLS_HOOK_PRE) return CheckClientKey(session);
  if (type == GNUTLS_HANDSHAKE_FINISHED && when == GNUTLS_HOOK_POST) {
    static_cast<Client*>(gnutls_session_get_ptr(session))->in_handshake = false;
  }
  return 0;
}

// Called by the library when a connection begins, before its TLS handshake, and when it has ended.
void OnConnection(void* server, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode code) {
  auto& serving = *static_cast<HttpServing*>(server);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    Client& client = serving.clients.emplace_back();
    client.socket = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
    client.address = TextOf(MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
    client.since = SteadyClock::now();
    client.due = client.since + absl::ToChronoNanoseconds(serving.options.request_timeout);
    if (serving.options.tls != nullptr) {
      const gnutls_session_t session = SessionOf(connection);
      client.credentials = serving.sessions.Current();
      client.credentials->Give(session);
      client.in_handshake = true;
      gnutls_session_set_ptr(session, &client);
      gnutls_handshake_set_hook_function(session, GNUTLS_HANDSHAKE_ANY, GNUTLS_HOOK_BOTH, &OnMessage);
    }
    *context = &client;
  } else {
    const auto client = std::find_if(serving.clients.begin(), serving.clients.end(),
                                     [ended = *context](const Client& one) { return &one == ended; });
    ConnectionObserver* const observer = serving.handlers.connection_observer;
    if (observer != nullptr && client->in_handshake && !client->is_ending) {
      observer->OnHandshakeFailed(client->address, "");
    }
    serving.clients.erase(client);
  }
}

Client& ClientOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return *static_cast<Client*>(info->socket_context);
}

// Whether the client may see what is not for all.
absl::Status Admit(MHD_Connection* connection, const HttpHandlers& handlers) {
  HttpCaller caller;
  const TlsCredentials* const tls = ClientOf(connection).credentials.get();
  if (tls != nullptr && tls->client_authority() != nullptr) {
    ASSIGN_OR_RETURN(caller.certificate_names, tls->client_authority()->NamesOf(ClientChain(SessionOf(connection))));
  }
  if (!handlers.admit) return absl::OkStatus();
  const char* const header = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  if (header != nullptr) caller.authorization = header;
  return handlers.admit(caller);
}

Reply Refuse(const absl::Status& admitted, AccessObserver* observer) {
  const absl::string_view why = admitted.message();
  const bool unknown = absl::IsUnauthenticated(admitted);
  if (observer != nullptr) observer->OnRefused(unknown ? Refusal::kUnauthenticated : Refusal::kPermissionDenied);
  const unsigned status = unknown ? MHD_HTTP_UNAUTHORIZED : MHD_HTTP_FORBIDDEN;
  return {status, OneLine({why.data(), why.size()})};
}

HttpQuery QueryOf(MHD_Connection* connection) {
  HttpQuery query;
  const auto add = [](void* to, MHD_ValueKind, const char* key, size_t key_size, const char* value, size_t value_size) {
    static_cast<HttpQuery*>(to)->emplace_back(std::string(key, key_size), std::string(value, value_size));
    return MHD_YES;
  };
  MHD_get_connection_values_n(connection, MHD_GET_ARGUMENT_KIND, add, &query);
  return query;
}

// What the other paths answer to whom is admitted.
Reply ReplyToAdmitted(MHD_Connection* connection, std::string_view method, std::string_view path,
                      HttpServing* serving) {
  const HttpHandlers& handlers = serving->handlers;
  const auto page = handlers.pages.find(path);
  if (page == handlers.pages.end()) return {MHD_HTTP_NOT_FOUND, "not found\n"};
  if (!OnlyReads(method)) return {MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n"};
  if (serving->unsent_bytes >= serving->options.max_unsent_bytes) return RefuseForRoom(handlers);
  absl::StatusOr<std::string> body = page->second(QueryOf(connection));
  if (body.ok()) return {MHD_HTTP_OK, "", kJson, serving->Keep(*std::move(body))};
  const absl::string_view why = body.status().message();
  const unsigned status =
      absl::IsInvalidArgument(body.status()) ? MHD_HTTP_BAD_REQUEST : MHD_HTTP_INTERNAL_SERVER_ERROR;
  return {status, OneLine({why.data(), why.size()})};
}

// What Answer() finds in place of nothing when the target of a request is over a bound.
char target_refused = 0;

// Called by the library once the target of a request is read, before it is taken apart. Each parameter takes a place in
// the connection's memory, and when that is full the library leaves the client without an answer; so where there are
// too many, they are made one, which nobody will read.
void* OnTarget(void* /*unused*/, const char* target, MHD_Connection* /*connection*/) {
  char* const begin = const_cast<char*>(target);  // it lies in the connection's own buffer
  char* const end = begin + std::strlen(begin);
  if (end - begin <= std::ptrdiff_t{kMaxTargetBytes} && std::count(begin, end, '&') < kMaxParameters) return nullptr;
  std::replace(begin, end, '&', '+');
  return &target_refused;
}

// What a request gets whose target is over a bound.
Reply RefuseTarget() {
  return {MHD_HTTP_URI_TOO_LONG, "a target may have " + std::to_string(kMaxTargetBytes) + " bytes and " +
                                     std::to_string(kMaxParameters) + " parameters\n"};
}

// Called by the library once the head of a request is read. An answer given here, before the body, makes it refuse the
// body; MHD_NO makes it close the connection. No exception may reach it: it is C.
MHD_Result Answer(void* server, MHD_Connection* connection, const char* path, const char* method,
                  const char* /*version*/, const char* /*body*/, size_t* /*body_size*/, void** request) {
  try {
    auto& serving = *static_cast<HttpServing*>(server);
    Client& client = ClientOf(connection);
    client.has_asked = true;
    client.due = SteadyClock::now() + absl::ToChronoNanoseconds(serving.options.answer_timeout);
    std::optional<Reply> reply = *request == &target_refused ? RefuseTarget() : ReplyToAll(method, path, &serving);
    if (!reply.has_value()) {
      const absl::Status admitted = Admit(connection, serving.handlers);
      reply = admitted.ok() ? ReplyToAdmitted(connection, method, path, &serving)
                            : Refuse(admitted, serving.handlers.access_observer);
    }
    client.page = reply->page;
    const std::string& body = client.page != nullptr ? client.page->body : reply->body;
    const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> response(
        MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()),
                                        client.page != nullptr ? MHD_RESPMEM_PERSISTENT : MHD_RESPMEM_MUST_COPY),
        &MHD_destroy_response);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONTENT_TYPE, reply->content_type);
    MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CONNECTION, "close");
    if (reply->content_type == kJson) {
      MHD_add_response_header(response.get(), MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    }
    if (reply->status == MHD_HTTP_METHOD_NOT_ALLOWED) {
      MHD_add_response_header(response.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    }
    if (reply->status == MHD_HTTP_UNAUTHORIZED) {
      MHD_add_response_header(response.get(), MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
    }
    return MHD_queue_response(connection, reply->status, response.get());
  } catch (...) {
    return MHD_NO;
  }
}

// Set once the library has found its own state broken while it serves.
std::atomic<bool> panicked = false;

// The library would end the process, and does not allow this to return. Instead its thread stays here for good: probes
// go unanswered, so that the process gets replaced in good order, and lookups are served until then.
[[noreturn]] void OnPanic(void* /*unused*/, const char* /*file*/, unsigned /*line*/, const char* /*reason*/) {
  panicked = true;
  for (;;) pause();
}

}  // namespace

absl::Status CheckHttpIdentity(const TlsIdentity& identity) { return TlsCredentials::Create(identity).status(); }

void HttpServing::Run(MHD_Daemon* daemon) {
  pthread_setname_np(pthread_self(), "http");
  const int library_fd = MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  std::vector<pollfd> polled = {{.fd = stop.get(), .events = POLLIN, .revents = 0},
                                {.fd = library_fd, .events = POLLIN, .revents = 0}};
  const size_t first_listener = polled.size();
  for (const OwnedFd& fd : sockets.fds()) polled.push_back({.fd = fd.get(), .events = 0, .revents = 0});
  SteadyTime has_resources_from = SteadyTime::min();
  SteadyTime look_for_gone_at = SteadyTime::min();
  while (true) {
    const SteadyTime now = SteadyClock::now();
    SteadyTime wake_at = EndSlow(now);
    if (MHD_UNSIGNED_LONG_LONG timeout_ms = 0; MHD_get_timeout(daemon, &timeout_ms) == MHD_YES) {
      // GnuTLS reads by itself, and the library is not told that there was nothing: it would try again without pause.
      const bool in_handshake =
          std::any_of(clients.begin(), clients.end(), [](const Client& client) { return client.in_handshake; });
      const uint64_t least_ms = in_handshake ? kLeastWaitMs : 0;
      wake_at = std::min(wake_at,
                         now + std::chrono::milliseconds(std::clamp<uint64_t>(timeout_ms, least_ms, kLongestWaitMs)));
    }
    const SteadyTime accepts_from = std::max(has_resources_from, HasRoomFrom());
    const bool accepts = accepts_from <= now;
    if (!accepts) {
      if (now >= look_for_gone_at) {
        EndGone();
        look_for_gone_at = now + std::chrono::milliseconds(kLookForGoneMs);
      }
      wake_at = std::min({wake_at, accepts_from, look_for_gone_at});
    }
    for (size_t i = first_listener; i < polled.size(); ++i) polled[i].events = accepts ? POLLIN : 0;

    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::max(wake_at - now, SteadyClock::duration()));
    poll(polled.data(), polled.size(), static_cast<int>(std::min<uint64_t>(wait.count(), kLongestWaitMs)));
    if (polled[0].revents != 0) return;
    for (size_t i = first_listener; i < polled.size(); ++i) {
      if ((polled[i].revents & POLLIN) == 0 || AcceptWaiting(daemon, polled[i].fd)) continue;
      has_resources_from = SteadyClock::now() + std::chrono::milliseconds(kNoResourcesPauseMs);
    }
    MHD_run(daemon);
  }
}

bool HttpServing::AcceptWaiting(MHD_Daemon* daemon, int listening_fd) {
  Connection connection;
  for (int i = 0; i < kMaxAcceptsAtOnce; ++i) {
    const SteadyTime room_from = HasRoomFrom();
    if (room_from > SteadyClock::now()) return true;
    const AcceptResult result = Accept(listening_fd, &connection);
    if (result == AcceptResult::kNoneWaits) return true;
    if (result == AcceptResult::kNoResources) {
      if (handlers.connection_observer != nullptr) handlers.connection_observer->OnAcceptFailed(errno);
      EndFirst();
      return false;
    }
    const bool is_full = room_from != SteadyTime::min();
    const auto* const address = reinterpret_cast<const sockaddr*>(&connection.address);
    MakeRoomFor(TextOf(address), is_full);
    // Takes over the socket, whatever comes of it, and calls OnConnection() at once.
    MHD_add_connection(daemon, connection.fd.Release(), address, connection.address_size);
    if (is_full) return true;  // the next one has room once the library has closed the one that has been ended
  }
  return true;
}

bool HttpServing::HasDescriptor() const {
  const rlim_t limit = DescriptorLimit();
  const OwnedFd lowest_free(fcntl(stop.get(), F_DUPFD_CLOEXEC, 0));
  const rlim_t reserve = std::min(limit / kReservedShare, kMaxReserved);
  return lowest_free.get() >= 0 && static_cast<rlim_t>(lowest_free.get()) < limit - reserve;
}

SteadyTime HttpServing::HasRoomFrom() {
  if (clients.size() >= options.max_connections + kMaxAcceptsAtOnce) return SteadyTime::max();
  const auto is_there = [](const Client& client) { return !client.is_ending; };
  const auto oldest = std::find_if(clients.begin(), clients.end(), is_there);
  if (oldest == clients.end()) return SteadyTime::min();
  const auto count = static_cast<size_t>(std::count_if(oldest, clients.end(), is_there));
  if (count < options.max_connections && HasDescriptor()) return SteadyTime::min();
  return oldest->since + absl::ToChronoNanoseconds(options.least_stay);
}

SteadyTime HttpServing::EndSlow(SteadyTime now) {
  const bool is_full = unsent_bytes >= options.max_unsent_bytes;
  const auto least_stay = absl::ToChronoNanoseconds(options.least_stay);
  SteadyTime next = SteadyTime::max();
  for (Client& client : clients) {
    if (client.is_ending) continue;
    const bool is_in_the_way = is_full && client.page != nullptr;
    const SteadyTime due = is_in_the_way ? std::min(client.due, client.since + least_stay) : client.due;
    if (due <= now) {
      End(&client, is_in_the_way ? Cut::kRoom : Cut::kSlow);
    } else {
      next = std::min(next, due);
    }
  }
  return next;
}

void HttpServing::EndFirst() {
  Client* const first = FirstToGo(nullptr);
  const auto least_stay = absl::ToChronoNanoseconds(options.least_stay);
  if (first != nullptr && first->since + least_stay <= SteadyClock::now()) End(first, Cut::kRoom);
}

void HttpServing::MakeRoomFor(const std::string& address, bool is_full) {
  const auto count = std::count_if(clients.begin(), clients.end(), [&](const Client& client) {
    return !client.is_ending && client.address == address;
  });
  if (static_cast<size_t>(count) >= options.max_connections_per_address) {
    End(FirstToGo(&address), Cut::kRoom);
  } else if (is_full) {
    EndFirst();
  }
}

Client* HttpServing::FirstToGo(const std::string* address) {
  const SteadyTime had_its_stay = SteadyClock::now() - absl::ToChronoNanoseconds(options.least_stay);
  const auto rank = [&](const Client& client) { return std::make_pair(client.since > had_its_stay, client.has_asked); };
  Client* first = nullptr;
  for (Client& client : clients) {
    if (client.is_ending || (address != nullptr && client.address != *address)) continue;
    if (first == nullptr || rank(client) < rank(*first)) first = &client;
  }
  return first;
}

std::shared_ptr<const Page> HttpServing::Keep(std::string body) {
  const size_t size = body.size();
  auto page = std::make_unique<const Page>(Page{std::move(body), SteadyClock::now()});
  unsent_bytes += size;
  return {page.release(), [this, size](const Page* sent) {
            unsent_bytes -= size;
            delete sent;
          }};
}

void HttpServing::EndGone() {
  for (Client& client : clients) {
    char next;
    if (client.is_ending || client.has_asked || recv(client.socket, &next, 1, MSG_PEEK | MSG_DONTWAIT) != 0) continue;
    ShutDown(&client);
  }
}

void HttpServing::End(Client* client, Cut why) {
  if (handlers.connection_observer != nullptr) handlers.connection_observer->OnCut(why);
  ShutDown(client);
}

void HttpServing::ShutDown(Client* client) {
  client->is_ending = true;
  shutdown(client->socket, SHUT_RDWR);
}

HttpServer::HttpServer(std::unique_ptr<HttpServing> serving) : serving_(std::move(serving)) {}

HttpServer::~HttpServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& wanted, HttpHandlers handlers) {
  HttpServerOptions options = wanted;
  const rlim_t descriptors_for_it = std::max(DescriptorLimit() / kConnectionsShare, kLeastConnections);
  options.max_connections = static_cast<unsigned>(std::min<rlim_t>(options.max_connections, descriptors_for_it));
  auto serving = std::make_unique<HttpServing>(std::move(handlers), options);
  std::vector<MHD_OptionItem> more;
  std::shared_ptr<const TlsIdentity> identity;
  if (options.tls != nullptr) {
    if (serving->sessions.Current() == nullptr)
      return absl::InvalidArgumentError("HTTP cannot use the TLS certificate");
    identity = options.tls->Current();
    // What the library itself would use; each connection is given its own.
    more.push_back({MHD_OPTION_HTTPS_MEM_CERT, 0, const_cast<char*>(identity->certificate_chain.c_str())});
    more.push_back({MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)});
    more.push_back({MHD_OPTION_HTTPS_MEM_KEY, 0, const_cast<char*>(identity->private_key.c_str())});
  }
  more.push_back({MHD_OPTION_NOTIFY_CONNECTION, reinterpret_cast<intptr_t>(&OnConnection), serving.get()});
  more.push_back({MHD_OPTION_END, 0, nullptr});

  RETURN_IF_ERROR(serving->sockets.Add(options.address).status());
  serving->port = BoundPort(serving->sockets.fds().front().get());
  serving->stop = OwnedFd(eventfd(0, EFD_CLOEXEC));
  std::unique_ptr<HttpServer> server(new HttpServer(std::move(serving)));
  MHD_set_panic_func(&OnPanic, nullptr);
  const unsigned tls_flag = options.tls != nullptr ? MHD_USE_TLS : 0;
  // Without MHD_USE_ERROR_LOG it says nothing about what clients do. Its own bound on connections is ours, with
  // those that it has yet to close.
  server->daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | tls_flag, /*port=*/0, /*apc=*/nullptr, /*apc_cls=*/nullptr, &Answer,
      server->serving_.get(), MHD_OPTION_URI_LOG_CALLBACK, &OnTarget, nullptr, MHD_OPTION_CONNECTION_LIMIT,
      options.max_connections + kMaxAcceptsAtOnce, MHD_OPTION_CONNECTION_MEMORY_LIMIT, options.max_connection_bytes,
      MHD_OPTION_CONNECTION_TIMEOUT, static_cast<unsigned>(absl::ToInt64Seconds(options.idle_timeout)),
      MHD_OPTION_ARRAY, more.data(), MHD_OPTION_END);
  if (server->daemon_ == nullptr) {
    return absl::UnavailableError("cannot serve HTTP on \"" + options.address + "\": " + std::strerror(errno));
  }
  server->thread_ = std::thread([&serving = *server->serving_, daemon = server->daemon_] { serving.Run(daemon); });
  return server;
}

int HttpServer::port() const { return serving_->port; }

void HttpServer::Stop() {
  if (!thread_.joinable()) return;
  if (panicked) {
    thread_.detach();  // stuck in OnPanic() for good, where it touches nothing any more
    return;
  }
  eventfd_write(serving_->stop.get(), 1);
  thread_.join();
  serving_->sockets.Close();
  MHD_stop_daemon(std::exchange(daemon_, nullptr));
}

}  // namespace icache
