// Whatever is wrong at whatever key, the program says where and exits with status 2. Driven by the table of settings,
// so that a new one is covered by being there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/settings.h"
#include "tests/config/temp_folder.h"
#include "tests/integration/icached_process.h"

namespace icache {
namespace {

using ::icache::testing::ChildProcess;
using ::icache::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

// No setting but a plain text may be this.
constexpr char kNonsense[] = "nonsense";
constexpr char kQuoted[] = "\"nonsense\"";

std::string KeyOf(const Setting& setting) { return KeyText(setting, "some-model"); }

bool TakesAnyText(const Setting& setting) {
  DaemonOptions options;
  return SetValue(setting, "some-model", {kNonsense, Scalar::Style::kFlag}, &options).ok();
}

// A config file with one key, nested as it should be.
std::string FileWith(const std::string& key, const std::string& value) {
  std::string text;
  std::string indent;
  for (const absl::string_view part : absl::StrSplit(key, '.')) {
    absl::StrAppend(&text, text.empty() ? "" : "\n", indent, part, ":");
    indent += "  ";
  }
  return absl::StrCat(text, " ", value, "\n");
}

// Runs icached, which must exit with 2, and returns what it printed.
std::string Refusal(const std::vector<std::string>& flags) {
  ChildProcess icached("icached", flags, "ready");
  EXPECT_FALSE(icached.ready());
  EXPECT_EQ(icached.Terminate(), 2);
  return icached.output();
}

class ConfigErrorsTest : public ::testing::Test {
 protected:
  const TempFolder folder_;
};

TEST_F(ConfigErrorsTest, AValueOfTheWrongKindIsToldWithFilePlaceAndKey) {
  for (const Setting& setting : Settings()) {
    const std::string key = KeyOf(setting);
    const std::string file = folder_.Write("icached.yaml", FileWith(key, "{a: {b: c}}"));
    const std::string depth = std::to_string(std::count(key.begin(), key.end(), '.') + 1);
    const std::string output = Refusal({"--config", file});
    EXPECT_THAT(output, HasSubstr(absl::StrCat(file, ":", depth, ":")));
    EXPECT_THAT(output, HasSubstr(absl::StrCat(": ", key, ": must be ")));
  }
}

TEST_F(ConfigErrorsTest, AValueThatIsNoneIsToldWithItsKeyOrItsFlag) {
  for (const Setting& setting : Settings()) {
    if (TakesAnyText(setting)) continue;
    const std::string key = KeyOf(setting);
    const std::string file = folder_.Write("icached.yaml", FileWith(key, kNonsense));
    EXPECT_THAT(Refusal({"--config", file}), AllOf(HasSubstr(absl::StrCat(": ", key, ": ")), HasSubstr(kQuoted)));
    const std::string flag(setting.flag);
    const std::string value = absl::StrCat(IsNamed(setting) ? "some-model=" : "", kNonsense);
    EXPECT_THAT(Refusal({flag, value}), AllOf(HasSubstr(absl::StrCat("icached: ", flag, ": ")), HasSubstr(kQuoted)));
  }
}

TEST_F(ConfigErrorsTest, AnUnknownKeyBesideEachIsToldByItsName) {
  for (const Setting& setting : Settings()) {
    const std::string key = absl::StrCat(KeyOf(setting), "_x");
    const std::string file = folder_.Write("icached.yaml", FileWith(key, "1"));
    EXPECT_THAT(Refusal({"--config", file}), HasSubstr(absl::StrCat(": ", key, ": unknown key")));
  }
}

TEST_F(ConfigErrorsTest, AFlagWithoutAValueIsToldByItsName) {
  for (const Setting& setting : Settings()) {
    const std::string flag(setting.flag);
    EXPECT_THAT(Refusal({flag}), HasSubstr(absl::StrCat("icached: ", flag, ": ")));
  }
}

TEST_F(ConfigErrorsTest, AllProblemsAreToldAtOnce) {
  std::vector<std::string> flags;
  for (const Setting& setting : Settings()) {
    if (!TakesAnyText(setting) && !IsNamed(setting)) flags.insert(flags.end(), {std::string(setting.flag), kNonsense});
  }
  const std::string output = Refusal(flags);
  for (size_t i = 0; i < flags.size(); i += 2) EXPECT_THAT(output, HasSubstr(absl::StrCat(flags[i], ": ")));
}

}  // namespace
}  // namespace icache
