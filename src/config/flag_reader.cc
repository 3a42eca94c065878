#include "icache/config/flag_reader.h"

#include <string>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace icache {

std::vector<GivenFlag> ReadFlags(int argc, const char* const* argv,
                                 absl::FunctionRef<std::optional<FlagKind>(std::string_view flag)> kind_of,
                                 Problems* problems) {
  std::vector<GivenFlag> given;
  absl::flat_hash_set<std::string> seen;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    const size_t equals = argument.find('=');
    const std::string_view flag = argument.substr(0, equals);
    const bool attached = equals != std::string_view::npos;
    const std::string_view attached_value = attached ? argument.substr(equals + 1) : "";
    const std::optional<FlagKind> kind = kind_of(flag);
    if (!kind.has_value()) {
      const bool is_flag = flag.substr(0, 1) == "-";
      problems->Add(absl::StrCat(Printable(flag), is_flag ? ": unknown flag" : ": only flags are expected"));
    } else if (kind->value_name.empty()) {
      if (attached) problems->Add(absl::StrFormat("%s: takes no value", flag));
      given.push_back({flag, ""});
    } else {
      const bool first = seen.insert(std::string(flag)).second;
      if (!first && !kind->repeatable) problems->Add(absl::StrFormat("%s: given more than once", flag));
      if (attached) {
        given.push_back({flag, attached_value});
      } else if (i + 1 == argc || std::string_view(argv[i + 1]).substr(0, 2) == "--") {
        problems->Add(absl::StrFormat("%s: needs a value: %s", flag, kind->value_name));
      } else {
        given.push_back({flag, argv[++i]});
      }
    }
  }
  return given;
}

}  // namespace icache
