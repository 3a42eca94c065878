#include "icache/wire/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "icache/base/mutex.h"

namespace icache {
namespace {

Mutex observer_mutex;
ConnectionObserver* refusal_observer ABSL_GUARDED_BY(observer_mutex) = nullptr;

void TakeLine(gpr_log_func_args* line) {
  constexpr std::string_view kHandshake = "Handshake failed with fatal error ";
  constexpr std::string_view kCompression = "Compression algorithm ";
  constexpr std::string_view kAssertion = "assertion failed";
  const std::string_view message = line->message;
  if (message.starts_with(kAssertion)) {  // and gRPC ends the process
    std::fprintf(stderr, "gRPC %s:%d: %s\n", line->file, line->line, line->message);
    return;
  }
  MutexLock lock(&observer_mutex);
  if (refusal_observer == nullptr) return;
  if (message.starts_with(kHandshake)) {
    refusal_observer->OnHandshakeFailed("", message.substr(kHandshake.size()));
  } else if (message.starts_with(kCompression)) {
    refusal_observer->OnCompressedRequest();
  }
}

}  // namespace

void SilenceRpcLibraries() {
  google::protobuf::SetLogHandler(nullptr);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(&TakeLine);
}

void TellOfRefusals(ConnectionObserver* observer) {
  MutexLock lock(&observer_mutex);
  refusal_observer = observer;
}

}  // namespace icache
