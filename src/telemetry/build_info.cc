#include "icache/telemetry/build_info.h"

namespace icache {

BuildInfo CompiledBuild() { return {ICACHE_VERSION, ICACHE_COMMIT}; }

}  // namespace icache
