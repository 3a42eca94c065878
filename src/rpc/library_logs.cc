#include "icache/rpc/library_logs.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>

#include <cstdlib>
#include <string_view>

#include "icache/base/mutex.h"

namespace icache {
namespace {

Mutex observer_mutex;
ConnectionObserver* handshake_observer ABSL_GUARDED_BY(observer_mutex) = nullptr;

void TakeLine(gpr_log_func_args* line) {
  constexpr std::string_view kRefused = "Handshake failed with fatal error ";
  const std::string_view message = line->message;
  if (!message.starts_with(kRefused)) return;
  MutexLock lock(&observer_mutex);
  if (handshake_observer != nullptr) handshake_observer->OnHandshakeFailed("", message.substr(kRefused.size()));
}

}  // namespace

void SilenceRpcLibraries() {
  google::protobuf::SetLogHandler(nullptr);
  if (std::getenv("GRPC_VERBOSITY") == nullptr) gpr_set_log_function(&TakeLine);
}

void TellOfRefusedHandshakes(ConnectionObserver* observer) {
  MutexLock lock(&observer_mutex);
  handshake_observer = observer;
}

}  // namespace icache
