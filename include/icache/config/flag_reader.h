// FlagReader: a command line cut into flags and their values, `--flag VALUE` or `--flag=VALUE`.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "icache/config/problems.h"

namespace icache {

struct FlagKind {
  std::string_view value_name;  // for messages; "" = a switch, which takes no value
  bool repeatable = false;
};

// One flag as it was given; views into argv.
struct GivenFlag {
  std::string_view flag;   // with its dashes
  std::string_view value;  // "" of a switch
};

// The flags in order. `kind_of` knows them; nullopt for one that does not exist. What is wrong goes to `problems`: an
// unknown flag, a value missing or not wanted, what is no flag, and one given twice that is neither repeatable nor a
// switch.
std::vector<GivenFlag> ReadFlags(int argc, const char* const* argv,
                                 absl::FunctionRef<std::optional<FlagKind>(std::string_view flag)> kind_of,
                                 Problems* problems);

}  // namespace icache
