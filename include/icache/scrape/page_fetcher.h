// PageFetcher: reads pages of HTTP servers, such as /metrics, within bounds of time and size.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace icache {

struct PageFetcherOptions {
  size_t max_page_bytes;  // longer ones are no answer
  // For https, PEM files: whom to trust, "" = whom the system trusts; and what to show of ourselves, "" = nothing.
  std::string ca_file = "";
  std::string certificate_file = "";
  std::string key_file = "";
};

// Keeps its connection for the next page. Thread-compatible.
class PageFetcher {
 public:
  explicit PageFetcher(PageFetcherOptions options);

  // The page at `url`, which is http:// or https://. Asks no proxy and follows no redirection. Gives up after
  // `timeout`, >= 1 ms, and soon after `stopping` holds. Errors: Unavailable, with the cause in one line.
  absl::StatusOr<std::string> Fetch(
      const std::string& url, absl::Duration timeout, std::function<bool()> stopping = [] { return false; });

 private:
  const PageFetcherOptions options_;
  const std::unique_ptr<void, void (*)(void*)> curl_;
};

}  // namespace icache
