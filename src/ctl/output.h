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

// `value` as JSON on one line, or, with an `indent`, on many. Texts are escaped where terminals or YAML readers would
// take characters for something else (DEL, C1, line separators, noncharacters), and bytes that are no UTF-8 become
// U+FFFD.
std::string ToJsonText(const nlohmann::ordered_json& value, int indent = -1);

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
