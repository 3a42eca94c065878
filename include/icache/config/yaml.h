// YAML texts as plain trees that know where each value stands.
//
// The only place that touches yaml-cpp: its exceptions end here, and its laxities too. Refused beside bad syntax:
// bytes that are no UTF-8, control characters, keys that are no scalars or that a mapping holds twice, an alias inside
// its own anchor, nesting beyond the parser's 500 levels, and documents of more than kMaxYamlNodes values, where
// the reading ends. An alias costs a pointer, so a text cannot unfold to more than it is.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "icache/config/problems.h"
#include "icache/config/scalar.h"

namespace icache {

inline constexpr size_t kMaxYamlNodes = 100'000;  // of one document

// One value. Pointers stay valid during the call that hands out the tree.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };
  struct Field {
    std::string_view key;
    Place place;  // of the key
    const YamlNode* value = nullptr;
  };

  Kind kind = Kind::kNull;
  Place place;                         // of an alias: where its anchor stands
  bool tagged = false;                 // carries an explicit type such as !!str
  bool quoted = false;                 // scalars only
  std::string text;                    // scalars only
  std::vector<const YamlNode*> items;  // sequences only
  std::vector<Field> fields;           // mappings only; in the order of the text, keys are distinct
};

// "a mapping", "a list", "null" or "a single value".
const char* KindName(YamlNode::Kind kind);

// The scalar in `node`. InvalidArgument when it is none, or carries an explicit type.
absl::StatusOr<Scalar> ScalarOf(const YamlNode& node);

// Calls `visit` with each document of `text` that is well-formed; empty ones count as null. What is wrong goes to
// `problems`; after bad syntax the rest of the text is not read. O(text).
void ReadYaml(std::string_view text, const FileProblems& problems,
              absl::FunctionRef<void(const YamlNode& document)> visit);

}  // namespace icache
