// HttpServer: /healthz, /readyz and /metrics for probes and scrapers, and pages for those who are let in.
// Source: contract/metrics.md.
//
//   GET or HEAD /healthz   200 "ok" while the process lives
//               /readyz    200 "ok", or 503 and one line that says why not
//               /metrics   200 and the page, as Prometheus text format 0.0.4
//
// These three are open to all. Any other path is 401 without what it takes to be let in or 403 when that is not enough;
// then a page, 400 when that is asked for badly, or 404. Any other method is 405. Each connection carries one request
// and is closed after the answer; a body is never waited for, nor handed on. A target of more than 8 KiB or 64
// parameters is 414, a head that does not fit 431; one that fits but leaves no room for the answer's head gets none.
//
// GNU libmicrohttpd does the work, on one thread that never waits for a client: those that send or read slowly, or not
// at all, hold nothing but their connections, and of those only so many:
//
//   1. A connection on which no byte moves is closed after `idle_timeout`, one whose request has not been read
//      `request_timeout` after it came, TLS handshake included, and one whose answer has not been taken
//      `answer_timeout` after that, whatever moves.
//   2. One address has at most its share of the connections: for one more, one of them is closed. It is never the
//      newest, but the oldest of those that have been there for a second, or of all; of those that have not asked for
//      anything yet if there is one. So a client that opens connection after connection leaves the rest to the others,
//      and does not lock out who shares its address.
//   3. What is over the bound on all connections waits to be accepted until one has ended, or has been there for a
//      second: then one is closed, chosen likewise. Some are accepted at a time, so that all others get their turns.
//      The last descriptors that may be open, a thirty-second of them and 32 at most, are left to others: without them
//      there is no room either.
//   4. A connection takes a fixed amount of memory, and a page until that is sent. Scrapers who come while another is
//      sent a page that is no older than `metrics_shared_for` get the same one. While unsent pages take as many bytes
//      as they may, those who have been there for a second and have not taken theirs are closed, and a request for a
//      new page is 503.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "icache/access/access_observer.h"
#include "icache/access/tls_identity.h"
#include "icache/base/published.h"
#include "icache/net/connection_observer.h"

struct MHD_Daemon;

namespace icache {

struct HttpServing;

struct HttpServerOptions {
  std::string address = "0.0.0.0:8080";  // "HOST:PORT", IPv6 as "[::]:PORT"; port 0 takes a free one
  unsigned max_connections = 1024;       // >= 1; at most a quarter of the open files at start, or 16 if that is more
  unsigned max_connections_per_address = 64;  // >= 1
  size_t max_connection_bytes = 16 << 10;     // memory for the two heads; a request head that does not fit is refused
  absl::Duration idle_timeout = absl::Seconds(10);     // whole seconds without a byte sent or received, >= 1 s
  absl::Duration request_timeout = absl::Seconds(10);  // from connection to request; > 0
  absl::Duration answer_timeout = absl::Seconds(30);   // from request to the end of its answer; > 0
  absl::Duration least_stay = absl::Seconds(1);        // left alone by others who want its room; >= 0
  absl::Duration metrics_shared_for = absl::Milliseconds(250);
  size_t max_unsent_bytes = 64 << 20;  // of pages, shared ones once; the last may go over it
  // Null = plain HTTP, else HTTPS; each connection gets the identity in force when it comes. Holds a value, not owned.
  const Published<TlsIdentity>* tls = nullptr;
};

// What a client shows of itself.
struct HttpCaller {
  std::string_view authorization;              // the header's value; "" = none
  std::vector<std::string> certificate_names;  // alternative names of the subject of its certificate, if it is verified
};

// The parameters of a request's query, unescaped, in its order; one without "=" has the value "".
using HttpQuery = std::vector<std::pair<std::string, std::string>>;

// What the endpoints say. Called on the server's thread, one at a time; they must not block. What they throw costs the
// request its answer, no more.
struct HttpHandlers {
  std::function<absl::Status()> ready;   // OK while lookups are served, else its message is the reason
  std::function<std::string()> metrics;  // the body of /metrics
  // Whether a client may see other paths: OK, or Unauthenticated or PermissionDenied. Null = all may. Where there is a
  // client CA, nobody without a certificate of it gets that far.
  std::function<absl::Status(const HttpCaller&)> admit = nullptr;
  // Told of each request that is not let in, for want of a certificate too. Null = nobody. Not owned.
  AccessObserver* access_observer = nullptr;
  // Told of connections that come to nothing. Null = nobody. Not owned.
  ConnectionObserver* connection_observer = nullptr;
  // What these other paths answer: JSON that nobody may keep, or an InvalidArgument, which tells the client what is
  // wrong with its query.
  std::map<std::string, std::function<absl::StatusOr<std::string>(const HttpQuery&)>, std::less<>> pages = {};
};

// Whether the TLS library of HTTP takes `identity`: OK, or an InvalidArgument that says why not. Thread-safe.
absl::Status CheckHttpIdentity(const TlsIdentity& identity);

class HttpServer {
 public:
  // Listens before it returns. Errors: InvalidArgument for an address that is no HOST:PORT, Unavailable for one that
  // does not resolve or cannot be listened on (taken, not ours, no permission); both name the address.
  static absl::StatusOr<std::unique_ptr<HttpServer>> Start(const HttpServerOptions& options, HttpHandlers handlers);
  // Stops.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // The port listened on.
  int port() const;

  // Closes every connection and returns once the thread has ended, whatever the clients do. Calls after the first do
  // nothing. Not thread-safe.
  void Stop();

 private:
  explicit HttpServer(std::unique_ptr<HttpServing> serving);

  const std::unique_ptr<HttpServing> serving_;
  MHD_Daemon* daemon_ = nullptr;  // owned; null once stopped
  std::thread thread_;
};

}  // namespace icache
