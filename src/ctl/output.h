// Output: one answer of icachectl, as a table, JSON or YAML, on standard output.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "ctl/settings.h"
#include "ctl/table.h"

namespace icache {

// Of standard output: a terminal's width, and colours unless NO_COLOR is set. In a pipe COLUMNS sets the width.
Style DetectStyle();

// `value` as a YAML document. Strings are in double quotes unless they are plain words.
std::string ToYaml(const nlohmann::ordered_json& value);

// Prints `document` in the machines' formats, or what `render` makes of it for people.
// Error: DataLoss when standard output cannot be written.
absl::Status Print(OutputFormat format, const nlohmann::ordered_json& document,
                   const std::function<std::string(const Style& style)>& render);

// That standard output cannot be written: DataLoss.
absl::Status CannotWriteOut();

// Writes to standard output and flushes it. Error: CannotWriteOut().
absl::Status WriteOut(const std::string& text);

}  // namespace icache
