#include "icache/base/prometheus_text.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace icache {
namespace {

constexpr std::string_view kBlanks = " \t";

// Takes `name="value"` and what separates it from the label before off the front of `text`: the name, and the value as
// it is written. Nullopt where there is none.
std::optional<std::pair<std::string_view, std::string_view>> TakeLabel(std::string_view* text) {
  const size_t begin = text->find_first_not_of(" \t,");
  const size_t equals = text->find("=\"");
  if (begin == std::string_view::npos || equals == std::string_view::npos || equals < begin) return std::nullopt;
  size_t end = equals + 2;
  while (end < text->size() && (*text)[end] != '"') end += (*text)[end] == '\\' ? 2 : 1;
  if (end >= text->size()) return std::nullopt;
  const std::pair label(text->substr(begin, equals - begin), text->substr(equals + 2, end - equals - 2));
  text->remove_prefix(end + 1);
  return label;
}

// Takes a label set with its braces off the front of `line`, which may begin with none, and returns what is between
// them. Nullopt when it is malformed.
std::optional<std::string_view> TakeLabels(std::string_view* line) {
  if (line->empty() || line->front() != '{') return "";
  line->remove_prefix(1);
  const std::string_view labels = *line;
  while (true) {
    const size_t begin = line->find_first_not_of(" \t,");
    if (begin == std::string_view::npos) return std::nullopt;
    if ((*line)[begin] == '}') {
      line->remove_prefix(begin + 1);
      return labels.substr(0, labels.size() - line->size() - 1);
    }
    if (!TakeLabel(line).has_value()) return std::nullopt;
  }
}

std::optional<PrometheusSample> ReadSample(std::string_view line) {
  const size_t name_end = line.find_first_of("{ \t");
  if (name_end == std::string_view::npos || line.front() == '#') return std::nullopt;
  PrometheusSample sample{.name = line.substr(0, name_end), .labels = {}, .value = 0};
  line.remove_prefix(name_end);
  const std::optional<std::string_view> labels = TakeLabels(&line);
  if (!labels.has_value()) return std::nullopt;
  sample.labels = *labels;
  line.remove_prefix(std::min(line.find_first_not_of(kBlanks), line.size()));
  const std::string_view number = line.substr(0, line.find_first_of(" \t\r"));
  if (!absl::SimpleAtod(absl::string_view(number.data(), number.size()), &sample.value)) return std::nullopt;
  return sample;
}

}  // namespace

void ForEachSample(std::string_view page, absl::FunctionRef<void(const PrometheusSample&)> visit) {
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size());
    if (const std::optional<PrometheusSample> sample = ReadSample(page.substr(0, end))) visit(*sample);
    page.remove_prefix(std::min(end + 1, page.size()));
  }
}

void ForEachLabel(std::string_view labels, absl::FunctionRef<void(std::string_view, std::string)> visit) {
  while (const auto label = TakeLabel(&labels)) {
    std::string value;
    for (size_t i = 0; i < label->second.size(); ++i) {
      const bool escaped = label->second[i] == '\\' && i + 1 < label->second.size();
      if (escaped) ++i;
      value += escaped && label->second[i] == 'n' ? '\n' : label->second[i];
    }
    visit(label->first, std::move(value));
  }
}

}  // namespace icache
