// Table: rows under headings, aligned, for terminals and pipes.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace icache {

// How text is laid out for whoever reads it.
struct Style {
  size_t width = 0;    // columns of the terminal; 0 = unlimited, as in a pipe
  bool color = false;  // a terminal that wants colours
};

// What a cell or a word says, which its colour repeats.
enum class Tone { kPlain, kGood, kBad, kWarning, kFaint };

// `text` in the colour of `tone`, where colours are wanted.
std::string Painted(const std::string& text, Tone tone, const Style& style);
std::string Bold(const std::string& text, const Style& style);

// Thread-compatible.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };
  struct Cell {
    Cell(std::string content, Tone meaning = Tone::kPlain)  // NOLINT: implicit, for rows
        : text(std::move(content)), tone(meaning) {}
    Cell(const char* content) : text(content) {}  // NOLINT: implicit, for rows
    std::string text;
    Tone tone = Tone::kPlain;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // As many cells as columns.
  void AddRow(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }

  // A line for the headings and one a row; where that is wider than the style allows, each row as lines of
  // "HEADING  cell", so that nothing is cut.
  std::string Render(const Style& style) const;

 private:
  std::string RenderStacked(const Style& style) const;

  const std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace icache
