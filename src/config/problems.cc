#include "icache/config/problems.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace icache {
namespace {

constexpr size_t kMaxQuotedBytes = 80;

}  // namespace

std::string PlaceText(std::string_view file, Place place) {
  return absl::StrFormat("%s:%d:%d", file, place.line, place.column);
}

std::string Printable(std::string_view text) {
  if (text.size() <= kMaxQuotedBytes) return absl::Utf8SafeCEscape(absl::string_view(text.data(), text.size()));
  size_t end = kMaxQuotedBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // not inside a character
  return absl::StrCat(absl::Utf8SafeCEscape(absl::string_view(text.data(), end)), "…");
}

std::string Quoted(std::string_view text) { return absl::StrCat("\"", Printable(text), "\""); }

void Problems::Add(std::string line) {
  ++count_;
  if (lines_.size() < kMaxReported) lines_.push_back(std::move(line));
}

absl::Status Problems::ToStatus() const {
  if (count_ == 0) return absl::OkStatus();
  std::string message = absl::StrJoin(lines_, "\n");
  if (count_ > lines_.size()) absl::StrAppend(&message, "\nand ", count_ - lines_.size(), " more problems");
  return absl::InvalidArgumentError(message);
}

void FileProblems::Add(Place place, std::string_view key, std::string_view message) const {
  problems_->Add(key.empty() ? absl::StrFormat("%s: %s", At(place), message)
                             : absl::StrFormat("%s: %s: %s", At(place), key, message));
}

}  // namespace icache
