// The program itself: signals and exit statuses.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "tests/daemon/daemon_testing.h"

extern char** environ;

namespace icache::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One run of icached. Killed on destruction if it still runs.
class Icached {
 public:
  enum class Errors { kPiped, kFullDisk, kClosed };

  explicit Icached(std::vector<std::string> arguments, Errors errors = Errors::kPiped) {
    arguments.insert(arguments.begin(), ICACHE_BINARY_DIR "/bin/icached");
    std::vector<char*> argv;
    for (std::string& argument : arguments) argv.push_back(argument.data());
    argv.push_back(nullptr);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    switch (errors) {
      case Errors::kPiped:
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
        break;
      case Errors::kFullDisk:
        posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/full", O_WRONLY, 0);
        break;
      case Errors::kClosed:
        posix_spawn_file_actions_addclose(&actions, STDERR_FILENO);
        break;
    }
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    output_fd_ = ends[0];
  }

  ~Icached() {
    if (pid_ > 0) {
      Signal(SIGKILL);
      Wait();
    }
    close(output_fd_);
  }

  void Signal(int number) { kill(pid_, number); }
  // Of its threads the main one gets it.
  void SignalMainThread(int number) { syscall(SYS_tgkill, pid_, pid_, number); }

  // Reads on until `text` has been written. False at the end of the output.
  bool AwaitOutput(const std::string& text) {
    while (output_.find(text) == std::string::npos) {
      if (!ReadMore()) return false;
    }
    return true;
  }

  // The exit status, or minus the signal that ended it. Reads the output to its end.
  int Wait() {
    while (ReadMore()) {
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  const std::string& output() const { return output_; }

  // The word after `key=` in the output so far.
  std::string Logged(const std::string& key) const {
    const size_t begin = output_.find(key + "=") + key.size() + 1;
    return output_.substr(begin, output_.find_first_of(" \n", begin) - begin);
  }
  std::string grpc_address() const { return Logged("address"); }
  int http_port() const { return std::stoi(Logged("http_port")); }

 private:
  bool ReadMore() {
    char buffer[4096];
    const ssize_t size = read(output_fd_, buffer, sizeof(buffer));
    if (size <= 0) return false;
    output_.append(buffer, size);
    return true;
  }

  pid_t pid_ = 0;
  int output_fd_ = -1;
  std::string output_;
};

std::vector<std::string> FreePorts(std::vector<std::string> more = {}) {
  more.insert(more.end(), {"--grpc-address", "127.0.0.1:0", "--http-address", "127.0.0.1:0"});
  return more;
}

TEST(IcachedTest, SigtermEndsItWithZero) {
  Icached icached(FreePorts());
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  icached.Signal(SIGTERM);
  EXPECT_EQ(icached.Wait(), 0);
}

TEST(IcachedTest, SigintEndsItWithZero) {
  Icached icached(FreePorts());
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  icached.Signal(SIGINT);
  EXPECT_EQ(icached.Wait(), 0);
}

TEST(IcachedTest, OpenStreamsDoNotKeepItAlive) {
  Icached icached(FreePorts());
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  const auto stub = ConnectTo(icached.grpc_address());
  grpc::ClientContext observer_context;
  const auto observer = stub->StreamMetrics(&observer_context, wire::StreamMetricsRequest());
  grpc::ClientContext report_context;
  wire::Ack ack;
  const auto report = stub->ReportCacheState(&report_context, &ack);
  EXPECT_EQ(Reason(stub.get()), "NO_HINT");
  icached.Signal(SIGTERM);
  EXPECT_EQ(icached.Wait(), 0);
  wire::Metric metric;
  while (observer->Read(&metric)) {
  }
  EXPECT_FALSE(observer->Finish().ok());
  EXPECT_FALSE(report->Finish().ok());
}

TEST(IcachedTest, ServesThroughTheDrainDelayWhichASecondSignalCutsShort) {
  Icached icached(FreePorts({"--drain-delay", "1h"}));
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  const auto stub = ConnectTo(icached.grpc_address());
  icached.Signal(SIGTERM);
  ASSERT_TRUE(icached.AwaitOutput("draining")) << icached.output();
  EXPECT_EQ(HttpGet(icached.http_port(), "/readyz").status, 503);
  EXPECT_EQ(Reason(stub.get()), "NO_HINT");
  icached.Signal(SIGTERM);
  EXPECT_EQ(icached.Wait(), 0);
}

TEST(IcachedTest, SighupReloadsThePolicies) {
  const TempFile policies("icached-policies");
  policies.Write("");
  Icached icached(FreePorts({"--policy-path", policies.path()}));
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  icached.Signal(SIGHUP);  // forces it though nothing has changed
  ASSERT_TRUE(icached.AwaitOutput("policies_reloaded")) << icached.output();
  icached.Signal(SIGTERM);
  EXPECT_EQ(icached.Wait(), 0);
}

TEST(IcachedTest, CrashLeavesABacktraceAndTheSignal) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS}) {
    Icached icached(FreePorts());
    ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
    icached.SignalMainThread(signal);
    EXPECT_EQ(icached.Wait(), -signal);
    EXPECT_THAT(icached.output(),
                AllOf(HasSubstr(" received at time="), HasSubstr("icache::(anonymous namespace)::Main()")));
  }
}

