// The config file: one YAML document whose nested keys are the settings.
#pragma once

#include <string>
#include <string_view>

#include "icache/config/daemon_options.h"
#include "icache/config/problems.h"

namespace icache {

// Applies what `text` says to `options`. `file` names it in messages. Null groups, as where all keys are commented out,
// say nothing; a text without a document neither.
void ApplyConfigText(std::string_view text, std::string_view file, DaemonOptions* options, Origins* origins,
                     Problems* problems);

// Likewise for the file at `path`, of at most 4 MiB.
void ApplyConfigFile(const std::string& path, DaemonOptions* options, Origins* origins, Problems* problems);

}  // namespace icache
