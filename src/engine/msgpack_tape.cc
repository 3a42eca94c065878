#include "engine/msgpack_tape.h"

#include <exception>
#include <msgpack.hpp>

namespace icache {
namespace {

using Kind = MsgpackItem::Kind;

// Writes the tape as the library parses. A false answer ends the parse.
class TapeWriter : public msgpack::null_visitor {
 public:
  TapeWriter(size_t total_bytes, size_t max_items, size_t max_depth, std::vector<MsgpackItem>* items,
             std::vector<uint32_t>* open)
      : total_bytes_(total_bytes), max_items_(max_items), max_depth_(max_depth), items_(items), open_(open) {}

  bool over_bounds() const { return over_bounds_; }

  bool visit_nil() { return Add(Kind::kNil) != nullptr; }
  bool visit_boolean(bool) { return Add(Kind::kOther) != nullptr; }
  bool visit_ext(const char*, uint32_t) { return Add(Kind::kOther) != nullptr; }
  bool visit_positive_integer(uint64_t value) { return AddBits(Kind::kUnsigned, value); }
  bool visit_negative_integer(int64_t value) { return AddBits(Kind::kNegative, static_cast<uint64_t>(value)); }
  bool visit_float32(float value) { return visit_float64(value); }
  bool visit_float64(double value) {
    MsgpackItem* item = Add(Kind::kFloat);
    if (item != nullptr) item->number = value;
    return item != nullptr;
  }
  bool visit_str(const char* bytes, uint32_t size) { return AddText(Kind::kText, bytes, size); }
  bool visit_bin(const char* bytes, uint32_t size) { return AddText(Kind::kBytes, bytes, size); }

  bool start_array(uint32_t size) { return Open(Kind::kArray, size); }
  bool end_array() { return Close(); }
  bool start_map(uint32_t pairs) { return Open(Kind::kMap, pairs); }
  bool end_map() { return Close(); }

 private:
  MsgpackItem* Add(Kind kind) {
    if (items_->size() >= max_items_) {
      over_bounds_ = true;
      return nullptr;
    }
    MsgpackItem& item = items_->emplace_back();
    item.kind = kind;
    item.end = static_cast<uint32_t>(items_->size());
    return &item;
  }
  bool AddBits(Kind kind, uint64_t bits) {
    MsgpackItem* item = Add(kind);
    if (item != nullptr) item->bits = bits;
    return item != nullptr;
  }
  bool AddText(Kind kind, const char* bytes, uint32_t size) {
    MsgpackItem* item = Add(kind);
    if (item == nullptr) return false;
    item->bytes = bytes;
    item->size = size;
    return true;
  }
  bool Open(Kind kind, uint32_t size) {
    if (open_->size() >= max_depth_) over_bounds_ = true;
    // Each part takes a byte at least.
    if (over_bounds_ || size > total_bytes_) return false;
    MsgpackItem* item = Add(kind);
    if (item == nullptr) return false;
    item->size = size;
    open_->push_back(static_cast<uint32_t>(items_->size() - 1));
    return true;
  }
  bool Close() {
    (*items_)[open_->back()].end = static_cast<uint32_t>(items_->size());
    open_->pop_back();
    return true;
  }

  const size_t total_bytes_;
  const size_t max_items_;
  const size_t max_depth_;
  std::vector<MsgpackItem>* const items_;
  std::vector<uint32_t>* const open_;
  bool over_bounds_ = false;
};

}  // namespace

absl::Status MsgpackTape::Read(std::string_view bytes, size_t max_items, size_t max_depth) {
  items_.clear();
  open_.clear();
  TapeWriter writer(bytes.size(), max_items, max_depth, &items_, &open_);
  size_t read = 0;
  bool whole = false;
  try {
    whole = msgpack::parse(bytes.data(), bytes.size(), read, writer);
  } catch (const std::exception&) {  // of the library; counts as unreadable
  }
  if (writer.over_bounds()) return absl::ResourceExhaustedError("more values, or deeper ones, than a batch may have");
  if (!whole || read != bytes.size()) return absl::InvalidArgumentError("not one msgpack value");
  return absl::OkStatus();
}

}  // namespace icache
