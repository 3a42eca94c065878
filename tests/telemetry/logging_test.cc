#include "icache/telemetry/logging.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/testing/fake_clock.h"

namespace icache {
namespace {

using ::icache::testing::FakeClock;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Two ends of a pipe or of a socket; the reading one never waits.
class Channel {
 public:
  enum class Kind { kPipe, kSocket };

  explicit Channel(Kind kind = Kind::kPipe) {
    int ends[2] = {-1, -1};
    const int made = kind == Kind::kPipe ? pipe(ends) : socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
    EXPECT_EQ(made, 0);
    read_end_ = ends[0];
    write_end_ = ends[1];
    EXPECT_EQ(fcntl(read_end_, F_SETFL, O_NONBLOCK), 0);
  }
  ~Channel() {
    CloseReader();
    close(write_end_);
  }

  int write_end() const { return write_end_; }
  void CloseReader() {
    if (read_end_ >= 0) close(read_end_);
    read_end_ = -1;
  }

  // All that has been written since the last call.
  std::string Read() {
    std::string text;
    char buffer[4096];
    for (ssize_t size; (size = read(read_end_, buffer, sizeof(buffer))) > 0;) {
      text.append(buffer, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int read_end_ = -1;
  int write_end_ = -1;
};

std::vector<std::string> Lines(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

class LoggingTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { std::signal(SIGPIPE, SIG_IGN); }

  std::unique_ptr<Logger> MakeLogger(const Channel& channel, bool json = false,
                                     LogSeverity min_severity = LogSeverity::kInfo) {
    LoggerOptions options;
    options.min_severity = min_severity;
    options.json = json;
    options.rate = {.burst = 1e6, .per_second = 1};
    options.fd = channel.write_end();
    return CreateLogger(options, &clock_);
  }

  // One line as JSON, of which every line must be a valid object.
  nlohmann::json LogJson(std::string_view event, std::initializer_list<LogField> fields) {
    Channel channel;
    MakeLogger(channel, /*json=*/true)->Info(event, fields);
    const std::string line = channel.Read();
    EXPECT_THAT(Lines(line), ::testing::SizeIs(1));
    EXPECT_LE(line.size(), kMaxLogLineBytes);
    return nlohmann::json::parse(line);
  }
  std::string LogText(std::string_view event, std::initializer_list<LogField> fields) {
    Channel channel;
    MakeLogger(channel)->Info(event, fields);
    return channel.Read();
  }

  FakeClock clock_{absl::FromUnixMillis(1'700'000'000'123)};
};

TEST_F(LoggingTest, TextLineHasTimeLevelEventAndFields) {
  EXPECT_EQ(LogText("policies_reloaded", {{"policies", 3}, {"path", "/etc/icached"}, {"forced", true}, {"took", 0.25}}),
            "2023-11-14T22:13:20.123Z info policies_reloaded policies=3 path=/etc/icached forced=true took=0.25\n");
}

TEST_F(LoggingTest, JsonLineHasTheSameAsOneObject) {
  Channel channel;
  MakeLogger(channel, /*json=*/true)->Error("reload_failed", {{"line", -7}, {"why", "bad \"kind\""}});
  EXPECT_EQ(channel.Read(),
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"level\":\"error\",\"event\":\"reload_failed\",\"line\":-7,"
            "\"why\":\"bad \\\"kind\\\"\"}\n");
}

TEST_F(LoggingTest, LinesBelowTheLevelAreLeftOut) {
  Channel channel;
  const std::unique_ptr<Logger> logger = MakeLogger(channel, /*json=*/false, LogSeverity::kWarn);
  logger->Debug("a");
  logger->Info("b");
  logger->Warn("c");
  logger->Error("d");
  EXPECT_THAT(Lines(channel.Read()), ElementsAre(HasSubstr(" warn c"), HasSubstr(" error d")));
}

TEST_F(LoggingTest, DebugLinesAreThereWhenAskedFor) {
  Channel channel;
  MakeLogger(channel, /*json=*/false, LogSeverity::kDebug)->Debug("a");
  EXPECT_THAT(channel.Read(), HasSubstr(" debug a\n"));
}

TEST_F(LoggingTest, TextValuesAreQuotedWhenTheyAreNotPlainWords) {
  EXPECT_THAT(LogText("e", {{"empty", ""}, {"space", "a b"}, {"equals", "a=b"}, {"quote", "a\"b"}, {"slash", "a\\b"}}),
              HasSubstr(" empty=\"\" space=\"a b\" equals=\"a=b\" quote=\"a\\\"b\" slash=\"a\\\\b\"\n"));
}

TEST_F(LoggingTest, NoValueCanBreakALineOrSteerATerminal) {
  const std::string hostile("a\nb\r\t\0\x1b[2J\x7f\xC2\x9B\xFF\xC3\xA9", 16);
  const std::string line = LogText("e", {{"value", hostile}});
  EXPECT_THAT(Lines(line), ::testing::SizeIs(1));
  EXPECT_THAT(line, HasSubstr("\"a\\nb\\r\\t\\u0000\\u001b[2J\\u007f\\u009b\xEF\xBF\xBD\xC3\xA9\""));
  EXPECT_EQ(LogJson("e", {{"value", hostile}})["value"],
            std::string("a\nb\r\t\0\x1b[2J\x7f\xC2\x9B\xEF\xBF\xBD\xC3\xA9", 18));
}

TEST_F(LoggingTest, NumbersKeepTheirValues) {
  const nlohmann::json line = LogJson("e", {{"min", std::numeric_limits<int64_t>::min()},
                                            {"max", std::numeric_limits<int64_t>::max()},
                                            {"size", size_t{5}},
                                            {"ratio", 0.1},
                                            {"off", false},
                                            {"nan", std::numeric_limits<double>::quiet_NaN()}});
  EXPECT_EQ(line["min"], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(line["max"], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(line["size"], 5);
  EXPECT_EQ(line["ratio"], 0.1);
  EXPECT_EQ(line["off"], false);
  EXPECT_EQ(line["nan"], "nan");
}

TEST_F(LoggingTest, LongValueIsCutAndFieldsThatDoNotFitAreLeftOut) {
  // Each character takes two bytes once escaped.
  const nlohmann::json line = LogJson("e", {{"first", 1}, {"long", std::string(10'000, '"')}, {"last", 2}});
  EXPECT_EQ(line["first"], 1);
  EXPECT_GT(line["long"].get<std::string>().size(), 1'900u);
  EXPECT_FALSE(line.contains("last"));

  const std::string text = LogText("e", {{"long", std::string(10'000, 'x')}, {"last", 2}});
  EXPECT_LE(text.size(), kMaxLogLineBytes);
  EXPECT_THAT(text, ::testing::EndsWith("x\"\n"));
}

TEST_F(LoggingTest, LongEventNameIsCut) {
  EXPECT_GT(LogJson(std::string(10'000, 'x'), {})["event"].get<std::string>().size(), 1'000u);
}

TEST_F(LoggingTest, ReaderThatDoesNotReadCostsLinesAndIsToldHowMany) {
  for (const Channel::Kind kind : {Channel::Kind::kPipe, Channel::Kind::kSocket}) {
    Channel channel(kind);
    const std::unique_ptr<Logger> logger = MakeLogger(channel);
    constexpr int kLines = 2'000;
    const std::string filler(1'000, 'x');
    for (int i = 0; i < kLines; ++i) logger->Info("filling", {{"x", filler}});  // returns although nobody reads
    const std::vector<std::string> written = Lines(channel.Read());
    ASSERT_GT(written.size(), 0u);
    ASSERT_LT(written.size(), static_cast<size_t>(kLines));

    logger->Info("next");
    logger->Info("after");
    const std::vector<std::string> later = Lines(channel.Read());
    ASSERT_GE(later.size(), 3u);
    EXPECT_THAT(later[later.size() - 3], HasSubstr(" warn log_lines_dropped count="));
    EXPECT_THAT(later[later.size() - 2], HasSubstr(" info next"));
    EXPECT_THAT(later[later.size() - 1], HasSubstr(" info after"));
    for (const std::vector<std::string>* lines : {&written, &later}) {
      for (const std::string& line : *lines) {
        EXPECT_THAT(line, ::testing::AnyOf(IsEmpty(), StartsWith("2023-11-14T22:13:20.123Z ")));
      }
    }
  }
}

TEST_F(LoggingTest, DroppedLinesAreToldInJsonToo) {
  Channel channel;
  const std::unique_ptr<Logger> logger = MakeLogger(channel, /*json=*/true);
  const std::string filler(3'000, 'x');
  for (int i = 0; i < 100; ++i) logger->Info("filling", {{"x", filler}});
  const size_t written = Lines(channel.Read()).size();
  logger->Info("next");
  const std::vector<std::string> later = Lines(channel.Read());
  ASSERT_EQ(later.size(), 2u);
  const nlohmann::json told = nlohmann::json::parse(later[0]);
  EXPECT_EQ(told["event"], "log_lines_dropped");
  EXPECT_EQ(told["count"], 100 - written);
}

TEST_F(LoggingTest, LinesOfOneKindAreLimitedAndTheNextTellsHowMany) {
  Channel channel;
  LoggerOptions options;
  options.rate = {.burst = 2, .per_second = 0.5};
  options.fd = channel.write_end();
  const std::unique_ptr<Logger> logger = CreateLogger(options, &clock_);
  for (int i = 0; i < 5; ++i) logger->Info("busy", {{"i", i}});
  logger->Info("quiet");
  EXPECT_THAT(Lines(channel.Read()), ElementsAre(EndsWith("busy i=0"), EndsWith("busy i=1"), EndsWith("quiet")));
  EXPECT_EQ(logger->Losses().suppressed, 3);

  clock_.Advance(absl::Seconds(2));
  logger->Info("busy", {{"i", 5}});
  logger->Info("busy", {{"i", 6}});
  EXPECT_THAT(Lines(channel.Read()), ElementsAre(EndsWith("busy suppressed=3 i=5")));
  clock_.Advance(absl::Hours(1));
  for (int i = 7; i < 10; ++i) logger->Info("busy", {{"i", i}});
  EXPECT_THAT(Lines(channel.Read()), ElementsAre(EndsWith("busy suppressed=1 i=7"), EndsWith("busy i=8")));
  EXPECT_EQ(logger->Losses().suppressed, 5);
  EXPECT_EQ(logger->Losses().unwritable, 0);
}

TEST_F(LoggingTest, DebugLinesHaveARateOfTheirOwn) {
  Channel channel;
  LoggerOptions options;
  options.min_severity = LogSeverity::kDebug;
  options.rate = {.burst = 1, .per_second = 1};
  options.debug_rate = {.burst = 3, .per_second = 1};
  options.fd = channel.write_end();
  const std::unique_ptr<Logger> logger = CreateLogger(options, &clock_);
  for (int i = 0; i < 5; ++i) logger->Debug("call");
  EXPECT_THAT(Lines(channel.Read()), ::testing::SizeIs(3));
}

TEST_F(LoggingTest, LinesBelowTheLevelDoNotCount) {
  Channel channel;
  const std::unique_ptr<Logger> logger = MakeLogger(channel);
  for (int i = 0; i < 5'000; ++i) logger->Debug("call");
  EXPECT_EQ(logger->Losses().suppressed, 0);
}

TEST_F(LoggingTest, ReaderThatIsGoneDoesNoHarm) {
  for (const Channel::Kind kind : {Channel::Kind::kPipe, Channel::Kind::kSocket}) {
    Channel channel(kind);
    const std::unique_ptr<Logger> logger = MakeLogger(channel);
    channel.CloseReader();
    logger->Info("a");
    logger->Error("b");
  }
}

TEST_F(LoggingTest, FullDiskDoesNoHarm) {
  const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
  if (full < 0) GTEST_SKIP() << "no /dev/full here";
  const std::unique_ptr<Logger> logger = CreateLogger({.fd = full}, &clock_);
  logger->Info("a");
  logger->Error("b");
  EXPECT_EQ(logger->Losses().unwritable, 2);
  close(full);
}

TEST_F(LoggingTest, DescriptorThatIsClosedDoesNoHarm) {
  const std::unique_ptr<Logger> logger = CreateLogger({.fd = -1}, &clock_);
  logger->Info("a");
  EXPECT_EQ(logger->Losses().unwritable, 1);
}

TEST_F(LoggingTest, NullLoggerSaysNothing) {
  NullLogger logger;
  logger.Error("a", {{"b", 1}});
}

}  // namespace
}  // namespace icache
