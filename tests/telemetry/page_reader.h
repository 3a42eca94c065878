// PageReader: a strict reader of the Prometheus text format 0.0.4, written against the format's description and not
// against the writer.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace icache::testing {

using Labels = std::map<std::string, std::string>;

struct PageSample {
  Labels labels;
  double value = 0;
};

struct PageFamily {
  std::string type;
  std::string help;
  // By sample name: the family's, or with _bucket, _sum and _count for a histogram.
  std::map<std::string, std::vector<PageSample>> samples;
};

class PageReader {
 public:
  // What is wrong with the page goes to problems().
  explicit PageReader(std::string_view page);

  // Lines that are not well formed, samples outside their family, series that occur twice, histograms that do not add
  // up.
  const std::vector<std::string>& problems() const { return problems_; }
  const std::map<std::string, PageFamily>& families() const { return families_; }

  // The value of one series, by the name of the sample; nullopt when the page has none.
  std::optional<double> Value(std::string_view sample, const Labels& labels = {}) const;
  // The values that `label` has in the family.
  std::set<std::string> LabelValues(std::string_view family, const std::string& label) const;
  // The sum over the family's series that have `labels` among theirs.
  double Sum(std::string_view sample, const Labels& labels = {}) const;

 private:
  void ReadLine(std::string_view line);
  void ReadSample(std::string_view line);
  void CheckHistograms();
  const std::vector<PageSample>& Samples(std::string_view sample) const;

  std::map<std::string, PageFamily> families_;
  std::string current_;                              // the family of the last TYPE line
  std::set<std::pair<std::string, Labels>> series_;  // all seen
  std::vector<std::string> problems_;
};

}  // namespace icache::testing
