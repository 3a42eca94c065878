#include "tests/telemetry/page_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace icache::testing {
namespace {

bool IsNameCharacter(char c, bool first) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (!first && c >= '0' && c <= '9');
}

// Takes a name off the front of `text`; "" when there is none.
std::string TakeName(std::string_view* text) {
  size_t size = 0;
  while (size < text->size() && IsNameCharacter((*text)[size], size == 0)) ++size;
  std::string name(text->substr(0, size));
  text->remove_prefix(size);
  return name;
}

bool Take(std::string_view* text, std::string_view prefix) {
  if (text->substr(0, prefix.size()) != prefix) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// Takes a quoted, escaped label value.
std::optional<std::string> TakeLabelValue(std::string_view* text) {
  if (!Take(text, "\"")) return std::nullopt;
  std::string value;
  while (!text->empty()) {
    const char c = text->front();
    text->remove_prefix(1);
    if (c == '"') return value;
    if (c != '\\') {
      value += c;
    } else if (Take(text, "n")) {
      value += '\n';
    } else if (Take(text, "\\")) {
      value += '\\';
    } else if (Take(text, "\"")) {
      value += '"';
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<double> ReadNumber(std::string_view text) {
  if (text == "+Inf") return std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

PageReader::PageReader(std::string_view page) {
  if (!page.empty() && page.back() != '\n') problems_.push_back("the last line does not end");
  while (!page.empty()) {
    const size_t end = std::min(page.find('\n'), page.size() - 1);
    ReadLine(page.substr(0, end));
    page.remove_prefix(end + 1);
  }
  CheckHistograms();
}

void PageReader::ReadLine(std::string_view line) {
  std::string_view rest = line;
  if (Take(&rest, "# HELP ")) {
    current_ = TakeName(&rest);
    if (!families_.emplace(current_, PageFamily{}).second) problems_.push_back("declared twice: " + current_);
    families_[current_].help = rest.substr(std::min<size_t>(rest.size(), 1));
    return;
  }
  if (Take(&rest, "# TYPE ")) {
    if (TakeName(&rest) != current_) problems_.push_back("TYPE without its HELP: " + std::string(line));
    families_[current_].type = rest.substr(std::min<size_t>(rest.size(), 1));
    return;
  }
  ReadSample(line);
}

void PageReader::ReadSample(std::string_view line) {
  const auto fail = [&](const std::string& what) { problems_.push_back(what + ": " + std::string(line)); };
  std::string_view rest = line;
  const std::string name = TakeName(&rest);
  PageFamily& family = families_[current_];
  std::set<std::string> allowed = {current_};
  if (family.type == "histogram") allowed = {current_ + "_bucket", current_ + "_sum", current_ + "_count"};
  if (!allowed.contains(name)) return fail("sample outside its family");

  PageSample sample;
  if (Take(&rest, "{")) {
    do {
      const std::string label = TakeName(&rest);
      if (label.empty() || !Take(&rest, "=")) return fail("bad label");
      const std::optional<std::string> value = TakeLabelValue(&rest);
      if (!value.has_value()) return fail("bad label value");
      if (!sample.labels.emplace(label, *value).second) return fail("label given twice");
    } while (Take(&rest, ","));
    if (!Take(&rest, "}")) return fail("labels do not end");
  }
  if (!Take(&rest, " ")) return fail("no value");
  const std::optional<double> value = ReadNumber(rest);
  if (!value.has_value()) return fail("bad value");
  sample.value = *value;
  if (!series_.emplace(name, sample.labels).second) return fail("series given twice");
  family.samples[name].push_back(std::move(sample));
}

void PageReader::CheckHistograms() {
  for (auto& [name, family] : families_) {
    if (family.type != "histogram") continue;
    std::map<Labels, double> last_bucket;
    for (PageSample bucket : family.samples[name + "_bucket"]) {
      bucket.labels.erase("le");
      double& last = last_bucket[bucket.labels];
      if (bucket.value < last) problems_.push_back("buckets are not cumulative: " + name);
      last = bucket.value;
    }
    for (const PageSample& count : family.samples[name + "_count"]) {
      if (last_bucket[count.labels] != count.value) problems_.push_back("+Inf is not the count: " + name);
    }
  }
}

const std::vector<PageSample>& PageReader::Samples(std::string_view sample) const {
  static const std::vector<PageSample> none;
  for (const auto& [name, family] : families_) {
    const auto found = family.samples.find(std::string(sample));
    if (found != family.samples.end()) return found->second;
  }
  return none;
}

std::optional<double> PageReader::Value(std::string_view sample, const Labels& labels) const {
  for (const PageSample& candidate : Samples(sample)) {
    if (candidate.labels == labels) return candidate.value;
  }
  return std::nullopt;
}

std::set<std::string> PageReader::LabelValues(std::string_view family, const std::string& label) const {
  std::set<std::string> values;
  const auto found = families_.find(std::string(family));
  if (found == families_.end()) return values;
  for (const auto& [name, samples] : found->second.samples) {
    for (const PageSample& sample : samples) {
      if (const auto value = sample.labels.find(label); value != sample.labels.end()) values.insert(value->second);
    }
  }
  return values;
}

double PageReader::Sum(std::string_view sample, const Labels& labels) const {
  double sum = 0;
  for (const PageSample& candidate : Samples(sample)) {
    const bool has_all = std::all_of(labels.begin(), labels.end(), [&](const auto& label) {
      const auto found = candidate.labels.find(label.first);
      return found != candidate.labels.end() && found->second == label.second;
    });
    if (has_all) sum += candidate.value;
  }
  return sum;
}

}  // namespace icache::testing
