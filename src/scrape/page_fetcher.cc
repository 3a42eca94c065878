#include "icache/scrape/page_fetcher.h"

#include <curl/curl.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace icache {
namespace {

struct Page {
  std::string text;
  size_t max_bytes;
};

size_t AppendTo(char* data, size_t one, size_t size, void* to) {
  auto& page = *static_cast<Page*>(to);
  if (page.text.size() + size > page.max_bytes) return 0;  // ends the transfer
  page.text.append(data, one * size);
  return size;
}

int LookAt(void* stopping, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<std::function<bool()>*>(stopping))() ? 1 : 0;
}

}  // namespace

PageFetcher::PageFetcher(PageFetcherOptions options)
    : options_(std::move(options)), curl_(curl_easy_init(), &curl_easy_cleanup) {}

absl::StatusOr<std::string> PageFetcher::Fetch(const std::string& url, absl::Duration timeout,
                                               std::function<bool()> stopping) {
  Page page = {.text = "", .max_bytes = options_.max_page_bytes};
  char cause[CURL_ERROR_SIZE] = "";
  CURL* const curl = curl_.get();
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // waits for no name at the end
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(timeout)));
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &AppendTo);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &page);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &LookAt);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &stopping);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, cause);
  if (!options_.ca_file.empty()) curl_easy_setopt(curl, CURLOPT_CAINFO, options_.ca_file.c_str());
  if (!options_.certificate_file.empty()) {
    curl_easy_setopt(curl, CURLOPT_SSLCERT, options_.certificate_file.c_str());
    curl_easy_setopt(curl, CURLOPT_SSLKEY, options_.key_file.c_str());
  }
  const CURLcode code = curl_easy_perform(curl);
  if (code == CURLE_OK) return std::move(page.text);
  if (code == CURLE_WRITE_ERROR) {
    return absl::UnavailableError(absl::StrCat("the page has more than ", page.max_bytes, " bytes"));
  }
  return absl::UnavailableError(cause[0] != '\0' ? cause : curl_easy_strerror(code));
}

}  // namespace icache
