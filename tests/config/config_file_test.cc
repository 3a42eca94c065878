#include "config/config_file.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/config/temp_folder.h"
#include "tests/testing/status_matchers.h"

namespace icache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;
using testing::TempFolder;

constexpr absl::StatusCode kBad = absl::StatusCode::kInvalidArgument;

struct Outcome {
  DaemonOptions options;
  Origins origins;
  absl::Status status;
};

Outcome Apply(std::string_view text) {
  Outcome outcome;
  Problems problems;
  ApplyConfigText(text, "c.yaml", &outcome.options, &outcome.origins, &problems);
  outcome.status = problems.ToStatus();
  return outcome;
}

TEST(ConfigFileTest, ReadsNestedKeys) {
  const Outcome outcome = Apply(R"(
grpc: {address: ["127.0.0.1:1", unix:/run/x.sock], lookup_threads: 4}
http:
  address: localhost:0
policy: {path: /etc/policies}
models:
  org/model-1.5: {block_size: 32}
  "<name>": {block_size: 8}
index: {default_ttl: 1h30m, max_entries: 5}
ranker: {pressure_weight: 0.5}
log: {level: debug, format: json}
drain_delay: 5s
)");
  ASSERT_THAT(outcome.status, IsOk());
  const DaemonOptions& options = outcome.options;
  EXPECT_THAT(options.grpc_addresses, ElementsAre("127.0.0.1:1", "unix:/run/x.sock"));
  EXPECT_EQ(options.lookup_threads, 4);
  EXPECT_EQ(options.http_address, "localhost:0");
  EXPECT_EQ(options.policy_path, "/etc/policies");
  EXPECT_EQ(options.router.block_size_by_model.at("org/model-1.5"), 32);
  EXPECT_EQ(options.router.block_size_by_model.at("<name>"), 8);
  EXPECT_EQ(options.default_ttl, absl::Minutes(90));
  EXPECT_EQ(options.index.max_entries, 5);
  EXPECT_EQ(options.router.ranker.pressure_weight, 0.5);
  EXPECT_EQ(options.log_level, LogLevel::kDebug);
  EXPECT_EQ(options.log_format, LogFormat::kJson);
  EXPECT_EQ(options.drain_delay, absl::Seconds(5));
}

TEST(ConfigFileTest, OneAddressNeedsNoList) {
  EXPECT_THAT(Apply("grpc: {address: \"[::]:1\"}").options.grpc_addresses, ElementsAre("[::]:1"));
}

TEST(ConfigFileTest, EmptyFilesAndGroupsSayNothing) {
  EXPECT_THAT(Apply("").status, IsOk());
  EXPECT_THAT(Apply("# nothing\n").status, IsOk());
  EXPECT_THAT(Apply("grpc:\n  # all commented out\nmodels:\n").status, IsOk());
  EXPECT_THAT(Apply("models: {a: }\n").status, IsOk());
}

