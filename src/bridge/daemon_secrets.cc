#include "bridge/daemon_secrets.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "icache/base/status_macros.h"
#include "icache/config/file_set.h"
#include "icache/config/tls_loader.h"

namespace icache {

absl::StatusOr<DaemonSecrets> ReadDaemonSecrets(const ReportOptions& options) {
  DaemonSecrets secrets;
  if (options.tls && !options.tls_ca_file.empty()) {
    ASSIGN_OR_RETURN(secrets.ca, LoadCertificates(options.tls_ca_file));
  }
  if (options.tls && !options.tls_cert_file.empty()) {
    ASSIGN_OR_RETURN(const auto identity, LoadTlsIdentity({options.tls_cert_file, options.tls_key_file, ""}));
    secrets.certificate = identity->certificate_chain;
    secrets.key = identity->private_key;
  }
  if (!options.token_file.empty()) {
    ASSIGN_OR_RETURN(const std::vector<TextFile> files, ReadFileSet({options.token_file}));
    secrets.token = std::string(absl::StripAsciiWhitespace(files[0].text));
    // What a header cannot hold, the daemon would never get to see.
    const bool is_graphic = std::all_of(secrets.token.begin(), secrets.token.end(),
                                        [](char c) { return absl::ascii_isgraph(static_cast<unsigned char>(c)); });
    if (secrets.token.empty() || !is_graphic) {
      return absl::InvalidArgumentError(absl::StrCat(options.token_file, ": holds no token, or more than one"));
    }
  }
  return secrets;
}

}  // namespace icache
