#include "icache/config/yaml.h"

#include <yaml-cpp/depthguard.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <deque>
#include <exception>
#include <optional>
#include <sstream>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"

namespace icache {
namespace {

constexpr size_t kMaxPathBytes = 200;  // of a path in a message

Place PlaceOf(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// Length of the valid UTF-8 character at the front of `text`, or 0. Source: Unicode 15, table 3-7.
size_t Utf8Length(std::string_view text) {
  const auto byte = [&](size_t i) -> uint8_t { return i < text.size() ? static_cast<uint8_t>(text[i]) : 0; };
  const auto is_tail = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return is_tail(1) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0;
    const bool surrogate = first == 0xED && byte(1) > 0x9F;
    return !overlong && !surrogate && is_tail(1) && is_tail(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90;
    const bool beyond = first == 0xF4 && byte(1) > 0x8F;
    return !overlong && !beyond && is_tail(1) && is_tail(2) && is_tail(3) ? 4 : 0;
  }
  return 0;
}

// The first place where `text` is not UTF-8 or holds a control character that YAML forbids. The parser would take
// some of these for the end of the text and drop the rest without a word.
std::optional<Place> FirstForbiddenByte(std::string_view text) {
  Place place;
  for (size_t i = 0; i < text.size();) {
    const uint8_t byte = static_cast<uint8_t>(text[i]);
    const size_t length = Utf8Length(text.substr(i));
    const bool control = (byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F;
    if (length == 0 || control) return place;
    place = byte == '\n' ? Place{place.line + 1, 1} : Place{place.line, place.column + static_cast<int>(length)};
    i += length;
  }
  return std::nullopt;
}

// Ends the reading of a text, through the parser.
struct TooManyNodes {};

// Builds the tree of one document after another from the parser's events.
class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const FileProblems& problems, absl::FunctionRef<void(const YamlNode&)> visit)
      : problems_(problems), visit_(visit) {}

  // Where the document that was read last begins.
  Place start() const { return start_; }
  int start_position() const { return start_position_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    nodes_.clear();
    anchors_.clear();
    open_.clear();
    start_ = PlaceOf(mark);
    start_position_ = mark.pos;
    root_ = nullptr;
  }

  void OnDocumentEnd() override {
    if (root_ != nullptr) visit_(*root_);
  }

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Attach(NewNode(YamlNode::Kind::kNull, mark, "?", anchor), mark);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode* node = NewNode(YamlNode::Kind::kScalar, mark, tag, anchor);
    node->text = value;
    node->quoted = tag == "!";
    Attach(node, mark);
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const YamlNode* node = anchors_[anchor];
    for (const Open& open : open_) {
      if (open.node != node) continue;
      problems_.Add(PlaceOf(mark), Path(), "an alias inside its own anchor");
      node = NewNode(YamlNode::Kind::kNull, mark, "?", /*anchor=*/0);
      break;
    }
    Attach(node, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    Descend(NewNode(YamlNode::Kind::kSequence, mark, tag, anchor), mark);
  }
  void OnSequenceEnd() override { Ascend(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    Descend(NewNode(YamlNode::Kind::kMapping, mark, tag, anchor), mark);
  }
  void OnMapEnd() override { Ascend(); }

  // Where the innermost list or mapping begins that is still open; `otherwise` when none is.
  Place InnermostOpen(const YAML::Mark& otherwise) const {
    return open_.empty() ? PlaceOf(otherwise) : open_.back().node->place;
  }

 private:
  // A sequence or mapping whose end has not come yet.
  struct Open {
    YamlNode* node = nullptr;
    absl::flat_hash_map<absl::string_view, int> lines;  // mappings: the keys so far and their lines
    bool has_key = false;                               // mappings: the next value belongs to `key`
    const YamlNode* key = nullptr;                      // null when it cannot be a key
    Place key_place;
  };

  // Throws TooManyNodes.
  YamlNode* NewNode(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    if (nodes_.size() == kMaxYamlNodes) throw TooManyNodes();
    YamlNode& node = nodes_.emplace_back();
    node.kind = kind;
    node.place = PlaceOf(mark);
    node.tagged = tag != "?" && tag != "!" && !tag.empty();
    if (anchor != 0) anchors_[anchor] = &node;
    return &node;
  }

  void Descend(YamlNode* node, const YAML::Mark& mark) {
    Attach(node, mark);
    open_.emplace_back().node = node;
  }

  void Ascend() { open_.pop_back(); }

  // Puts `node` where it belongs in the innermost open container.
  void Attach(const YamlNode* node, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = node;
      return;
    }
    Open& open = open_.back();
    if (open.node->kind == YamlNode::Kind::kSequence) {
      open.node->items.push_back(node);
    } else if (!open.has_key) {
      open.has_key = true;
      open.key = node->kind == YamlNode::Kind::kScalar ? node : nullptr;
      open.key_place = PlaceOf(mark);
    } else {
      open.has_key = false;
      if (open.key == nullptr) {
        problems_.Add(open.key_place, Path(), "a key must be a string");
        return;
      }
      const std::string& key = open.key->text;
      const auto [first, added] = open.lines.try_emplace(key, open.key_place.line);
      if (added) {
        open.node->fields.push_back({key, open.key_place, node});
      } else {
        problems_.Add(open.key_place, Path(), absl::StrCat("is here twice, first in line ", first->second));
      }
    }
  }

  // The path to where the parser is, as "spec.strategy". For messages.
  std::string Path() const {
    std::string path;
    for (const Open& open : open_) {
      if (path.size() > kMaxPathBytes) return path + "…";
      if (open.node->kind == YamlNode::Kind::kSequence) {
        absl::StrAppend(&path, "[", open.node->items.size(), "]");
      } else if (open.key != nullptr) {
        absl::StrAppend(&path, path.empty() ? "" : ".", Printable(open.key->text));
      }
    }
    return path;
  }

  const FileProblems& problems_;
  const absl::FunctionRef<void(const YamlNode&)> visit_;

  // Of the document that is being read.
  std::deque<YamlNode> nodes_;
  absl::flat_hash_map<YAML::anchor_t, const YamlNode*> anchors_;
  std::vector<Open> open_;
  Place start_;
  int start_position_ = 0;  // in bytes
  const YamlNode* root_ = nullptr;
};

}  // namespace

const char* KindName(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "null";
    case YamlNode::Kind::kScalar:
      return "a single value";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMapping:
      return "a mapping";
  }
  return "";
}

