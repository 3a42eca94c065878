// What a miss says about the request's keys. Source: contract/lookup.md step 7. A pure function, thread-safe.
#pragma once

#include <optional>

#include "icache/index/prefix_index.h"
#include "icache/routing/lookup.h"

namespace icache {

// The reason code of a miss whose keys are to blame; nullopt when they are known, or when the index is empty and so
// knows nothing about any key.
std::optional<ReasonCode> Diagnose(KnownKeys known);

}  // namespace icache