TEST(ConfigFileTest, RefusesWithFileLineColumnAndKey) {
  struct Row {
    const char* text;
    const char* message;
  };
  for (const auto& [text, message] : {
           Row{"grpc:\n  adress: x\n", "c.yaml:2:3: grpc.adress: unknown key"},
           Row{"ports: {}\n", "c.yaml:1:1: ports: unknown key"},
           Row{"grpc.address: \"a:1\"\n", "c.yaml:1:1: grpc.address: unknown key"},
           Row{"models: {m: {blocksize: 1}}\n", "c.yaml:1:14: models.m.blocksize: unknown key"},
           Row{"models: {m: 16}\n", "c.yaml:1:13: models.m: must be a mapping, got a single value"},
           Row{"models: {m.block_size: 16}\n",
               "c.yaml:1:24: models.m.block_size: must be a mapping, got a single value"},
           Row{"models: {\"\": {block_size: 1}}\n", "c.yaml:1:27: models..block_size: needs a name of 1 to 512 bytes"},
           Row{"index: {max_entries: 1}\nindex: {}\n", "c.yaml:2:1: index: is here twice, first in line 1"},
           Row{"index: {max_entries: 1, max_entries: 2}\n",
               "c.yaml:1:25: index.max_entries: is here twice, first in line 1"},
           Row{"index: []\n", "c.yaml:1:8: index: must be a mapping, got a list"},
           Row{"[]\n", "c.yaml:1:1: must be a mapping, got a list"},
           Row{"index:\n  max_entries: many\n", "c.yaml:2:16: index.max_entries: must be an integer, got \"many\""},
           Row{"index: {max_entries: \"5\"}\n",
               "c.yaml:1:22: index.max_entries: must be an integer, got \"5\" in quotes"},
           Row{"index: {max_entries: 5.0}\n", "c.yaml:1:22: index.max_entries: must be an integer, got \"5.0\""},
           Row{"index: {max_entries: }\n", "c.yaml:1:22: index.max_entries: must be a single value, got null"},
           Row{"index: {max_entries: [5]}\n", "c.yaml:1:22: index.max_entries: must be a single value, got a list"},
           Row{"index: {max_entries: -1}\n", "c.yaml:1:22: index.max_entries: must be >= 0, got -1"},
           Row{"index: {max_entries: !!int 5}\n",
               "c.yaml:1:22: index.max_entries: must not carry an explicit YAML type"},
           Row{"policy: {path: 12}\n",
               "c.yaml:1:16: policy.path: must be a string, got 12 (a string that looks like it needs quotes)"},
           Row{"grpc: {address: []}\n", "c.yaml:1:17: grpc.address: must have at least one value"},
           Row{"grpc:\n  address:\n    - a:1\n    - b\n",
               "c.yaml:4:7: grpc.address[1]: is no address: \"b\" has no port"},
           Row{"drain_delay: 5\n",
               "c.yaml:1:14: drain_delay: must be a duration such as 30m, 1h30m or 250ms, got \"5\""},
           Row{"log: {level: loud}\n", "c.yaml:1:14: log.level: must be one of debug, info, warn, error, got \"loud\""},
           Row{"a\n", "c.yaml:1:1: must be a mapping, got a single value"},
           Row{"index: {}\n---\nlog: {}\n", "c.yaml:3:1: must be the only document of the file"},
       }) {
    EXPECT_THAT(Apply(text).status, StatusIs(kBad, message)) << text;
  }
}

TEST(ConfigFileTest, GathersEveryProblem) {
  const Outcome outcome = Apply("a: 1\nlog: {level: x, format: y}\nwarm_up: 1d\n");
  EXPECT_THAT(outcome.status, StatusIs(kBad, HasSubstr("c.yaml:1:1: a: ")));
  EXPECT_THAT(outcome.status, StatusIs(kBad, HasSubstr("\nc.yaml:2:14: log.level: ")));
  EXPECT_THAT(outcome.status, StatusIs(kBad, HasSubstr("\nc.yaml:2:25: log.format: ")));
  EXPECT_THAT(outcome.status, StatusIs(kBad, HasSubstr("\nc.yaml:3:10: warm_up: ")));
}

TEST(ConfigFileTest, RefusesFilesThatCannotBeRead) {
  const TempFolder folder;
  DaemonOptions options;
  Origins origins;
  for (const auto& [path, message] :
       {std::pair(folder / "missing", ": cannot be read: No such file or directory"),
        std::pair(folder.path(), ": is not a regular file"),
        std::pair(folder.Write("big", std::string((4 << 20) + 1, '#')), ": is larger than 4194304 bytes")}) {
    Problems problems;
    ApplyConfigFile(path, &options, &origins, &problems);
    EXPECT_THAT(problems.ToStatus(), StatusIs(kBad, path + message));
  }
}

}  // namespace
}  // namespace icache
