// Problems: everything that is wrong with what an operator wrote, gathered so that one run tells all of it.
//
// A problem is one line: `file:line:column: key: message` for a file, `--flag: message` for a flag.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace icache {

// Where something stands in a text. Both count from 1; a column counts bytes.
struct Place {
  int line = 1;
  int column = 1;
};

// "file:line:column".
std::string PlaceText(std::string_view file, Place place);

// `text` in double quotes, with control characters escaped and a long tail cut, fit for one line of a log.
std::string Quoted(std::string_view text);
// A key as it may appear in a message: as it is, unless it is long or holds control characters.
std::string Printable(std::string_view text);

// Thread-compatible.
class Problems {
 public:
  // More are counted, not kept: a hostile file must not fill a log.
  static constexpr size_t kMaxReported = 100;

  // `line` is the whole problem.
  void Add(std::string line);

  size_t count() const { return count_; }
  // OK without problems, else InvalidArgument with one problem per line.
  absl::Status ToStatus() const;

 private:
  std::vector<std::string> lines_;
  size_t count_ = 0;
};

// The problems of one file. Refers to both arguments.
class FileProblems {
 public:
  FileProblems(std::string_view file, Problems* problems) : file_(file), problems_(problems) {}

  // `key` is the path to the value, or "" when no key is to blame.
  void Add(Place place, std::string_view key, std::string_view message) const;
  std::string At(Place place) const { return PlaceText(file_, place); }

 private:
  const std::string_view file_;
  Problems* const problems_;
};

}  // namespace icache
