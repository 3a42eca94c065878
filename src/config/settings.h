// The settings of icached: one row per key of DaemonOptions, from which the config file, the flags, --help and
// docs/configuration.md are all made. All are fixed at start.
//
// Turning text into a value and checking the value against its bounds are separate steps; both answer with a message
// that says what was expected, and leave the place (a line of a file, a flag) to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "icache/base/string_map.h"
#include "icache/config/daemon_options.h"
#include "icache/config/scalar.h"

namespace icache {

// Where a setting's value lives; its type is the setting's type.
using Slot = std::variant<std::string*, std::vector<std::string>*, int32_t*, int64_t*, size_t*, double*,
                          absl::Duration*, LogLevel*, LogFormat*, StringMap<int32_t>*>;

// Both ends belong to the range.
template <typename T>
struct Between {
  T min;
  std::optional<T> max;  // nullopt: whatever the type holds
};
struct PowerOfTwo {
  int64_t max;  // the least is 1
};
struct TextRule {
  std::string_view range;  // for people
  absl::Status (*check)(std::string_view);
};
// What a value must satisfy beyond its type. Numbers and durations of all widths share one alternative each; texts and
// choices without a rule of their own have monostate.
using Rule =
    std::variant<std::monostate, Between<int64_t>, Between<double>, Between<absl::Duration>, PowerOfTwo, TextRule>;

struct Setting {
  std::string_view key;         // in the file, nested at the dots; a part "<name>" stands for any name
  std::string_view flag;        // with its two dashes
  std::string_view value_name;  // what --help shows for the flag's value
  std::string_view unit;        // "" = none
  Rule rule;
  std::string_view help;  // one sentence or two
  Slot (*slot)(DaemonOptions& options);
};

inline constexpr size_t kMaxListItems = 16;       // of one list
inline constexpr size_t kMaxNamedItems = 10'000;  // of one "<name>" setting

// All settings, in the order in which they are documented.
absl::Span<const Setting> Settings();

// Whether one source may give several values: lists and "<name>" settings.
bool IsList(const Setting& setting);
bool IsNamed(const Setting& setting);

// The key, with `name` in place of "<name>".
std::string KeyText(const Setting& setting, std::string_view name);
// The range in words, as "1 to 64", ">= 0" or "debug, info, warn, error".
std::string RangeText(const Setting& setting);
// The value in `options`, as the config file would spell it; lists joined by ", ", "" when there is none.
std::string ValueText(const Setting& setting, const DaemonOptions& options);

// Empties a list, so that a source can give it anew.
void ClearList(const Setting& setting, DaemonOptions* options);

// Reads `scalar` as the setting's type, checks it and stores it: replaces the value, appends to a list, or sets the
// entry `name` ("" for settings without a name). InvalidArgument with a message without the key; nothing changes then.
absl::Status SetValue(const Setting& setting, std::string_view name, const Scalar& scalar, DaemonOptions* options);

// What takes more than one setting to see: pairs of a key to blame and a message. Empty when all is well.
std::vector<std::pair<std::string_view, std::string>> CheckTogether(const DaemonOptions& options);

}  // namespace icache
