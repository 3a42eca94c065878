// MsgpackTape: a msgpack value as a flat list of its parts, in the order of the bytes.
//
// The only place that touches the msgpack library. A container is followed by its parts, and says where it ends, so
// what nobody asks for is stepped over in one move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace icache {

struct MsgpackItem {
  enum class Kind : uint8_t {
    kNil,
    kUnsigned,  // any integer >= 0
    kNegative,  // any integer below
    kFloat,
    kText,   // the str type
    kBytes,  // the bin type
    kArray,
    kMap,
    kOther,  // booleans and extension types
  };
  Kind kind = Kind::kNil;
  uint32_t size = 0;  // bytes of a text, items of an array, pairs of a map
  uint32_t end = 0;   // index of the item behind this one and all its parts
  union {
    uint64_t bits = 0;  // of an integer, in two's complement
    double number;
    const char* bytes;
  };

  bool IsInteger() const { return kind == Kind::kUnsigned || kind == Kind::kNegative; }
  std::string_view text() const { return {bytes, size}; }
};

// Thread-compatible.
class MsgpackTape {
 public:
  // Replaces the tape by the one value that `bytes` are, of which it keeps views. Errors: InvalidArgument unless they
  // are exactly one, ResourceExhausted beyond `max_items` or `max_depth`.
  absl::Status Read(std::string_view bytes, size_t max_items, size_t max_depth);

  const MsgpackItem& operator[](uint32_t index) const { return items_[index]; }

 private:
  std::vector<MsgpackItem> items_;
  std::vector<uint32_t> open_;  // the containers around the item being read
};

}  // namespace icache
