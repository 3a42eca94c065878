// BuildInfo: which program this is.
#pragma once

#include <string>

namespace icache {

struct BuildInfo {
  std::string version;  // the project's, as "0.1.0"
  std::string commit;   // what the build tree was configured from, or "unknown" where there was no git
};

// Of this program.
BuildInfo CompiledBuild();

}  // namespace icache
