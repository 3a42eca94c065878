#include "icache/scrape/page_fetcher.h"

#include <curl/curl.h>

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace icache {
namespace {

// As much as libcurl takes of the headers before a page; it has no bound for those behind one.
constexpr size_t kMaxHeaderBytes = 300 << 10;

struct Page {
  std::string text;
  size_t max_bytes;
  size_t header_bytes = 0;
};

// Both end the transfer where they do not take what there is.
size_t AppendTo(char* data, size_t one, size_t size, void* to) {
  auto& page = *static_cast<Page*>(to);
  if (page.text.size() + size > page.max_bytes) return 0;
  page.text.append(data, one * size);
  return size;
}
size_t CountHeader(char* /*data*/, size_t one, size_t size, void* to) {
  auto& page = *static_cast<Page*>(to);
  page.header_bytes += one * size;
  return page.header_bytes > kMaxHeaderBytes ? 0 : size;
}

// Certificates may say anything.
absl::Status Failure(std::string cause) {
  for (char& each : cause) {
    if (absl::ascii_iscntrl(static_cast<unsigned char>(each))) each = '?';
  }
  return absl::UnavailableError(cause);
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
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &CountHeader);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &page);
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
  if (code == CURLE_OK) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200) return std::move(page.text);
    return Failure(absl::StrCat("the server answers ", status, " in place of a page"));
  }
  if (page.header_bytes > kMaxHeaderBytes)
    return Failure(absl::StrCat("more than ", kMaxHeaderBytes, " bytes of headers"));
  if (code == CURLE_WRITE_ERROR) return Failure(absl::StrCat("the page has more than ", page.max_bytes, " bytes"));
  if (code == CURLE_OUT_OF_MEMORY) return Failure("out of memory, or a header that is too long");
  return Failure(cause[0] != '\0' ? cause : curl_easy_strerror(code));
}

}  // namespace icache
