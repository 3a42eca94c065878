#include "ctl/output.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/numbers.h"
#include "icache/base/utf8.h"

namespace icache {
namespace {

using nlohmann::ordered_json;

// A word that no YAML reader takes for anything but a string.
bool IsPlainWord(const std::string& text) {
  if (text.empty() || text.size() > 64) return false;
  for (const char* const reserved : {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}) {
    if (strcasecmp(text.c_str(), reserved) == 0) return false;
  }
  if (!isalpha(static_cast<unsigned char>(text[0]))) return false;
  return text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") ==
         std::string::npos;
}

std::string ScalarText(const ordered_json& value) {
  if (value.is_string() && IsPlainWord(value.get_ref<const std::string&>())) return value.get<std::string>();
  return ToJsonText(value);  // JSON's scalars are YAML's
}

// The code point of a well-formed sequence of UTF-8.
uint32_t CodePointOf(std::string_view sequence) {
  if (sequence.size() == 1) return static_cast<unsigned char>(sequence[0]);
  uint32_t code_point = static_cast<unsigned char>(sequence[0]) & (0x7Fu >> sequence.size());
  for (const char byte : sequence.substr(1)) code_point = code_point << 6 | (static_cast<unsigned char>(byte) & 0x3Fu);
  return code_point;
}

// Characters of the basic plane that JSON allows in a text as they are, and YAML or a terminal does not.
bool NeedsEscape(uint32_t code_point) {
  return (code_point >= 0x7F && code_point < 0xA0) || code_point == 0x2028 || code_point == 0x2029 ||
         code_point == 0xFEFF || code_point == 0xFFFE || code_point == 0xFFFF;
}

void AppendYaml(const ordered_json& value, const std::string& indent, std::string* text) {
  const auto append_child = [&](const ordered_json& child, const std::string& child_indent) {
    if (child.is_structured() && !child.empty()) {
      *text += "\n";
      AppendYaml(child, child_indent, text);
    } else {
      *text += " " + ScalarText(child) + "\n";
    }
  };
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, child] : value.items()) {
      *text += indent + ScalarText(key) + ":";
      append_child(child, indent + "  ");
    }
  } else if (value.is_array() && !value.empty()) {
    for (const ordered_json& child : value) {
      if (child.is_structured() && !child.empty()) {
        std::string nested;
        AppendYaml(child, indent + "  ", &nested);
        *text += indent + "- " + nested.substr(indent.size() + 2);
      } else {
        *text += indent + "- " + ScalarText(child) + "\n";
      }
    }
  } else {
    *text += indent + ScalarText(value) + "\n";
  }
}

}  // namespace

Style DetectStyle() {
  Style style;
  winsize size = {};
  if (isatty(STDOUT_FILENO) == 1) {
    const char* const no_color = std::getenv("NO_COLOR");
    const char* const terminal = std::getenv("TERM");
    const bool dumb = terminal != nullptr && std::string(terminal) == "dumb";
    style.color = (no_color == nullptr || *no_color == '\0') && !dumb;
    style.width = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  } else if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    int width = 0;
    if (absl::SimpleAtoi(columns, &width) && width > 0) style.width = static_cast<size_t>(width);
  }
  return style;
}

std::string ToJsonText(const ordered_json& value, int indent) {
  const std::string dumped = value.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
  std::string text;
  for (std::string_view rest = dumped; !rest.empty();) {
    const std::string_view sequence = rest.substr(0, Utf8SequenceLength(rest));
    rest.remove_prefix(sequence.size());
    if (const uint32_t code_point = CodePointOf(sequence); NeedsEscape(code_point)) {
      text += fmt::format("\\u{:04x}", code_point);
    } else {
      text += sequence;
    }
  }
  return text;
}

std::string ToYaml(const ordered_json& value) {
  std::string text;
  AppendYaml(value, "", &text);
  return text;
}

absl::Status CannotWriteOut() {
  return absl::DataLossError(fmt::format("standard output cannot be written: {}", std::strerror(errno)));
}

absl::Status WriteOut(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? absl::OkStatus() : CannotWriteOut();
}

absl::Status Print(OutputFormat format, const ordered_json& document,
                   const std::function<std::string(const Style& style)>& render) {
  switch (format) {
    case OutputFormat::kTable:
      return WriteOut(render(DetectStyle()));
    case OutputFormat::kJson:
      return WriteOut(ToJsonText(document, 2) + "\n");
    case OutputFormat::kYaml:
      return WriteOut(ToYaml(document));
  }
  return absl::OkStatus();
}

}  // namespace icache