absl::StatusOr<Scalar> ScalarOf(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar) {
    return absl::InvalidArgumentError(absl::StrCat("must be a single value, got ", KindName(node.kind)));
  }
  if (node.tagged) return absl::InvalidArgumentError("must not carry an explicit YAML type");
  return Scalar{node.text, node.quoted ? Scalar::Style::kQuoted : Scalar::Style::kPlain};
}

void ReadYaml(std::string_view text, const FileProblems& problems,
              absl::FunctionRef<void(const YamlNode& document)> visit) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  if (const std::optional<Place> place = FirstForbiddenByte(text)) {
    problems.Add(*place, "", "not valid YAML: a byte that is no UTF-8 text, or a control character");
    return;
  }
  // Without the last line's end, since a quote that is never closed is an error only where the text stops at once.
  const size_t end = text.find_last_not_of(" \t\r\n") + 1;  // 0 for a blank text
  std::istringstream stream{std::string(text.substr(0, end))};
  TreeBuilder builder(problems, visit);
  try {
    YAML::Parser parser(stream);
    // The parser neither takes nor refuses some stray tokens, and would begin a document there for ever.
    int last_start = -1;
    while (parser.HandleNextDocument(builder)) {
      if (builder.start_position() == last_start) {
        problems.Add(builder.start(), "", "not valid YAML: unexpected here");
        return;
      }
      last_start = builder.start_position();
    }
  } catch (const TooManyNodes&) {
    problems.Add(builder.start(), "", absl::StrCat("a document holds at most ", kMaxYamlNodes, " values"));
  } catch (const YAML::DeepRecursion& error) {
    problems.Add(builder.InnermostOpen(error.mark), "", "nested too deeply");
  } catch (const YAML::Exception& error) {
    // At the end of the text the parser has forgotten its place; what was never closed helps more anyway.
    const bool unclosed = error.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW || error.msg == YAML::ErrorMsg::END_OF_MAP_FLOW;
    problems.Add(unclosed ? builder.InnermostOpen(error.mark) : PlaceOf(error.mark), "",
                 absl::StrCat("not valid YAML: ", error.msg));
  }
}

}  // namespace icache
