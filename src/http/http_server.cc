#include "icache/http/http_server.h"

#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <list>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "http/tls_sessions.h"
#include "icache/base/status_macros.h"

namespace icache {

namespace {

// One connection, from when it is accepted until the library has closed it.
struct Client {
  int socket;
  std::string address;                                // the bytes of the IP
  bool has_asked = false;                             // its request has been read
  bool is_ending = false;                             // to make room for another
  std::shared_ptr<const TlsCredentials> credentials;  // live as long as it does; null without TLS
};

}  // namespace

// What the library's thread works with.
struct HttpServing {
  HttpServing(HttpHandlers own_handlers, const HttpServerOptions& options)
      : handlers(std::move(own_handlers)),
        tls(options.tls),
        max_per_address(options.max_connections_per_address),
        sessions(options.tls) {}

  const HttpHandlers handlers;
  const Published<TlsIdentity>* const tls;  // null = plain HTTP
  const size_t max_per_address;
  TlsSessions sessions;       // unused without TLS
  std::list<Client> clients;  // the oldest first
};

namespace {

constexpr char kPlainText[] = "text/plain; charset=utf-8";
constexpr char kJson[] = "application/json";
constexpr char kPrometheusText[] = "text/plain; version=0.0.4; charset=utf-8";

// What GnuTLS negotiates: its own choice, of TLS 1.2 and 1.3 alone.
constexpr char kTlsPriorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2";

constexpr size_t kMaxTargetBytes = 8 << 10;
constexpr std::ptrdiff_t kMaxParameters = 64;

struct HostPort {
  std::string host;  // without brackets; "" = every address
  std::string port;
};

std::optional<HostPort> SplitAddress(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  HostPort result{address.substr(0, colon), address.substr(colon + 1)};
  if (result.host.size() >= 2 && result.host.front() == '[' && result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  } else if (result.host.find(':') != std::string::npos) {
    return std::nullopt;
  }
  const bool number = !result.port.empty() && result.port.size() <= 5 &&
                      result.port.find_first_not_of("0123456789") == std::string::npos;
  if (!number || std::stoi(result.port) > 65'535) return std::nullopt;
  return result;
}

// A listening socket for the first of the host's addresses that allows one; the caller's to close.
absl::StatusOr<int> Listen(const std::string& address) {
  const std::optional<HostPort> parts = SplitAddress(address);
  if (!parts.has_value()) return absl::InvalidArgumentError("HTTP address \"" + address + "\" is not HOST:PORT");

  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* const host = parts->host.empty() ? nullptr : parts->host.c_str();
  if (const int error = getaddrinfo(host, parts->port.c_str(), &hints, &found); error != 0) {
    return absl::InvalidArgumentError("HTTP address \"" + address + "\" does not resolve: " + gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> candidates(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* candidate = found; candidate != nullptr; candidate = candidate->ai_next) {
    const int listener = socket(candidate->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    // SO_REUSEADDR lets a restart bind while old connections are in TIME_WAIT; unlike SO_REUSEPORT it never lets two
    // servers listen on one port.
    const int yes = 1;
    if (listener >= 0 && setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
        bind(listener, candidate->ai_addr, candidate->ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0) {
      return listener;
    }
    error = errno;
    if (listener >= 0) close(listener);
  }
  return absl::UnavailableError("cannot listen on HTTP address \"" + address + "\": " + std::strerror(error));
}

int BoundPort(int socket_fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  // The port is at one place in both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
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
};

bool OnlyReads(std::string_view method) { return method == MHD_HTTP_METHOD_GET || method == MHD_HTTP_METHOD_HEAD; }

// What the paths of probes and scrapers answer, whoever asks; nullopt for other paths.
std::optional<Reply> ReplyToAll(std::string_view method, std::string_view path, const HttpHandlers& handlers) {
  const bool health = path == "/healthz";
  const bool metrics = path == "/metrics";
  if (!health && !metrics && path != "/readyz") return std::nullopt;
  if (!OnlyReads(method)) return Reply{MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n"};
  if (metrics) return Reply{MHD_HTTP_OK, handlers.metrics(), kPrometheusText};
  const absl::Status status = health ? absl::OkStatus() : handlers.ready();
  if (status.ok()) return Reply{MHD_HTTP_OK, "ok\n"};
  const absl::string_view why = status.message();
  return Reply{MHD_HTTP_SERVICE_UNAVAILABLE, OneLine({why.data(), why.size()})};
}

// The TLS session of a connection; null without TLS.
gnutls_session_t SessionOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
  return info == nullptr ? nullptr : static_cast<gnutls_session_t>(info->tls_session);
}

std::string AddressOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  if (info == nullptr) return "";
  const auto bytes = [](const auto& address) {
    return std::string(reinterpret_cast<const char*>(&address), sizeof(address));
  };
  return info->client_addr->sa_family == AF_INET6
             ? bytes(reinterpret_cast<const sockaddr_in6*>(info->client_addr)->sin6_addr)
             : bytes(reinterpret_cast<const sockaddr_in*>(info->client_addr)->sin_addr);
}

// Ends a connection of the address's when they are more than its share. The library closes what has been shut down.
void MakeRoom(std::list<Client>& clients, const std::string& address, size_t share) {
  size_t count = 0;
  Client* oldest = nullptr;
  for (Client& client : clients) {
    if (client.is_ending || client.address != address) continue;
    ++count;
    if (oldest == nullptr || (oldest->has_asked && !client.has_asked)) oldest = &client;
  }
  if (count <= share) return;
  oldest->is_ending = true;
  shutdown(oldest->socket, SHUT_RDWR);
}

// Called by the library when a connection begins, before its TLS handshake, and when it has ended.
void OnConnection(void* server, MHD_Connection* connection, void** context, MHD_ConnectionNotificationCode code) {
  auto& serving = *static_cast<HttpServing*>(server);
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    serving.clients.push_back({.socket = info->connect_fd, .address = AddressOf(connection), .credentials = nullptr});
    Client& client = serving.clients.back();
    if (serving.tls != nullptr) {
      client.credentials = serving.sessions.Current();
      client.credentials->Give(SessionOf(connection));
    }
    *context = &client;
    MakeRoom(serving.clients, client.address, serving.max_per_address);
  } else {
    serving.clients.remove_if([ended = *context](const Client& client) { return &client == ended; });
  }
}

// Whether the client may see what is not for all.
absl::Status Admit(MHD_Connection* connection, const Published<TlsIdentity>* tls, const HttpHandlers& handlers) {
  HttpCaller caller;
  if (tls != nullptr && !tls->Current()->client_ca.empty()) {
    const gnutls_session_t session = SessionOf(connection);
    if (!ClientIsVerified(session)) return absl::UnauthenticatedError("a client certificate is needed");
    caller.certificate_names = ClientNames(session);
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
                      const HttpHandlers& handlers) {
  const auto page = handlers.pages.find(path);
  if (page == handlers.pages.end()) return {MHD_HTTP_NOT_FOUND, "not found\n"};
  if (!OnlyReads(method)) return {MHD_HTTP_METHOD_NOT_ALLOWED, "method not allowed\n"};
  absl::StatusOr<std::string> body = page->second(QueryOf(connection));
  if (body.ok()) return {MHD_HTTP_OK, *std::move(body), kJson};
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
    const auto& serving = *static_cast<const HttpServing*>(server);
    const MHD_ConnectionInfo* const info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    static_cast<Client*>(info->socket_context)->has_asked = true;
    std::optional<Reply> reply =
        *request == &target_refused ? RefuseTarget() : ReplyToAll(method, path, serving.handlers);
    if (!reply.has_value()) {
      const absl::Status admitted = Admit(connection, serving.tls, serving.handlers);
      reply = admitted.ok() ? ReplyToAdmitted(connection, method, path, serving.handlers)
                            : Refuse(admitted, serving.handlers.access_observer);
    }
    const std::unique_ptr<MHD_Response, decltype(&MHD_destroy_response)> response(
        MHD_create_response_from_buffer(reply->body.size(), const_cast<char*>(reply->body.data()),
                                        MHD_RESPMEM_MUST_COPY),
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

HttpServer::HttpServer(int port, std::unique_ptr<HttpServing> serving) : port_(port), serving_(std::move(serving)) {}

HttpServer::~HttpServer() { Stop(); }

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpServerOptions& options, HttpHandlers handlers) {
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

  ASSIGN_OR_RETURN(const int listener, Listen(options.address));
  std::unique_ptr<HttpServer> server(new HttpServer(BoundPort(listener), std::move(serving)));
  MHD_set_panic_func(&OnPanic, nullptr);
  const unsigned tls_flag = options.tls != nullptr ? MHD_USE_TLS : 0;
  // Takes over the socket. Without MHD_USE_ERROR_LOG it says nothing about what clients do.
  server->daemon_ = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ITC | tls_flag, /*port=*/0, /*apc=*/nullptr, /*apc_cls=*/nullptr, &Answer,
      server->serving_.get(), MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_URI_LOG_CALLBACK, &OnTarget, nullptr,
      MHD_OPTION_CONNECTION_LIMIT, options.max_connections, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      options.max_connection_bytes, MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(absl::ToInt64Seconds(options.idle_timeout)), MHD_OPTION_ARRAY, more.data(), MHD_OPTION_END);
  if (server->daemon_ == nullptr) {
    // The socket is left alone: depending on what failed, the library has closed it or not.
    return absl::UnavailableError("cannot serve HTTP on \"" + options.address + "\": " + std::strerror(errno));
  }
  return server;
}

void HttpServer::Stop() {
  MHD_Daemon* const daemon = std::exchange(daemon_, nullptr);
  // A thread that is stuck in OnPanic() cannot be joined; it touches nothing any more.
  if (daemon != nullptr && !panicked) MHD_stop_daemon(daemon);
}

}  // namespace icache