TEST(IcachedTest, LogThatCannotBeWrittenDoesNotStopIt) {
  // Standard error is a full disk, or closed; the ports are told by a socket.
  for (const bool closed : {false, true}) {
    const TempFile socket("icached-lost-log");
    Icached icached({"--grpc-address", "unix:" + socket.path(), "--http-address", "127.0.0.1:0"},
                    closed ? Icached::Errors::kClosed : Icached::Errors::kFullDisk);
    const auto stub = ConnectTo("unix:" + socket.path());
    EXPECT_TRUE(Eventually([&] { return Reason(stub.get()) == "NO_HINT"; }));
    icached.Signal(SIGHUP);
    EXPECT_EQ(Reason(stub.get()), "NO_HINT");
    icached.Signal(SIGTERM);
    EXPECT_EQ(icached.Wait(), 0);
  }
}

TEST(IcachedTest, DebugLinesCarryTheIdsOfACall) {
  Icached icached(FreePorts({"--log-level", "debug"}));
  ASSERT_TRUE(icached.AwaitOutput(" ready")) << icached.output();
  const auto stub = ConnectTo(icached.grpc_address());
  grpc::ClientContext context;
  context.AddMetadata("x-request-id", "req 1=\"x\"");
  context.AddMetadata("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
  wire::LookupRouteRequest request;
  request.set_tenant_id("tenant\n");
  request.set_model_id(std::string(100'000, 'm'));
  wire::LookupRouteResponse response;
  ASSERT_TRUE(stub->LookupRoute(&context, request, &response).ok());
  EXPECT_TRUE(
      icached.AwaitOutput("debug call method=LookupRoute request_id=\"req 1=\\\"x\\\"\" "
                          "traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 "
                          "tenant=\"tenant\\n\" model=" +
                          std::string(512, 'm') + " reason=NO_HINT refusal=\"\" us="))
      << icached.output();
}

TEST(IcachedTest, BadFlagExitsWithTwo) {
  Icached icached({"--no-such-flag"});
  EXPECT_EQ(icached.Wait(), 2);
  EXPECT_THAT(icached.output(), HasSubstr("no-such-flag"));
}

TEST(IcachedTest, BadPoliciesExitWithTwo) {
  const TempFile policies("icached-bad-policies");
  policies.Write(kBadPolicy);
  Icached icached(FreePorts({"--policy-path", policies.path()}));
  EXPECT_EQ(icached.Wait(), 2);
  EXPECT_THAT(icached.output(), HasSubstr(policies.path()));
}

TEST(IcachedTest, MissingPoliciesExitWithTwo) {
  Icached icached(FreePorts({"--policy-path", "/nonexistent/policies.yaml"}));
  EXPECT_EQ(icached.Wait(), 2);
}

TEST(IcachedTest, ValidateOnlyJudgesThePolicies) {
  const TempFile policies("icached-validate");
  policies.Write(kRequireChainPolicy);
  EXPECT_EQ(Icached(FreePorts({"--validate-only", "--policy-path", policies.path()})).Wait(), 0);
  policies.Write(kBadPolicy);
  EXPECT_EQ(Icached(FreePorts({"--validate-only", "--policy-path", policies.path()})).Wait(), 2);
}

TEST(IcachedTest, ValidateOnlyTellsAllThatIsWrongAtOnce) {
  const TempFile policies("icached-validate");
  policies.Write(kBadPolicy);
  const TempFile grants("icached-validate-grants");
  grants.Write("name: n\nroles: [nobody]\ntokens: [0123456789abcdef]\n");
  Icached icached(
      FreePorts({"--validate-only", "--log-level", "loud", "--policy-path", policies.path(), "--access-path",
                 grants.path(), "--grpc-tls-cert-file", "/nonexistent/tls.crt", "--http-tls-cert-file",
                 "/nonexistent/http.crt", "--http-tls-key-file", "/nonexistent/http.key"}));
  EXPECT_EQ(icached.Wait(), 2);
  for (const std::string& told : {std::string("--log-level: "), policies.path() + ":",
                                  grants.path() + ":2:9: roles: ", std::string("--grpc-tls-cert-file: needs a key"),
                                  std::string("/nonexistent/http.crt: cannot be read")}) {
    EXPECT_THAT(icached.output(), HasSubstr(told));
  }
}

TEST(IcachedTest, VersionExitsWithZero) {
  Icached icached({"--version"});
  EXPECT_EQ(icached.Wait(), 0);
  EXPECT_NE(icached.output(), "");
}

TEST(IcachedTest, TakenPortsExitWithOneAndAreNamed) {
  Icached first(FreePorts());
  ASSERT_TRUE(first.AwaitOutput(" ready")) << first.output();

  const std::string grpc_address = first.grpc_address();
  Icached same_grpc({"--grpc-address", grpc_address, "--http-address", "127.0.0.1:0"});
  EXPECT_EQ(same_grpc.Wait(), 1);
  EXPECT_THAT(same_grpc.output(), AllOf(HasSubstr(grpc_address), HasSubstr("in use")));

  const std::string http_address = "127.0.0.1:" + std::to_string(first.http_port());
  Icached same_http({"--grpc-address", "127.0.0.1:0", "--http-address", http_address});
  EXPECT_EQ(same_http.Wait(), 1);
  EXPECT_THAT(same_http.output(), AllOf(HasSubstr(http_address), HasSubstr("in use")));
}

}  // namespace
}  // namespace icache::testing
