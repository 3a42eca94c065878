#include "ctl/table.h"

#include <algorithm>

#include "ctl/text.h"

namespace icache {
namespace {

constexpr size_t kGap = 2;

const char* CodeOf(Tone tone) {
  switch (tone) {
    case Tone::kPlain:
      return "";
    case Tone::kGood:
      return "\033[32m";
    case Tone::kBad:
      return "\033[31m";
    case Tone::kWarning:
      return "\033[33m";
    case Tone::kFaint:
      return "\033[2m";
  }
  return "";
}

std::string Spaces(size_t count) { return std::string(count, ' '); }

}  // namespace

std::string Painted(const std::string& text, Tone tone, const Style& style) {
  return style.color && tone != Tone::kPlain ? CodeOf(tone) + text + "\033[0m" : text;
}

std::string Bold(const std::string& text, const Style& style) {
  return style.color ? "\033[1m" + text + "\033[0m" : text;
}

std::string Table::Render(const Style& style) const {
  std::vector<size_t> widths;
  size_t total = 0;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = DisplayWidth(columns_[c].heading);
    for (const auto& row : rows_) width = std::max(width, DisplayWidth(row[c].text));
    widths.push_back(width);
    total += width + (c == 0 ? 0 : kGap);
  }
  if (style.width > 0 && total > style.width) return RenderStacked(style);

  std::string text;
  // A cell padded to its column, but for what would only end the line.
  const auto add = [&](size_t c, const std::string& plain, const std::string& painted) {
    const std::string padding = Spaces(widths[c] - DisplayWidth(plain));
    const bool last = c + 1 == columns_.size();
    text += columns_[c].align == Align::kRight ? padding + painted : painted + (last ? "" : padding);
    text += last ? "\n" : Spaces(kGap);
  };
  for (size_t c = 0; c < columns_.size(); ++c) add(c, columns_[c].heading, Bold(columns_[c].heading, style));
  for (const auto& row : rows_) {
    for (size_t c = 0; c < columns_.size(); ++c) add(c, row[c].text, Painted(row[c].text, row[c].tone, style));
  }
  return text;
}

std::string Table::RenderStacked(const Style& style) const {
  size_t widest = 0;
  for (const Column& column : columns_) widest = std::max(widest, DisplayWidth(column.heading));
  std::string text;
  for (const auto& row : rows_) {
    if (!text.empty()) text += "\n";
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string& heading = columns_[c].heading;
      text += Bold(heading, style) + Spaces(widest - DisplayWidth(heading) + kGap) +
              Painted(row[c].text, row[c].tone, style) + "\n";
    }
  }
  return text;
}

}  // namespace icache
