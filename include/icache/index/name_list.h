// NameList: the first names in bytewise order of any number that are added, and how many more there were.
#pragma once

#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

namespace icache {

// Thread-compatible.
class NameList {
 public:
  // Keeps `limit` names, >= 1.
  explicit NameList(size_t limit) : limit_(limit) {}

  // `name` must be new. O(log limit).
  void Add(std::string_view name) {
    if (names_.size() == limit_) {
      ++omitted_;
      if (*names_.rbegin() < name) return;
      names_.erase(std::prev(names_.end()));
    }
    names_.emplace(name);
  }

  const std::set<std::string>& names() const { return names_; }
  size_t omitted() const { return omitted_; }

 private:
  size_t limit_;
  std::set<std::string> names_;
  size_t omitted_ = 0;
};

}  // namespace icache
