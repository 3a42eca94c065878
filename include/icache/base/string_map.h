// Hash maps keyed by strings that can be probed with a std::string_view.
//
// Debian's abseil keeps its own string_view, to which std::string_view does not convert, so absl's default hash and
// equality for std::string keys cannot be used with it.
#pragma once

#include <string>
#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/node_hash_map.h"
#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace icache {

struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return absl::HashOf(absl::string_view(text.data(), text.size())); }
};

struct StringEqual {
  using is_transparent = void;
  bool operator()(std::string_view a, std::string_view b) const { return a == b; }
};

template <typename Value>
using StringMap = absl::flat_hash_map<std::string, Value, StringHash, StringEqual>;

// Like StringMap, but keys and values never move.
template <typename Value>
using StringNodeMap = absl::node_hash_map<std::string, Value, StringHash, StringEqual>;

using StringSet = absl::flat_hash_set<std::string, StringHash, StringEqual>;

}  // namespace icache
